"""`fairway run`: run a command or a document in the foreground."""

from __future__ import annotations

import os

from fairway.cli.argument_parser import FORMAT_SHORT, PLAN, CliCommand, CommandFlag, CommandOptions, PositionalArgument
from fairway.cli.flag.job import FLAGS
from fairway.cli.session import CommandSession, be_quiet, is_terminal, say
from fairway.cli.submission import print_plan, print_submitted, submit_body, submit_jobs
from fairway.errors import UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from fairway.cli.terminal.stdin_socket import StdinSocket


def run(options: CommandOptions) -> int:
    """Run the command or document and follow it; the exit code tells whether it succeeded."""
    if options.on("quiet"):
        be_quiet()
    raw = options.on("interactive") or options.on("tty")
    session = CommandSession(options)
    _check(options)
    terminal = is_terminal(0) and is_terminal(1) and not options.on("detach") and not options.on("no-terminal")
    terminal = terminal and session.cluster is None
    if raw and not terminal:
        message = "-it needs a terminal, but standard input is not a terminal"
        raise UsageError(message, fix="leave -it out; on a cluster: fairway exec -it NAME -- bash")
    if not options.on("plan"):
        session.announce()
    door = None if terminal or session.cluster else _door(options)
    try:
        return _run(session, options, door, terminal=terminal, raw=raw)
    finally:
        if door:
            door.close()


def _run(session: CommandSession, options: CommandOptions, door: StdinSocket | None, *, terminal: bool, raw: bool) -> int:
    stdin = door.name if door else ""
    body = submit_body(session, options, in_place=not options.on("snapshot"), terminal=terminal, stdin=stdin)
    if options.rest and not options.text("gpus") and session.cluster is None:
        _take_gpus(session, body["document"]["spec"]["roles"])
    if options.on("plan"):
        return print_plan(session, "/v1/jobs", body)
    if not options.on("detach") and session.cluster is None and session.output != "json":
        body["origin"]["stderr_apart"] = _is_apart()
    jobs = submit_jobs(session, body)
    if options.on("detach"):
        return print_submitted(session, jobs)
    return max(_follow(session, job, door, terminal=terminal, raw=raw) for job in jobs)


def _take_gpus(session: CommandSession, roles: dict[str, Any]) -> None:
    """Request one GPU for each worker if there are enough: the expected default on a machine with GPUs."""
    gpus = sum(node.get("gpus") or 0 for node in session.fetch("/v1/nodes")["nodes"])
    if not gpus:
        return
    for role in roles.values():
        workers = role.get("replicas", {}).get("max", 1)
        if workers <= gpus:
            role.setdefault("resources", {})["gpu"] = "1"
            say(f"each worker takes one GPU of {gpus} (--gpus 0 for none)")
        else:
            say(f"no GPU is requested: there are only {gpus} for {workers} workers; use fewer workers, or give --gpus 1")


def _door(options: CommandOptions) -> StdinSocket | None:
    """Open the socket that passes standard input to the task; None if the run is detached or the document comes from it."""
    if options.on("detach") or options.on("plan") or options.word() == "-":
        return None
    from fairway.cli.terminal.stdin_socket import open_door

    return open_door()


def _is_apart() -> bool:
    """Whether standard output and error have different targets. If they share one, a single log keeps the exact order."""
    try:
        output, error = os.fstat(1), os.fstat(2)
    except OSError:
        return False
    return (output.st_dev, output.st_ino) != (error.st_dev, error.st_ino)


def _follow(session: CommandSession, job: dict[str, Any], door: StdinSocket | None, *, terminal: bool, raw: bool) -> int:
    from fairway.cli.terminal.run_follower import RunFollower

    say(_first_words(job))
    return RunFollower(session, job, interactive=terminal, raw=raw, door=door).follow()


def _first_words(job: dict[str, Any]) -> str:
    gpus = job.get("gpus") or 0
    takes = f", {gpus:g} GPU{'s' if gpus != 1 else ''}" if gpus else ""
    count = job.get("replicas") or 1
    ranks = job.get("processes") or count
    starts = f", {ranks} processes" if ranks > count else ""
    notes = "".join(f"\nwarning: {warning}" for warning in job.get("warnings") or ())
    return f"{job['name']}: {count} {'task' if count == 1 else 'tasks'}{starts}{takes}{notes}"


def _check(options: CommandOptions) -> None:
    if not options.rest and not options.word():
        message = "no command and no document were given"
        raise UsageError(message, fix="fairway run -- python train.py, or fairway run job.yaml")
    if options.word().endswith((".py", ".sh")):
        program = "python" if options.word().endswith(".py") else "bash"
        raise UsageError(f"{options.word()} is a program, not a document", fix=f"fairway run -- {program} {options.word()}")
    if options.rest and options.word():
        first = options.word()
        hint = f"fairway run {first}" if os.path.exists(first) else f"fairway run -- {' '.join([first, *options.rest])}"
        message = f"both a file ({first}) and a command were given"
        raise UsageError(message, fix=f"keep one of them: {hint}")


COMMANDS = {
    "": CliCommand(
        "run",
        "Run a command in this folder, or a document, now; print its output and show its progress. "
        "Its first process reads from the standard input of this command.",
        run,
        words=(
            PositionalArgument("FILE", "a document to run instead of a command; - reads it from standard input", optional=True),
        ),
        flags=(
            *FLAGS,
            CommandFlag("--quiet -q", "print only the output of the program, and errors of Fairway"),
            CommandFlag("--detach -d", "return at once; print the name of the run"),
            CommandFlag("--interactive -i", "with -t: connect your terminal to the task, as for a shell"),
            CommandFlag("--tty -t", "see -i"),
            CommandFlag("--no-terminal", "give the task no terminal, even if you have one"),
            PLAN,
            FORMAT_SHORT,
        ),
        rest="COMMAND...",
        examples=(
            "fairway run -- python train.py",
            "fairway run --workers 2 --stop-when 'loss < 0.1' -- python train.py --epochs 5",
            "fairway run job.yaml --plan",
            "zcat data.gz | fairway run -- python count.py",
            "fairway run -it -- bash",
        ),
    )
}
