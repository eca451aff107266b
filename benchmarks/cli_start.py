"""CPU time of `fairway list` and `fairway --help`, against `python -c pass`."""

from __future__ import annotations

import sys

from bench import FAIRWAY, cpu_ms, fresh_home, interleaved, median_ratio, tell

ROUNDS = 21


def main() -> None:
    """Measure."""
    with fresh_home() as environment:
        cpu_ms([FAIRWAY, "list"], environment)
        found = interleaved(
            ROUNDS,
            bare=lambda: cpu_ms([sys.executable, "-c", "pass"], environment),
            list=lambda: cpu_ms([FAIRWAY, "list"], environment),
            help=lambda: cpu_ms([FAIRWAY, "--help"], environment),
        )
    for verb in ("list", "help"):
        ratio = median_ratio(found[verb], found["bare"])
        tell(f"CPU of fairway {verb} / python -c pass", ratio, "<= 5", met=ratio <= 5)


if __name__ == "__main__":
    main()
