"""10,000 finished jobs in the store: CPU of `fairway list` and `get`, with the daemon's share, against an empty store."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import time
from dataclasses import replace
from pathlib import Path

from bench import FAIRWAY, cpu_ms, fresh_home, tell

from fairway.app.port.port import ChangeSet
from fairway.spec.job import JobSpec
from fairway.state.job import JobKey, JobState, RunOutcome
from fairway.state.phase import JobPhase, TaskPhase
from fairway.state.task import Task, TaskExit, TaskKey
from fairway.stores.sqlite.store import SqliteStore

JOBS = 10_000
ROUNDS = 15


def main() -> None:
    """Measure."""
    few = _measure(1)
    many = _measure(JOBS)
    for verb in ("list", "get"):
        ratio = many[verb] / few[verb]
        tell(f"CPU of fairway {verb} with {JOBS:,} finished jobs / with one", ratio, "<= 1.5", met=ratio <= 1.5)


def _measure(count: int) -> dict[str, float]:
    with fresh_home() as environment:
        _fill(Path(environment["FAIRWAY_HOME"]), count)
        subprocess.run([FAIRWAY, "list"], env=environment, capture_output=True, check=True)
        status = json.loads(
            subprocess.run([FAIRWAY, "daemon", "status", "-o", "json"], env=environment, capture_output=True, check=True).stdout
        )
        return {
            "list": _with_daemon(["list"], environment, status["pid"]),
            "get": _with_daemon(["get", f"job-{count}"], environment, status["pid"]),
        }


def _with_daemon(arguments: list[str], environment: dict[str, str], daemon: int) -> float:
    costs = []
    for _ in range(ROUNDS):
        before = _cpu_ms(daemon)
        own = cpu_ms([FAIRWAY, *arguments], environment)
        costs.append(own + _cpu_ms(daemon) - before)
    return statistics.mean(costs)


def _cpu_ms(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return 1000 * (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _fill(home: Path, count: int) -> None:
    now = time.time() - 86400
    store = SqliteStore(home / "fairway.db")
    spec = JobSpec.model_validate({"roles": {"worker": {"command": ["true"]}}})
    base = JobState(JobKey("default", "job-1"), "job", 1, spec, phase=JobPhase.SUCCEEDED, outcome=RunOutcome("Completed"))
    for first in range(1, count + 1, 500):
        numbers = range(first, min(first + 500, count + 1))
        for _ in numbers:
            store.next_number("default", "job")
        jobs = tuple(
            replace(
                base,
                key=JobKey("default", f"job-{number}"),
                number=number,
                created=now + number / 1000,
                started=now + number / 1000,
                finished=now + number / 1000 + 5,
            )
            for number in numbers
        )
        tasks = tuple(
            Task(
                TaskKey("default", f"job-{number}", "worker", 0, 0),
                TaskPhase.SUCCEEDED,
                created=now,
                started=now,
                finished=now,
                exit=TaskExit(0),
            )
            for number in numbers
        )
        store.commit(ChangeSet(jobs=jobs, tasks=tasks))
    store.close()


if __name__ == "__main__":
    main()
