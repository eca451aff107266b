"""kill -9 of one of two workers: time to the first new step, against torchrun with its restart race switched off."""

from __future__ import annotations

import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from bench import FAIRWAY, fresh_home, tell
from torch_python import TORCH_PYTHON, TORCHRUN

PROGRAM = str(Path(__file__).with_name("lenet.py"))
STEPS = 1_000_000
KILL_AFTER = 30
PATIENCE = 40.0


def main() -> None:
    """Measure interleaved rounds; the number of rounds may be given."""
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 20
    ours: list[float | None] = []
    theirs: list[float | None] = []
    with fresh_home(OMP_NUM_THREADS="1", SAVE="1", TORCH_DISABLE_SHARE_RDZV_TCP_STORE="1") as environment:
        for _ in range(rounds):
            ours.append(_recover([FAIRWAY, "run", "--workers", "2", "--retries", "3", "--", TORCH_PYTHON, PROGRAM], environment))
            theirs.append(_recover([TORCHRUN, "--standalone", "--nproc-per-node=2", "--max-restarts=3", PROGRAM], environment))
    recovered = [took for took in ours if took is not None]
    others = [took for took in theirs if took is not None]
    ratio = statistics.median(recovered) / statistics.median(others)
    tell(
        "kill to first new step under Fairway / torchrun",
        ratio,
        "<= 1.0 with all recovered (aim 0.3)",
        met=ratio <= 1.0 and len(recovered) == rounds,
        recovered=f"{len(recovered)} of {rounds}",
        torchrun_recovered=f"{len(others)} of {rounds}",
        seconds=round(statistics.median(recovered), 2),
        torchrun_seconds=round(statistics.median(others), 2),
    )


def _recover(command: list[str], environment: dict[str, str]) -> float | None:
    with tempfile.TemporaryDirectory() as folder:
        steps = Path(folder, "rank-0.steps")
        process = subprocess.Popen(
            [*command, folder, str(STEPS)], env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        try:
            before = _wait(steps, lambda found: len(found) >= KILL_AFTER)
            victim = _wait(Path(folder, "rank-1.steps"), lambda found: len(found) >= 1)
            if before is None or victim is None:
                message = f"{command} never got to step {KILL_AFTER}"
                raise RuntimeError(message)
            killed = time.time()
            os.kill(int(victim[-1][2]), signal.SIGKILL)
            old = before[-1][2]
            after = _wait(steps, lambda found: found[-1][2] != old)
            return None if after is None else float(next(entry[1] for entry in after if entry[2] != old)) - killed
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(timeout=PATIENCE)


def _wait(path: Path, done) -> list[list[str]] | None:  # type: ignore[no-untyped-def]
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        if path.exists():
            found = [line.split() for line in path.read_text().splitlines() if line.count(" ") == 2]
            if found and done(found):
                return found
        time.sleep(0.005)
    return None


if __name__ == "__main__":
    main()
