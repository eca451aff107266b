"""`fairway prune`: remove finished runs by age, phase or label."""

from __future__ import annotations

import os
import time

from fairway.cli.address import job_path
from fairway.cli.argument_parser import FORMAT, PLAN, CliCommand, CommandFlag, CommandOptions, PositionalArgument
from fairway.cli.flag.selector import SELECTOR, YES, confirm, select
from fairway.cli.session import CommandSession, say, show_line, write_json
from fairway.errors import UsageError
from fairway.units import quantity

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_OVER = ("succeeded", "failed", "stopped")


def prune(options: CommandOptions) -> int:
    """Remove the finished runs that match, and report the disk space freed."""
    phases, age = _phases(options), _age(options)
    if not options.words and not options.many("phase") and not options.many("label") and age is None:
        message = "fairway prune: no filter selects the finished runs to delete"
        raise UsageError(message, fix="fairway prune --older-than 30d, --phase failed, -l KEY=VALUE, or the name of a series")
    session = CommandSession(options)
    latest = time.time() - age if age is not None else None
    runs = [run for run in select(session, options, ",".join(phases)) if _is_meant(run, latest)]
    sizes = {run["name"]: _size(run.get("folder") or "") for run in runs}
    if options.on("plan"):
        _print(session, sizes, planned=True)
        say("nothing was changed (--plan)")
        return 0
    if not confirm(options, lambda: list(sizes)):
        return 1
    session.announce()
    for name in sizes:
        session.send("DELETE", job_path(name), query={"all": False, "bare": False})
    _print(session, sizes, planned=False)
    return 0


def _is_meant(run: dict[str, Any], latest: float | None) -> bool:
    """Whether the run has ended, before `latest` if given. A run that was resumed has no end and never matches."""
    ended = run.get("finished")
    return ended is not None and (latest is None or ended <= latest)


def _phases(options: CommandOptions) -> list[str]:
    phases = [part.strip().lower() for text in options.many("phase") for part in text.split(",") if part.strip()]
    for phase in phases:
        if phase not in _OVER:
            message = f"--phase {phase}: only finished runs are pruned"
            raise UsageError(message, fix=f"use {', '.join(_OVER)}; `fairway stop` ends a run that is not over")
    return phases or list(_OVER)


def _age(options: CommandOptions) -> float | None:
    text = options.text("older-than")
    if not text:
        return None
    try:
        return quantity.seconds(text)
    except ValueError as error:
        message = f"--older-than {text} {error}"
        raise UsageError(message, fix="write for example --older-than 30d") from None


def _size(folder: str) -> int | None:
    """Return the bytes that a run's folder takes on this machine; None if the folder is elsewhere."""
    if not folder or not os.path.isdir(folder):
        return None
    total = 0
    for directory, _, names in os.walk(folder):
        for name in names:
            try:
                total += os.lstat(os.path.join(directory, name)).st_blocks * 512
            except OSError:
                continue
    return total


def _print(session: CommandSession, sizes: dict[str, int | None], *, planned: bool) -> None:
    known_sizes = [size for size in sizes.values() if size is not None]
    if session.output == "json":
        write_json(
            {"deleted": [] if planned else list(sizes), "would_delete": list(sizes) if planned else [], "bytes": sum(known_sizes)}
        )
        return
    for name, size in sizes.items():
        show_line(name if session.output == "name" or size is None else f"{name}  {quantity.show_bytes(size)}")
    space = f", {quantity.show_bytes(sum(known_sizes))}" if known_sizes else ""
    count = f"{len(sizes)} {'run' if len(sizes) == 1 else 'runs'}"
    say(f"{count} {'would be' if planned else 'is' if len(sizes) == 1 else 'are'} deleted{space}")


COMMANDS = {
    "": CliCommand(
        "prune",
        "Delete the finished runs that match every flag, with their logs, checkpoints and outputs. Runs that are not over "
        "are kept. This cannot be undone.",
        prune,
        words=(PositionalArgument("NAME", "only the runs of this series", optional=True, many=True),),
        flags=(
            CommandFlag("--older-than", "only runs that ended at least this long ago: 12h, 30d", "TIME"),
            CommandFlag(
                "--phase",
                "only runs that ended in this phase: succeeded, failed, stopped; may be given again",
                "PHASE",
                many=True,
            ),
            SELECTOR,
            YES,
            PLAN,
            FORMAT,
        ),
        examples=(
            "fairway prune --older-than 30d --phase failed --plan",
            "fairway prune mnist --older-than 7d -y",
        ),
    )
}
