"""200 jobs of `python -c pass` in one batch: finished per second, against sequential bare subprocesses."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path

from bench import FAIRWAY, fresh_home, tell

JOBS = 200


def main() -> None:
    """Measure."""
    document = f"kind: TrainingJob\nname: tiny\nframework: command\ncommand: [{sys.executable}, -c, pass]\n"
    with fresh_home() as environment, tempfile.TemporaryDirectory() as folder:
        batch = Path(folder, "batch.yaml")
        batch.write_text("---\n".join([document] * JOBS))
        subprocess.run([FAIRWAY, "list"], env=environment, capture_output=True, check=True)
        began = time.perf_counter()
        for _ in range(JOBS):
            subprocess.run([sys.executable, "-c", "pass"], check=True)
        bare = JOBS / (time.perf_counter() - began)
        began = time.perf_counter()
        names = (
            subprocess.run([FAIRWAY, "submit", str(batch)], env=environment, capture_output=True, check=True)
            .stdout.decode()
            .split()
        )
        assert len(names) == JOBS
        subprocess.run([FAIRWAY, "wait", *names], env=environment, capture_output=True, check=True)
        ours = JOBS / (time.perf_counter() - began)
    tell("200 jobs a second / bare subprocesses", ours / bare, ">= 0.5", met=ours / bare >= 0.5, jobs_per_second=round(ours, 1))


if __name__ == "__main__":
    main()
