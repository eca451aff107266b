"""The PyTorch examples as a reader would run them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from gang import EXAMPLES, FAIRWAY, GOOD, call, environment, run_example

CHECKPOINTS = Path("jobs", "default", "elastic-1", "checkpoints")

pytestmark = [pytest.mark.framework("torch"), pytest.mark.timeout(300)]


def metric(home: Path, name: str, metric: str) -> list[float]:
    """Return the values that the run reported, in order."""
    code, text = call(home, "metrics", name, "--metric", metric, "-o", "json")
    assert code == 0, text
    return [point["metrics"][metric] for point in json.loads(text)["points"]]


def test_first_job_learns_and_leaves_a_model(home: Path, python: str) -> None:
    run = run_example(home, "01-first-job", "--python", python, timeout=240)

    assert run.code == 0, run.output
    assert "worker 0 of 2" in run.output
    assert "worker 1 of 2" in run.output
    assert metric(home, "first-job", "accuracy")[-1] > GOOD
    model = json.loads(call(home, "model", "get", "lenet@1", "-o", "json")[1])
    assert (model["format"], model["lineage"]["run"]) == ("onnx", "default/first-job-1")
    assert model["metrics"]["accuracy"] > GOOD
    assert model["size"] > 100_000


def test_torchrun_program_is_unchanged_and_its_log_gives_the_loss(home: Path, python: str) -> None:
    run = run_example(home, "02-torchrun", "--python", python, timeout=240)

    assert run.code == 0, run.output
    assert all(f"rank {rank} of 4" in run.output for rank in range(4))
    losses = metric(home, "torchrun", "loss")
    assert losses[-1] < losses[0]


def test_processes_of_one_replica_stop_when_they_are_good_enough(home: Path, python: str) -> None:
    run = run_example(home, "03-processes", "--python", python, timeout=240)

    assert run.code == 0, run.output
    assert max(metric(home, "processes", "accuracy")) >= 0.9
    assert "stopped at step" in run.output
    assert "stopped at step 3000" not in run.output


@pytest.mark.parametrize("name", ["05-accelerate", "06-lightning"])
def test_programs_of_other_libraries_are_unchanged(home: Path, python: str, name: str) -> None:
    run = run_example(home, name, "--python", python, timeout=240)

    assert run.code == 0, run.output
    assert "fairway" not in "".join(line for line in (EXAMPLES / name / "train.py").read_text().splitlines() if "import" in line)
    assert "2 processes on cpu" in run.output or "rank 1 of 2" in run.output


def test_elastic_job_goes_on_with_fewer_from_its_checkpoint(home: Path, python: str) -> None:
    with started(home, python, EXAMPLES / "04-elastic" / "job.yaml") as run:
        wait_for(lambda: (home / CHECKPOINTS / "latest").exists(), run)
        os.kill(process_with(home, "FAIRWAY_RANK=2"), signal.SIGKILL)
        output, _ = run.communicate(timeout=200)

    assert run.returncode == 0, output
    assert "rank 2 of 3, attempt 0: from step 0" in output
    assert "rank 1 of 2, attempt 1: from step" in output
    assert "rank 1 of 2, attempt 1: from step 0\n" not in output
    workers = metric(home, "elastic", "workers")
    assert (workers[0], workers[-1]) == (3.0, 2.0)
    assert metric(home, "elastic", "accuracy")[-1] > GOOD


def test_elastic_torchrun_replaces_a_lost_rank_by_itself(home: Path, python: str) -> None:
    text = (EXAMPLES / "04-elastic" / "job.yaml").read_text()
    document = home.with_name("job.yaml")
    document.write_text(
        text.replace("python train.py", "torchrun train.py").replace("code: .", f"code: {EXAMPLES / '04-elastic'}")
    )
    with started(home, python, document) as run:
        wait_for(lambda: (home / CHECKPOINTS / "latest").exists(), run)
        os.kill(process_with(home, "RANK=2"), signal.SIGKILL)
        output, _ = run.communicate(timeout=200)

    assert run.returncode == 0, output
    assert output.count("of 3, attempt 0: from step 0\n") == 3
    assert output.count("of 3, attempt 0: from step") == 6  # all of them again, from the checkpoint
    assert "attempt 1" not in output, output


@contextmanager
def started(home: Path, python: str, document: Path) -> Iterator[subprocess.Popen[str]]:
    """Run the elastic job in the background, slowly enough to be killed; it is stopped at the end of the block."""
    command = [FAIRWAY, "run", document, "--python", python, "-e", "PAUSE=0.02", "-e", "STEPS=400"]
    run = subprocess.Popen(command, env=environment(home), text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    try:
        yield run
    finally:
        run.kill()
        run.communicate()


def wait_for(condition: Callable[[], bool], run: subprocess.Popen[str], seconds: float = 90) -> None:
    """Wait until the condition holds; fail on timeout or when the run has ended."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert run.poll() is None, run.communicate()[0]
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(0.05)


def process_with(home: Path, variable: str) -> int:
    """Return the process of the elastic job in this home that was started with this variable."""
    wanted = {variable, f"FAIRWAY_CHECKPOINT_DIR={home / CHECKPOINTS}"}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if wanted <= set((folder / "environ").read_text(errors="replace").split("\0")):
                return int(folder.name)
        except OSError:
            continue  # it ended, or belongs to another user
    raise AssertionError(f"no process was started with {variable}")
