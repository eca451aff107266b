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
        "Print the numbers that a run reported.",
        metrics,
        words=(Word("NAME", "a run, or a series for its newest run"),),
        flags=(
            Flag("--metric -m", "only this one", "NAME"),
            Flag("--limit", "at most so many points, evenly spread", "N", number=True),
            FORMAT,
        ),
    )
}
