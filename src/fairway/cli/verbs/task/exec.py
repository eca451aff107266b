"""`fairway exec`: run a command beside a task, in its folder and with its environment."""

from __future__ import annotations

import os

from fairway.cli.address import job_path
from fairway.cli.argument_parser import PLAN, CliCommand, CommandFlag, CommandOptions, PositionalArgument
from fairway.cli.session import CommandSession, say, show_line
from fairway.errors import NotFoundError, UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from fairway.engines.kubernetes.client.api import ApiClient


def execute(options: CommandOptions) -> int:
    """Replace this process by the command, which gets the task's variables, folder and devices."""
    if not options.rest:
        message = "no command was given"
        raise UsageError(message, fix=f"fairway exec {options.word()} -- bash")
    session = CommandSession(options)
    if session.cluster is not None:
        return _in_pod(session, options)
    query = {"role": options.text("role"), "index": options.number("index")}
    task_environment = session.fetch(job_path(options.word(), "/environment"), query)
    if options.on("plan"):
        show_line(
            f"{' '.join(options.rest)} would run in the environment of {task_environment['task']}, in {task_environment['cwd']}"
        )
        return 0
    session.announce()
    say(f"in the environment of {task_environment['task']}, in {task_environment['cwd']}")
    # The terminal's variables come from the caller, not from the task.
    environment = {
        **task_environment["env"],
        **{name: os.environ[name] for name in ("TERM", "COLORTERM", "LANG") if name in os.environ},
    }
    try:
        os.chdir(task_environment["cwd"])
        os.execvpe(options.rest[0], options.rest, environment)
    except FileNotFoundError:
        message = (
            f"{options.rest[0]}: not found in the task's PATH, or the task's folder no longer exists ({task_environment['cwd']})"
        )
        raise NotFoundError(
            message,
            fix="give the full path of the program",
        ) from None


def _in_pod(session: CommandSession, options: CommandOptions) -> int:
    """Run the command in the pod of a task; the cluster decides whether the user may."""
    from fairway.cli.cluster.pod import enter, find, run_beside

    async def act(client: ApiClient) -> int:
        pod = await find(client, session, options.word(), options.text("role"), options.number("index"))
        if options.on("plan"):
            show_line(f"{' '.join(options.rest)} would run in the pod {pod.pod}")
            return 0
        session.announce()
        say(f"in the pod {pod.pod}")
        return await run_beside(client, pod, options.rest)

    return enter(session, act)


COMMANDS = {
    "": CliCommand(
        "exec",
        "Run a command in a task's folder with its environment.",
        execute,
        words=(PositionalArgument("NAME", "a run, or a series for its newest run"),),
        flags=(
            CommandFlag("--role", "in a task of this role (default: the first)", "NAME"),
            CommandFlag("--index", "in the task with this index in its role (default: 0)", "N", number=True),
            CommandFlag("--interactive -i", "accepted for compatibility; always on"),
            CommandFlag("--tty -t", "accepted for compatibility; always on"),
            PLAN,
        ),
        rest="COMMAND...",
        examples=("fairway exec mnist -- nvidia-smi", "fairway exec mnist-7 --index 1 -- bash"),
    )
}
