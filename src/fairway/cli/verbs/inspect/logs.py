"""`fairway logs`: the output of tasks, kept after they have ended."""

from __future__ import annotations

import time

from fairway.cli.address import JOB, SERVICE, path_of, split
from fairway.cli.argument_parser import CliCommand, CommandFlag, CommandOptions, PositionalArgument
from fairway.cli.session import CommandSession, has_colour, say, write
from fairway.errors import UnavailableError, UsageError
from fairway.units import quantity


def logs(options: CommandOptions) -> int:
    """Print the output; with -f, follow it until no more can come."""
    session = CommandSession(options)
    _check_service(options)
    query: dict[str, str | int | float | bool | None] = {
        "role": options.text("role"),
        "index": options.number("index"),
        "attempt": _attempt(options.text("attempt")),
        "tail": options.number("tail"),
        "since": _since(options.text("since")),
        "grep": options.text("grep"),
        "follow": options.on("follow"),
        "timestamps": options.on("timestamps") or None,
        "prefix": options.on("prefix") or None,
        "access": options.on("access") or None,
        "colour": has_colour(1),
    }
    path = path_of(options.word(), "/logs")
    last_output = 0.0
    while True:
        try:
            reply = session.call("GET", path, query)
            if reply.headers.get("fairway-note") and not last_output:
                say(reply.headers["fairway-note"])
            for data in reply:
                last_output = time.time()
                write(data)
        except UnavailableError:
            if not options.on("follow"):
                raise
            # The daemon is gone; the tasks keep running, and their output is kept.
            session.daemon.start()
            say(f"{session.daemon.called} did not answer for a moment; the last lines may be printed twice")
            query = {**query, "since": last_output or None, "tail": None if last_output else query["tail"]}
        else:
            break
    if not last_output:
        say(
            f"{options.word()} has printed nothing that matches"
            if options.text("grep")
            else f"{options.word()} has printed nothing"
        )
    return 0


def _check_service(options: CommandOptions) -> None:
    """Refuse flags that do not apply: replicas have no roles and no further attempts, and only services have an access log."""
    if options.on("access") and split(options.word(), (JOB, SERVICE))[0] != SERVICE:
        message = f"--access: {options.word()} is a run, and only services have an access log"
        raise UsageError(message, fix=f"fairway logs service/{options.word()} --access")
    if options.on("access") and options.on("timestamps"):
        raise UsageError(
            "--access --timestamps: every line of the access log already has a timestamp", fix="leave --timestamps out"
        )
    flags = [flag for flag in ("role", "index", "attempt") if options.text(flag) or options.number(flag) is not None]
    if flags and split(options.word(), (JOB, SERVICE))[0] == SERVICE:
        message = f"--{flags[0]} does not apply to the replicas of {options.word()}"
        raise UsageError(message, fix="leave it out, or use --grep to select lines of a replica")


def _attempt(text: str) -> int | None:
    """Return the number of the attempt for the request; `all` is -1."""
    if not text:
        return None
    if text == "all":
        return -1
    if not text.isdecimal():
        message = f"--attempt {text}: a number or `all` is needed"
        raise UsageError(message, fix="0 is the first attempt")
    return int(text)


def _since(text: str) -> float | None:
    """Parse a duration before now (`10m`) or a time in ISO 8601."""
    if not text:
        return None
    try:
        return time.time() - quantity.seconds(text)
    except ValueError:
        from datetime import datetime
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        message = f"--since {text}: neither a length of time nor a time"
        raise UsageError(message, fix="write 10m or 2026-01-31T14:00") from None


COMMANDS = {
    "": CliCommand(
        "logs",
        "Print the output of a run's tasks. With several tasks, each line begins with the name of its task.",
        logs,
        words=(PositionalArgument("NAME", "a run, a series for its newest run, or service/NAME for its replicas"),),
        flags=(
            CommandFlag(
                "--follow -f",
                "follow the output until the run has ended or the service is deleted; includes replicas that start later",
            ),
            CommandFlag("--role", "only this role", "NAME"),
            CommandFlag("--index", "only this task of the role", "N", number=True),
            CommandFlag("--tail", "only the last lines of each task", "N", number=True),
            CommandFlag("--since", "only lines newer than this: 10m, or 2026-01-31T14:00", "TIME"),
            CommandFlag("--grep", "only lines that match this regular expression", "PATTERN"),
            CommandFlag("--attempt", "the attempt, or `all` (default: the newest of each task)", "N"),
            CommandFlag(
                "--timestamps",
                "begin each line with its time in UTC; up to 1s late, 4s after a silence; exact for new lines with -f",
            ),
            CommandFlag("--access", "of a service: the requests that its router answered, one line of JSON each"),
            CommandFlag("--prefix", "print the task's name even if there is only one task"),
        ),
        examples=(
            "fairway logs -f mnist",
            "fairway logs mnist-7 --index 1 --tail 100",
            "fairway logs -f service/mnist --tail 10",
            "fairway logs service/mnist --access --since 10m --grep '\"status\":5'",
            "fairway logs mnist-7 --grep 'Error|Warning' --attempt all",
        ),
    )
}
