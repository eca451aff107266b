"""Two-worker DDP LeNet-5: CPU per step of the ranks under Fairway, against torchrun; and the CPU of Fairway itself."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from bench import FAIRWAY, cpu_ms, fresh_home, tell
from torch_python import TORCH_PYTHON, TORCHRUN

PAIRS = int(sys.argv[1]) if len(sys.argv) > 1 else 10
STEPS = 400
PROGRAM = str(Path(__file__).with_name("lenet.py"))


def main() -> None:
    """Measure interleaved pairs."""
    ratios, shares = [], []
    with fresh_home(OMP_NUM_THREADS="1") as environment:
        subprocess.run([FAIRWAY, "list"], env=environment, capture_output=True, check=True)
        for pair in range(PAIRS):
            order = (_torchrun, _fairway) if pair % 2 else (_fairway, _torchrun)
            found = {measure.__name__: measure(environment) for measure in order}
            ratios.append(found["_fairway"][0] / found["_torchrun"][0])
            shares.append(found["_fairway"][1])
    ratio = statistics.median(ratios)
    tell("CPU a step under Fairway / under torchrun, median of 10 pairs", ratio, "<= 1.02", met=ratio <= 1.02)
    share = 100 * statistics.median(shares)
    tell("Fairway's own CPU / the ranks', in %", share, "<= 1", met=share <= 1)


def _torchrun(environment: dict[str, str]) -> tuple[float, float]:
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(
            [TORCHRUN, "--standalone", "--nproc-per-node=2", PROGRAM, folder, str(STEPS)],
            env=environment,
            capture_output=True,
            check=True,
        )
        return _ranks(Path(folder))[0], 0.0


def _fairway(environment: dict[str, str]) -> tuple[float, float]:
    status = json.loads(
        subprocess.run([FAIRWAY, "daemon", "status", "-o", "json"], env=environment, capture_output=True, check=True).stdout
    )
    daemon = int(status["pid"])
    with tempfile.TemporaryDirectory() as folder:
        before = _family_cpu(daemon)
        # The ranks are not its children, so this is the command line's own time.
        command_line = (
            cpu_ms([FAIRWAY, "run", "--workers", "2", "--", TORCH_PYTHON, PROGRAM, folder, str(STEPS)], environment) / 1000
        )
        per_step, total = _ranks(Path(folder))
        own = _family_cpu(daemon) - before + command_line + _supervisors_cpu(Path(environment["FAIRWAY_HOME"]))
        return per_step, own / total


def _supervisors_cpu(home: Path) -> float:
    """Return the CPU time that the two supervisors of the newest run report."""
    runs = sorted((home / "jobs" / "default").iterdir(), key=lambda path: int(path.name.rpartition("-")[2]))
    return sum(json.loads(path.read_text())["own_cpu"] for path in runs[-1].glob("attempts/*/exit.json"))


def _ranks(folder: Path) -> tuple[float, float]:
    found = [json.loads((folder / f"rank-{rank}.json").read_text()) for rank in (0, 1)]
    return statistics.mean(entry["cpu_per_step"] for entry in found), sum(entry["cpu"] for entry in found)


def _family_cpu(pid: int) -> float:
    total = 0.0
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    for member in (str(pid), *children):
        try:
            fields = Path(f"/proc/{member}/stat").read_text().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            continue  # It has ended; its time is counted in its parent's now.
        # Its own time and that of children that it has waited for.
        total += sum(int(field) for field in fields[11:15]) / os.sysconf("SC_CLK_TCK")
    return total


if __name__ == "__main__":
    main()
