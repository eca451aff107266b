"""`fairway attach`: follow a run that is already running."""

from __future__ import annotations

from fairway.cli.address import job_path
from fairway.cli.grammar import Command, Flag, Options, Word
from fairway.cli.session import Session, is_terminal, say
from fairway.cli.status import OVER
from fairway.errors import ConflictError, NotFoundError

LINES = 20
"""Default number of earlier output lines to show first."""


def attach(options: Options) -> int:
    """Follow the run until it ends or the user detaches; the exit code is that of `run`."""
    session = Session(options)
    try:
        job = session.fetch(job_path(options.word()))
    except NotFoundError as error:
        raise NotFoundError(error.message, fix=error.fix or "`fairway list` shows the runs that there are") from None
    name = job["name"]
    if job["phase"] in OVER:
        message = f"{name} is over: {job['phase']}"
        raise ConflictError(message, fix=f"what it printed: fairway logs {name}; how it ended: fairway get {name}")
    keys = bool(job.get("terminal")) and is_terminal(0) and is_terminal(1) and session.cluster is None
    from fairway.cli.follow import Follower

    say(f"attached to {name}; Ctrl-C twice to detach or stop; all of its output: fairway logs {name}")
    tail = options.number("tail")
    return Follower(session, job, interactive=keys, tail=LINES if tail is None else tail).follow()


COMMANDS = {
    "": Command(
        "attach",
        "Return to a run that was started before and goes on: its output, its status, your keys where it has a terminal. "
        "Ctrl-C is that of `fairway run`. The exit code is the program's own.",
        attach,
        words=(Word("NAME", "a run, or a series for its newest run"),),
        flags=(Flag("--tail", f"lines of its output to begin with (default: {LINES})", "N", number=True),),
        examples=("fairway attach mnist", "fairway attach mnist-7 --tail 1000"),
    )
}
