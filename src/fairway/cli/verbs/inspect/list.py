"""`fairway list`: list runs, newest first."""

from __future__ import annotations

from fairway.cli.address import job_name, path_of_all
from fairway.cli.argument_parser import FORMAT, CliCommand, CommandFlag, CommandOptions, PositionalArgument
from fairway.cli.flag.selector import SELECTOR, labels
from fairway.cli.session import CommandSession
from fairway.cli.terminal.watch import WATCH, show
from fairway.errors import UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

SORTS = ("name", "created", "started", "finished", "duration", "phase", "priority", "gpus", "user", "queue")
_ALL = 1_000_000_000
"""A limit above any number of runs."""


def list_jobs(options: CommandOptions) -> int:
    """Print the runs that match."""
    session = CommandSession(options)
    if options.on("all-namespaces"):
        session.namespace = "*"
    everything = path_of_all(options.word())
    if everything not in ("", "/v1/jobs"):
        _refuse_filters(options)
        return show(session, [everything])
    phases = ",".join([*options.many("phase"), *(["active"] if options.on("active") else [])])
    series = job_name(options.word()) if options.word() and not everything else ""
    query: dict[str, Any] = {
        "series": series,
        "phase": phases,
        "label": labels(options),
        "sort": _order(options),
        "limit": _ALL if options.on("all") else options.number("limit"),
        "before": options.text("before"),
    }
    return show(session, ["/v1/jobs"], query)


def _order(options: CommandOptions) -> str:
    key = options.text("sort")
    if key and key.lstrip("-") not in SORTS:
        from fairway.cli.argument_parser import suggest

        message = f"--sort {key}: there is no such sort key{suggest(key.lstrip('-'), SORTS)}"
        raise UsageError(message, fix=f"use one of {', '.join(SORTS)}; put a dash before it for the reverse order")
    return key


def _refuse_filters(options: CommandOptions) -> None:
    for key in ("phase", "label", "sort", "active", "limit", "before"):
        if options.on(key):
            message = f"--{key} applies only to runs, not to {options.word()}"
            raise UsageError(message, fix=f"fairway list --{key} ..., or fairway list {options.word()}")


COMMANDS = {
    "": CliCommand(
        "list",
        "List runs, newest first.",
        list_jobs,
        words=(
            PositionalArgument(
                "NAME",
                "only the runs of this series; `services`, `queues`, `models` or `datasets` lists these instead",
                optional=True,
            ),
        ),
        flags=(
            CommandFlag(
                "--phase", "only runs in this phase: pending, running, failed ...; may be given again", "PHASE", many=True
            ),
            CommandFlag("--active", "only runs that are not over"),
            SELECTOR,
            CommandFlag("--sort", f"sort order: {', '.join(SORTS)}; -KEY reverses it (default: newest first)", "KEY"),
            CommandFlag("--all -a", "all runs, without a limit"),
            CommandFlag("--limit", "maximum number of runs (default: 100)", "N", number=True),
            CommandFlag("--before", "show the next page: CURSOR is `next` of the -o json output", "CURSOR"),
            CommandFlag("--all-namespaces -A", "runs of all namespaces"),
            WATCH,
            FORMAT,
        ),
        examples=(
            "fairway list",
            "fairway list mnist --phase failed",
            "fairway list -l team=nlp --sort -duration --watch",
            "fairway list services",
            "fairway list models",
            "fairway list -o json",
        ),
    )
}
