"""Shared code of the benchmarks: a temporary home, CPU and wall time of a command, and results as JSON lines."""

from __future__ import annotations

import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

FAIRWAY = str(Path(sys.executable).with_name("fairway"))


@contextmanager
def fresh_home(**variables: str) -> Iterator[dict[str, str]]:
    """An environment with an empty home; its daemon is stopped and the home removed at the end."""
    folder = tempfile.mkdtemp(prefix="fairway-bench-")
    environment = {**os.environ, "FAIRWAY_HOME": folder, "FAIRWAY_MACHINE_DIR": f"{folder}/machine", **variables}
    try:
        yield environment
    finally:
        subprocess.run([FAIRWAY, "daemon", "stop"], env=environment, capture_output=True, check=False)
        shutil.rmtree(folder, ignore_errors=True)


def cpu_ms(command: Sequence[str], environment: dict[str, str] | None = None) -> float:
    """User and system time of one run of a command and its children, in milliseconds."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(command, env=environment, stdin=subprocess.DEVNULL, capture_output=True, check=False)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        message = f"{command} exited with {done.returncode}: {done.stdout.decode()}{done.stderr.decode()}"
        raise RuntimeError(message)
    return 1000 * (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)


def first_line_ms(command: Sequence[str], environment: dict[str, str] | None = None) -> float:
    """Time from the start of a command to the first line it prints, in milliseconds."""
    began = time.perf_counter()
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL
    ) as process:
        assert process.stdout is not None
        if not process.stdout.readline():
            message = f"{command} printed nothing"
            raise RuntimeError(message)
        took = time.perf_counter() - began
        process.stdout.read()
    if process.returncode:
        message = f"{command} exited with {process.returncode}"
        raise RuntimeError(message)
    return 1000 * took


def interleaved(rounds: int, **measures: object) -> dict[str, list[float]]:
    """Run the measures in turn, `rounds` times, so that other work on the machine affects all alike."""
    found: dict[str, list[float]] = {name: [] for name in measures}
    for _ in range(rounds):
        for name, measure in measures.items():
            found[name].append(measure())  # type: ignore[operator]
    return found


def median_ratio(values: Sequence[float], base: Sequence[float]) -> float:
    """Return the ratio of the medians."""
    return statistics.median(values) / statistics.median(base)


def tell(what: str, ratio: float, must: str, *, met: bool, **more: object) -> None:
    """Print the result as one JSON line."""
    print(json.dumps({"what": what, "ratio": round(ratio, 3), "must": must, "met": met, **more}))
