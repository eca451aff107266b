"""`fairway metrics`: the metrics that a run reported."""

from __future__ import annotations

from fairway.cli.address import job_path
from fairway.cli.grammar import FORMAT, Command, Flag, Options, Word
from fairway.cli.session import Session


def metrics(options: Options) -> int:
    """Print the points of a run in order of time."""
    Session(options).show(
        job_path(options.word(), "/metrics"), {"metric": options.text("metric"), "limit": options.number("limit")}
    )
    return 0


COMMANDS = {
    "": Command(
        "metrics",
        "Print the metrics that a run reported.",
        metrics,
        words=(Word("NAME", "a run, or a series for its newest run"),),
        flags=(
            Flag("--metric -m", "only this metric", "NAME"),
            Flag("--limit", "maximum number of points, evenly spaced", "N", number=True),
            FORMAT,
        ),
    )
}
