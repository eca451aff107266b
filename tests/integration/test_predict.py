"""A model over a dataset, as a job: no row is missing or duplicated, also when a worker is killed."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from daemon_home import DaemonHome, kill


def predictions(folder: Path) -> list[tuple[int, list[float]]]:
    """Return (row, prediction), in the order of the files."""
    found: list[tuple[int, list[float]]] = []
    for path in sorted(folder.glob("part-*.npz")):
        with np.load(path) as part:
            start = int(path.stem.partition("-")[2])
            found.extend((start + place, row) for place, row in enumerate(part["y"].tolist()))
    return found


@pytest.fixture
def ready(home: DaemonHome) -> DaemonHome:
    from test_services import write_model

    home.ask("model", "register", "adds", str(write_model(home.work / "adds.onnx", 1)))
    np.save(home.work / "rows.npy", np.arange(2_000, dtype="float32").reshape(1_000, 2))
    home.ask("data", "add", "rows", str(home.work / "rows.npy"))
    return home


def test_every_row_is_predicted_once_and_the_result_is_a_dataset(ready: DaemonHome) -> None:
    ready.ask("predict", "adds", "--data", "rows@1", "--out", "scored", "--workers", "2", "--shard", "100")
    made = json.loads(ready.ask("data", "get", "scored@1", "-o", "json"))
    assert made["run"] == "default/predict-adds-1"
    ready.ask("data", "pull", "scored", str(ready.work / "scored"))
    found = predictions(ready.work / "scored")
    assert [row for row, _ in found] == list(range(1_000))
    assert found[500][1] == [1001.0, 1002.0]
    run = ready.get("predict-adds-1")
    assert run["phase"] == "Succeeded"
    assert "kept dataset scored@1" in ready.ask("events", "predict-adds-1")


def test_a_killed_worker_leaves_no_gap_and_no_double(ready: DaemonHome) -> None:
    run = ready.ask("predict", "adds", "--data", "rows@1", "--out", "scored", "--shard", "1", "--batch", "1", "--detach")
    out = ready.path / "jobs" / "default" / run / "outputs" / "dataset"
    ready.until(lambda: out.exists() and len(list(out.glob("part-*"))) > 20, "some parts")
    (worker,) = [pid for pid, text in ready.processes().items() if "fairway.serving.predict" in text and "supervisor" not in text]
    kill(worker)
    ready.until_phase(run, "Succeeded")
    found = predictions(out)
    assert [row for row, _ in found] == list(range(1_000))
    assert all(values == [2.0 * row + 1, 2.0 * row + 2] for row, values in found)
    assert ready.get(run)["restarts"] == 1


def test_what_does_not_fit_is_said(ready: DaemonHome) -> None:
    wrong = ready.work / "wrong.csv"
    wrong.write_text("1,2,3\n")
    ended = ready.call("predict", "adds", "--data", str(wrong), "--out", "scored")
    assert ended.returncode == 1
    assert "do not fit the input 'x'" in ended.stdout + ended.stderr
    assert ready.call("predict", "cats", "--data", "rows@1", "--out", "s").returncode == 3
    assert ready.call("predict", "adds", "--out", "s").returncode == 2
