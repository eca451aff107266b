"""The daemon: time until it is ready, against importing the same packages; its memory (PSS) and its idle CPU."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

from bench import FAIRWAY, fresh_home, tell

ROUNDS = 5
IDLE_SECONDS = 20


def main() -> None:
    """Measure."""
    starts, imports = [], []
    with fresh_home() as environment:
        for _ in range(ROUNDS):
            began = time.perf_counter()
            subprocess.run([sys.executable, "-c", "import fairway.bootstrap.daemon, uvloop"], env=environment, check=True)
            imports.append(time.perf_counter() - began)
            subprocess.run([FAIRWAY, "daemon", "stop"], env=environment, capture_output=True, check=False)
            began = time.perf_counter()
            subprocess.run([FAIRWAY, "daemon", "start"], env=environment, capture_output=True, check=True)
            starts.append(time.perf_counter() - began)
        status = json.loads(
            subprocess.run([FAIRWAY, "daemon", "status", "-o", "json"], env=environment, capture_output=True, check=True).stdout
        )
        pids = _family(int(status["pid"]))
        before = sum(_cpu_seconds(pid) for pid in pids)
        time.sleep(IDLE_SECONDS)
        idle = 100 * (sum(_cpu_seconds(pid) for pid in pids) - before) / IDLE_SECONDS
        pss = sum(_pss_mb(pid) for pid in pids)
    ratio = statistics.median(starts) / statistics.median(imports)
    tell("daemon ready / importing the same packages", ratio, "<= 1.5", met=ratio <= 1.5)
    tell("daemon PSS in MB (with its nursery)", pss, "<= 75", met=pss <= 75)
    tell("daemon idle CPU in %", idle, "<= 0.3", met=idle <= 0.3)


def _family(pid: int) -> list[int]:
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [pid, *(int(child) for child in children)]


def _cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _pss_mb(pid: int) -> float:
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("Pss:")) / 1024


if __name__ == "__main__":
    main()
