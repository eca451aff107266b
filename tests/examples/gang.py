"""Runs an example through the real command line, and checks that its processes really worked together."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples"
FAIRWAY = Path(sys.executable).with_name("fairway")
DIGITS = range(1500)
"""The samples of scikit-learn's digits that the examples train on; the other 297 are held out."""
GOOD = 0.85
"""Accuracy on held-out digits that no untrained program reaches."""

Note = dict[str, Any]


@dataclass(frozen=True)
class Run:
    """An example that has ended."""

    code: int
    """The exit code of `fairway run`."""
    output: str
    """Everything that it printed."""
    shared: Path
    """The folder that the tasks shared."""

    def note(self, name: str) -> Note:
        """Return what one process recorded."""
        note: Note = json.loads((self.shared / f"{name}.json").read_text())
        return note

    def ranks(self) -> list[Note]:
        """Return what every rank recorded."""
        return [self.note(path.stem) for path in sorted(self.shared.glob("rank-*.json"))]


def run_example(home: Path, name: str, *flags: str, timeout: float = 100) -> Run:
    """Run `examples/NAME/job.yaml` in the foreground; it is the first of its series in this home."""
    document = EXAMPLES / name / "job.yaml"
    series = next(line.split()[1] for line in document.read_text().splitlines() if line.startswith("name:"))
    code, output = call(home, "run", str(document), *flags, timeout=timeout)
    return Run(code, output, home / "jobs" / "default" / f"{series}-1" / "shared")


def run_alone(shared: Path, name: str, python: str, **variables: str) -> Run:
    """Run an example's program as a single process, without Fairway: it must not take itself for part of a gang."""
    env = {**environment(shared), "FAIRWAY_SHARED_DIR": str(shared), "PYTHONPATH": str(ROOT / "src"), **variables}
    ended = subprocess.run(
        [python, "train.py"],
        cwd=EXAMPLES / name,
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=100,
        check=False,
    )
    return Run(ended.returncode, ended.stdout, shared)


def wait_until(condition: Callable[[], bool], seconds: float = 60) -> None:
    """Return when the condition holds; fail on timeout."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.05)


def call(home: Path, *words: str, timeout: float = 60) -> tuple[int, str]:
    """Run the command line; return its exit code and output."""
    ended = subprocess.run(
        [FAIRWAY, *words],
        env=environment(home),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=timeout,
        check=False,
    )
    return ended.returncode, ended.stdout


def end_home(home: Path) -> None:
    """End all tasks and the daemon."""
    for folder in (home / "jobs" / "default").glob("*"):
        call(home, "stop", folder.name, "--now")
    call(home, "daemon", "stop")


def environment(home: Path) -> dict[str, str]:
    """Return the caller's environment with another home, and without the peers of a run that this process may be part of."""
    foreign = ("FAIRWAY_", "TF_CONFIG", "JAX_", "DMLC_", "OMPI_", "PMIX_")
    own = {name: value for name, value in os.environ.items() if not name.startswith(foreign)}
    return {**own, "FAIRWAY_HOME": str(home), "NO_COLOR": "1"}


def check_gang(notes: Iterable[Note], world: int, samples: Iterable[int], *, synchronous: bool = True) -> None:
    """Fail unless `world` ranks met, shared the samples and, when synchronous, agree on the weights."""
    notes = list(notes)
    assert {note["world_size"] for note in notes} == {world}, "a rank saw another number of peers"
    assert sorted(note["rank"] for note in notes) == list(range(world)), "a rank is missing or there twice"
    used = [sample for note in notes for sample in note["samples"]]
    assert all(note["samples"] for note in notes), "a rank had no samples"
    assert len(used) == len(set(used)), "a sample was used by two ranks"
    assert set(used) <= set(samples)
    assert len(used) > 0.95 * len(set(samples)), "many samples were never used"
    if synchronous:
        assert len({note["weights"] for note in notes}) == 1, "ranks ended with different weights"
