"""`fairway attach`: follow a run that is already running."""

from __future__ import annotations

from fairway.cli.address import job_path
from fairway.cli.argument_parser import CliCommand, CommandFlag, CommandOptions, PositionalArgument
from fairway.cli.session import CommandSession, is_terminal, say
from fairway.cli.terminal.run_status import OVER
from fairway.errors import ConflictError, NotFoundError

LINES = 20
"""Default number of earlier output lines to show first."""


def attach(options: CommandOptions) -> int:
    """Follow the run until it ends or the user detaches; the exit code is that of `run`."""
    session = CommandSession(options)
    try:
        job = session.fetch(job_path(options.word()))
    except NotFoundError as error:
        raise NotFoundError(error.message, fix=error.fix or "`fairway list` shows all runs") from None
    name = job["name"]
    if job["phase"] in OVER:
        message = f"{name} is over: {job['phase']}"
        raise ConflictError(message, fix=f"`fairway logs {name}` prints its output, `fairway get {name}` shows how it ended")
    keys = bool(job.get("terminal")) and is_terminal(0) and is_terminal(1) and session.cluster is None
    from fairway.cli.terminal.run_follower import RunFollower

    say(f"attached to {name}; press Ctrl-C twice to detach or stop; complete output: fairway logs {name}")
    tail = options.number("tail")
    return RunFollower(session, job, interactive=keys, tail=LINES if tail is None else tail).follow()


COMMANDS = {
    "": CliCommand(
        "attach",
        "Attach to a run that is not over: show its output and status, and send it your keys if it has a terminal. "
        "Ctrl-C works as in `fairway run`. The exit code is that of the program.",
        attach,
        words=(PositionalArgument("NAME", "a run, or a series for its newest run"),),
        flags=(CommandFlag("--tail", f"number of earlier lines of output to print first (default: {LINES})", "N", number=True),),
        examples=("fairway attach mnist", "fairway attach mnist-7 --tail 1000"),
    )
}
