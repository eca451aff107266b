"""`fairway metrics`: the metrics that a run reported."""

from __future__ import annotations

from fairway.cli.address import job_path
from fairway.cli.argument_parser import FORMAT, CliCommand, CommandFlag, CommandOptions, PositionalArgument
from fairway.cli.session import CommandSession


def metrics(options: CommandOptions) -> int:
    """Print the points of a run in order of time."""
    CommandSession(options).show(
        job_path(options.word(), "/metrics"), {"metric": options.text("metric"), "limit": options.number("limit")}
    )
    return 0


COMMANDS = {
    "": CliCommand(
        "metrics",
        "Print the metrics that a run reported.",
        metrics,
        words=(PositionalArgument("NAME", "a run, or a series for its newest run"),),
        flags=(
            CommandFlag("--metric -m", "only this metric", "NAME"),
            CommandFlag("--limit", "maximum number of points, evenly spaced", "N", number=True),
            FORMAT,
        ),
    )
}
