"""Selection of runs by series and labels, and the confirmation before many of them are removed."""

from __future__ import annotations

import sys

from fairway.cli.address import job_name
from fairway.cli.argument_parser import CommandFlag, CommandOptions
from fairway.cli.session import CommandSession, is_terminal, say
from fairway.errors import UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

SELECTOR = CommandFlag(
    "--label -l --selector", "only runs with this label; if given several times, all must match", "KEY=VALUE", many=True
)
YES = CommandFlag("--yes -y", "do not ask for confirmation")
_NAMED = 5
"""Number of runs that a confirmation lists by name."""


def labels(options: CommandOptions) -> str:
    """Return the label selector in the daemon's format: `team=nlp,stage=test`."""
    pairs = [part.strip() for text in options.many("label") for part in text.split(",") if part.strip()]
    for text in pairs:
        key, mark, _ = text.partition("=")
        if not mark or not key or key.endswith("!"):
            message = f"--label {text}: expected a label and its value"
            raise UsageError(message, fix="write -l KEY=VALUE, for example -l team=nlp")
    return ",".join(pairs)


def select(session: CommandSession, options: CommandOptions, phases: str = "") -> list[dict[str, Any]]:
    """Return the runs of the named series, or of all series, that have the labels; newest first."""
    runs: list[dict[str, Any]] = []
    for series in [job_name(address) for address in options.words] or [""]:
        before: str | None = None
        while before != "":
            query = {"series": series, "phase": phases, "label": labels(options), "before": before}
            page = session.fetch("/v1/jobs", query)
            runs += page["jobs"]
            before = page["next"]
    return runs


def need_words(options: CommandOptions) -> None:
    """Refuse a command that has no name, no label and no --all."""
    if not options.words and not options.many("label") and not options.on("all"):
        message = f"fairway {options.command.name}: no run is named"
        raise UsageError(message, fix=f"fairway {options.command.name} NAME, or -l KEY=VALUE for the runs with a label")


def confirm(options: CommandOptions, find: Callable[[], Sequence[str]]) -> bool:
    """Whether the runs may be deleted: -y was given, or the user confirms on the terminal."""
    if options.on("yes"):
        return True
    names = find()
    if not names:
        return True
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    listing = f"{len(names)} {'run' if len(names) == 1 else 'runs'}: {', '.join(names[:_NAMED])}{more}"
    if not is_terminal(0) or not is_terminal(2):
        message = f"{listing} would be deleted, and there is no terminal to ask for confirmation"
        raise UsageError(message, fix="add -y to do it, or --plan to see it")
    sys.stderr.write(f"{listing} will be deleted with logs, checkpoints and outputs. This cannot be undone. Continue? [y/N] ")
    sys.stderr.flush()
    if sys.stdin.readline().strip().lower() in ("y", "yes"):
        return True
    say("nothing was changed")
    return False
