"""A task that prints a million lines, against the same program writing into a plain file."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path

from bench import FAIRWAY, fresh_home, interleaved, median_ratio, tell

LINES = 1_000_000
ROUNDS = 7
PROGRAM = """
import sys, time
began = time.perf_counter()
write = sys.stdout.write
for number in range({lines}):
    write(f"step {{number}} loss 0.123456 accuracy 0.987654\\n")
sys.stdout.flush()
open({mark!r}, "w").write(str(time.perf_counter() - began))
"""


def main() -> None:
    """Measure inside the program, so that starting it does not count."""
    with fresh_home(PYTHONUNBUFFERED="1") as environment, tempfile.TemporaryDirectory() as folder:
        mark, script = Path(folder, "took"), Path(folder, "print.py")
        script.write_text(PROGRAM.format(lines=LINES, mark=str(mark)))

        def bare() -> float:
            with Path(folder, "plain.log").open("wb") as log:
                subprocess.run([sys.executable, str(script)], stdout=log, env=environment, check=True)
            return float(mark.read_text())

        def ours() -> float:
            subprocess.run(
                [FAIRWAY, "run", "-d", "--", sys.executable, str(script)],
                env=environment, capture_output=True, check=True,
            )  # fmt: skip
            began = time.perf_counter()
            subprocess.run([FAIRWAY, "wait", "print"], env=environment, capture_output=True, check=True)
            assert time.perf_counter() - began < 120
            return float(mark.read_text())

        found = interleaved(ROUNDS, bare=bare, ours=ours)
    ratio = median_ratio(found["ours"], found["bare"])
    tell("printing a million lines / into a plain file", ratio, "<= 1.05", met=ratio <= 1.05)


if __name__ == "__main__":
    main()
