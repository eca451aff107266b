"""`fairway wait`: until runs have ended."""

from __future__ import annotations

import json
import time

from fairway.cli.address import job_name, job_path
from fairway.cli.grammar import FORMAT, Command, Flag, Options, Word
from fairway.cli.session import Session, is_terminal, say, write_json
from fairway.cli.status import Status, farewell
from fairway.errors import FairwayError, UnavailableError, UsageError
from fairway.units import quantity

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_EVERY = 10.0
"""Seconds between two words on how far it is, where there is a terminal."""


def wait(options: Options) -> int:
    """0 when every run succeeded, 1 when one did not or the time is over."""
    session = Session(options)
    limit = options.text("timeout")
    try:
        deadline = time.monotonic() + quantity.seconds(limit) if limit else None
    except ValueError as error:
        message = f"--timeout {limit} {error}"
        raise UsageError(message) from None
    names = _names(session, options)
    jobs = [wait_for(session, name, deadline) for name in names]
    for job in jobs:
        if session.output == "json":
            write_json(job)
        else:
            say(farewell(job))
    return 0 if all(job["phase"] == "Succeeded" for job in jobs) else 1


def _names(session: Session, options: Options) -> list[str]:
    """The runs that are meant now, before any new one is submitted."""
    if not options.on("all"):
        if not options.words:
            message = "no run is named"
            raise UsageError(message, fix="name runs, or say --all for every run that is not over")
        return [session.fetch(job_path(address))["name"] for address in options.words]
    found: list[str] = []
    for series in [job_name(address) for address in options.words] or [""]:
        before: str | None = None
        while before != "":
            page = session.fetch("/v1/jobs", {"series": series, "phase": "active", "before": before})
            found += [job["name"] for job in page["jobs"]]
            before = page["next"]
    if not found:
        say("nothing is left to wait for")
    return found


def wait_for(session: Session, name: str, deadline: float | None) -> dict[str, Any]:
    """Wait for one run's end; a daemon that goes away meanwhile is started again."""
    status = Status()
    told = time.monotonic()
    while True:
        try:
            left = None if deadline is None else max(0.001, deadline - time.monotonic())
            reply = session.call("GET", job_path(name, "/watch"), {"logs": "false"}, timeout=left)
            for line in reply.lines():
                value = json.loads(line)
                if "end" in value:
                    ended: dict[str, Any] = value["end"]
                    return ended
                if deadline is not None:
                    reply.set_timeout(max(0.001, deadline - time.monotonic()))
                before = status.job.get("phase")
                status.take(value["job"])
                if is_terminal(2) and (status.job["phase"] != before or time.monotonic() - told > _EVERY):
                    told = time.monotonic()
                    say("; ".join(status.lines(time.time())))
        except TimeoutError:
            phase = status.job.get("phase", "not over")
            message = f"{name} is still {phase}: the time given is over"
            raise FairwayError(message, fix=f"fairway why {name}") from None
        except UnavailableError:
            if not session.daemon.answers():
                session.daemon.start()


COMMANDS = {
    "": Command(
        "wait",
        "Wait until runs have ended. The exit code is 0 when all of them succeeded, else 1.",
        wait,
        words=(Word("NAME", "a run, or a series for its newest run", many=True, optional=True),),
        flags=(
            Flag("--all", "every run that is not over now; with a series, every such run of it"),
            Flag("--timeout", "the longest to wait: 90s, 5m", "TIME"),
            FORMAT,
        ),
        examples=("fairway wait mnist-7 --timeout 1h && echo done", "fairway wait --all"),
    )
}
