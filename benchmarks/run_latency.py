"""Time to the first line of `fairway run -- python s.py` with a warm daemon, against a bare `python s.py`."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from bench import FAIRWAY, first_line_ms, fresh_home, interleaved, median_ratio, tell

ROUNDS = 15


def main() -> None:
    """Measure."""
    with fresh_home() as environment, tempfile.TemporaryDirectory() as folder:
        script = Path(folder, "s.py")
        script.write_text('print("hello")\n')
        run = [FAIRWAY, "run", "--", sys.executable, str(script)]
        first_line_ms(run, environment)
        found = interleaved(
            ROUNDS,
            bare=lambda: first_line_ms([sys.executable, str(script)], environment),
            run=lambda: first_line_ms(run, environment),
        )
    ratio = median_ratio(found["run"], found["bare"])
    tell(
        "first line of fairway run / bare python",
        ratio,
        "<= 8 (aim 6)",
        met=ratio <= 8,
        run_ms=round(sorted(found["run"])[ROUNDS // 2], 1),
    )


if __name__ == "__main__":
    main()
