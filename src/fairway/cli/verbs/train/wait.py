"""`fairway wait`: wait until runs have ended and services answer."""

from __future__ import annotations

import json
import os
import select
import sys
import time

from fairway.cli.address import JOB, SERVICE, job_path, split
from fairway.cli.argument_parser import FORMAT, CliCommand, CommandFlag, CommandOptions, PositionalArgument
from fairway.cli.flag import selector
from fairway.cli.flag.selector import SELECTOR
from fairway.cli.session import CommandSession, is_terminal, say, write_json
from fairway.cli.terminal.run_status import RunStatusLines, farewell
from fairway.cli.terminal.screen import TerminalScreen
from fairway.cli.terminal.service_wait import ServiceWait
from fairway.errors import FairwayError, UnavailableError, UsageError
from fairway.units import quantity

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from fairway.sdk.transport.http import SocketReply

_REDRAW = 0.5
"""Interval in seconds between redraws of the status on a terminal."""


def wait(options: CommandOptions) -> int:
    """Return 0 if every run succeeded and every service answers, 1 if one did not or the timeout expired."""
    session = CommandSession(options)
    limit = options.text("timeout")
    try:
        deadline = time.monotonic() + quantity.seconds(limit) if limit else None
    except ValueError as error:
        message = f"--timeout {limit} {error}"
        raise UsageError(message) from None
    services = [split(word, (JOB, SERVICE))[1] for word in options.words if split(word, (JOB, SERVICE))[0] == SERVICE]
    answering = [await_service(session, name, deadline) for name in services]
    if services and len(services) == len(options.words) and not options.on("all") and not options.many("label"):
        return 0 if all(answering) else 1
    names = _names(session, options)
    jobs = [wait_for(session, name, deadline) for name in names]
    for job in jobs:
        if session.output == "json":
            write_json(job)
        else:
            say(farewell(job))
    return 0 if all(answering) and all(job["phase"] == "Succeeded" for job in jobs) else 1


def await_service(session: CommandSession, name: str, deadline: float | None) -> bool:
    """Wait until a service answers and no release is in progress; on giving up print the reason and return False."""
    watch = ServiceWait(session, name, deadline)
    service, reason = watch.settle()
    if reason:
        watch.explain(service, reason)
    elif session.output == "json":
        write_json(service)
    else:
        say(
            f"{name} answers at {service['url']}"
            if service["ready_replicas"]
            else f"{name} waits for a request at {service['url']}"
        )
    return not reason


def _names(session: CommandSession, options: CommandOptions) -> list[str]:
    """Resolve the names to runs at once, before the wait, so that runs submitted later do not count."""
    if not options.on("all") and not options.many("label"):
        if not options.words:
            message = "no run is named"
            raise UsageError(message, fix="name runs, or use --all for every run that is not over")
        return [session.fetch(job_path(address))["name"] for address in options.words if split(address, (JOB, SERVICE))[0] == JOB]
    names = [job["name"] for job in selector.select(session, options, "active")]
    if not names:
        say("there is nothing to wait for")
    return names


def wait_for(session: CommandSession, name: str, deadline: float | None) -> dict[str, Any]:
    """Wait for the end of a run; if the daemon stops meanwhile, start it again."""
    status = RunStatusLines()
    drawn = is_terminal(2) and os.environ.get("TERM") != "dumb"
    screen = TerminalScreen(_emit, lambda: os.get_terminal_size(2).columns) if drawn else None
    try:
        return _wait_for(session, name, deadline, status, screen)
    finally:
        if screen:
            screen.close()


def _wait_for(
    session: CommandSession, name: str, deadline: float | None, status: RunStatusLines, screen: TerminalScreen | None
) -> dict[str, Any]:
    while True:
        try:
            remaining = None if deadline is None else max(0.001, deadline - time.monotonic())
            reply = session.call("GET", job_path(name, "/watch"), {"logs": "false"}, timeout=remaining)
            try:
                for value in _told(reply, deadline, _REDRAW if screen else None):
                    if "end" in value:
                        ended: dict[str, Any] = value["end"]
                        return ended
                    status.take(value.get("job") or {})
                    if screen:
                        screen.status(status.lines(time.time()))
            finally:
                reply.close()
        except TimeoutError:
            phase = status.job.get("phase", "not over")
            message = f"{name} is still {phase} after the --timeout"
            raise FairwayError(message, fix=f"fairway why {name}") from None
        except UnavailableError:
            if not session.daemon.answers():
                session.daemon.start()


def _told(reply: SocketReply, deadline: float | None, every: float | None) -> Iterator[dict[str, Any]]:
    """Yield the lines of the reply, and an empty value at each redraw interval. Raises `TimeoutError` at the deadline."""
    poller = select.poll()
    poller.register(reply.fileno(), select.POLLIN)
    rest = b""
    while True:
        remaining = None if deadline is None else deadline - time.monotonic()
        if remaining is not None and remaining <= 0:
            raise TimeoutError
        pauses = [pause for pause in (remaining, every) if pause is not None]
        if not reply.ready and not poller.poll(min(pauses) * 1000 if pauses else None):
            yield {}
            continue
        data = reply.chunk()
        if data is None:
            return
        *lines, rest = (rest + data).split(b"\n")
        yield from (json.loads(line) for line in lines if line.strip())


def _emit(data: bytes) -> None:
    sys.stderr.buffer.write(data)
    sys.stderr.buffer.flush()


COMMANDS = {
    "": CliCommand(
        "wait",
        "Wait until runs have ended and services answer. The exit code is 0 if all of them succeeded, else 1.",
        wait,
        words=(PositionalArgument("NAME", "a run, a series for its newest run, or service/NAME", many=True, optional=True),),
        flags=(
            CommandFlag("--all", "every run that is not over now; with a series, every such run of it"),
            SELECTOR,
            CommandFlag("--timeout", "maximum time to wait: 90s, 5m", "TIME"),
            FORMAT,
        ),
        examples=(
            "fairway wait mnist-7 --timeout 1h && echo done",
            "fairway apply -f service.yaml && fairway wait service/mnist --timeout 2m",
            "fairway wait --all",
        ),
    )
}
