"""kill -9 of one of two workers: time to the first new step, with and without spare interpreters, against torchrun.

torchrun runs with its restart race switched off.
"""

from __future__ import annotations

import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from bench import FAIRWAY, fresh_home, tell
from torch_python import TORCH_PYTHON, TORCHRUN

PROGRAM = str(Path(__file__).with_name("lenet.py"))
STEPS = 1_000_000
KILL_AFTER = 30
PATIENCE = 40.0


def main() -> None:
    """Measure interleaved rounds; the number of rounds is an optional argument."""
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 20
    found: dict[str, list[float | None]] = {"plain": [], "spares": [], "torchrun": []}
    with fresh_home(OMP_NUM_THREADS="1", SAVE="1", TORCH_DISABLE_SHARE_RDZV_TCP_STORE="1") as environment:
        for _ in range(rounds):
            found["plain"].append(_recover(_fairway("never"), environment))
            found["spares"].append(_recover(_fairway("now"), environment, spares=2))
            found["torchrun"].append(_recover(_torchrun, environment))
    theirs = [took for took in found["torchrun"] if took is not None]
    for name, what, must, most in (
        ("plain", "kill to first new step under Fairway / torchrun", "<= 1.0 with all recovered", 1.0),
        ("spares", "the same with spare interpreters / torchrun", "aim 0.3", 0.3),
    ):
        ours = [took for took in found[name] if took is not None]
        ratio = statistics.median(ours) / statistics.median(theirs)
        tell(
            what,
            ratio,
            must,
            met=ratio <= most and len(ours) == rounds,
            recovered=f"{len(ours)} of {rounds}",
            torchrun_recovered=f"{len(theirs)} of {rounds}",
            seconds=round(statistics.median(ours), 2),
            torchrun_seconds=round(statistics.median(theirs), 2),
        )


def _fairway(spares: str) -> Callable[[str], list[str]]:
    """Return the command for a folder: two workers in place, with restarts."""

    def command(folder: str) -> list[str]:
        document = {
            "kind": "TrainingJob",
            "name": "recovery",
            "code": {"path": folder, "in_place": True},
            "restart": {"max": 3, "spares": spares},
            "roles": {"worker": {"replicas": 2, "command": [TORCH_PYTHON, PROGRAM, folder, str(STEPS)]}},
        }
        Path(folder, "job.json").write_text(json.dumps(document))
        return [FAIRWAY, "run", str(Path(folder, "job.json"))]

    return command


def _torchrun(folder: str) -> list[str]:
    return [TORCHRUN, "--standalone", "--nproc-per-node=2", "--max-restarts=3", PROGRAM, folder, str(STEPS)]


def _recover(command: Callable[[str], list[str]], environment: dict[str, str], spares: int = 0) -> float | None:
    with tempfile.TemporaryDirectory() as folder:
        steps = Path(folder, "rank-0.steps")
        process = subprocess.Popen(
            command(folder), env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        try:
            before = _wait(steps, lambda found: len(found) >= KILL_AFTER)
            victim = _wait(Path(folder, "rank-1.steps"), lambda found: len(found) >= 1)
            if before is None or victim is None:
                message = f"{command} never got to step {KILL_AFTER}"
                raise RuntimeError(message)
            _wait_for_spares(folder, spares)
            killed = time.time()
            os.kill(int(victim[-1][2]), signal.SIGKILL)
            old = before[-1][2]
            after = _wait(steps, lambda found: found[-1][2] != old)
            return None if after is None else float(next(entry[1] for entry in after if entry[2] != old)) - killed
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(timeout=PATIENCE)


def _wait_for_spares(folder: str, count: int) -> None:
    """Wait until `count` spare interpreters for this folder exist and have used no CPU for a moment."""
    deadline = time.monotonic() + PATIENCE
    idle: set[tuple[int, str]] = set()
    while len(idle) < count:
        if time.monotonic() > deadline:
            message = f"{len(idle)} of {count} spare interpreters became ready"
            raise RuntimeError(message)
        before = _spares(folder)
        time.sleep(0.5)
        idle = before & _spares(folder)


def _spares(folder: str) -> set[tuple[int, str]]:
    """Return process id and CPU time of each spare interpreter."""
    found = set()
    for place in Path("/proc").glob("[0-9]*"):
        try:
            if (place / "comm").read_text() == "fairway-spare\n" and os.fsencode(folder) in (place / "cmdline").read_bytes():
                found.add((int(place.name), " ".join((place / "stat").read_text().split()[13:15])))
        except OSError:
            continue
    return found


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
