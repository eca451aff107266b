"""Samples: the right fraction, complete files, limited in size, and without delaying requests."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np
from small_models import served, signature

from fairway.serving.replica.telemetry.replica_metrics import ReplicaMetrics
from fairway.serving.replica.telemetry.request_sampler import RequestSampler, SampleLimits

MODEL = served(signature(x=("FP32", [-1, 2]), t=("BYTES", [-1]), out_y=("FP32", [-1])))


def sampler(folder: Path, rate: float, **limits: Any) -> tuple[RequestSampler, ReplicaMetrics]:
    metrics, clock = ReplicaMetrics(), itertools.count(1000)
    return RequestSampler(folder, rate, MODEL, metrics, lambda: float(next(clock)), SampleLimits(**limits)), metrics


def see(keeper: RequestSampler, value: float) -> None:
    keeper.see([np.full((1, 2), value, np.float32), np.array([b"\xff"], object)], [np.array([value], np.float32)])


def test_every_fourth_request_is_kept_with_its_answer(tmp_path: Path) -> None:
    keeper, metrics = sampler(tmp_path / "made", 0.25)
    for value in range(16):
        see(keeper, float(value))
    keeper.close()
    (path,) = (tmp_path / "made").iterdir()
    assert path.suffix == ".jsonl"
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [line["outputs"][0]["data"] for line in lines] == [[3.0], [7.0], [11.0], [15.0]]
    assert lines[0]["inputs"] == [
        {"name": "x", "datatype": "FP32", "shape": [1, 2], "data": [3.0, 3.0]},
        {"name": "t", "datatype": "BYTES", "shape": [1], "data": [{"b64": "/w=="}]},
    ]
    assert (lines[0]["model"], lines[0]["version"], lines[0]["time"]) == ("m", "7", 1000.0)
    assert (metrics.sampled, metrics.samples_dropped) == (4, 0)


def test_files_turn_over_and_the_oldest_go(tmp_path: Path) -> None:
    keeper, metrics = sampler(tmp_path, 1.0, file_size=500, total_size=1500)
    for value in range(30):
        while metrics.sampled < value:
            pass
        see(keeper, float(value))
    keeper.close()
    files = sorted(tmp_path.iterdir())
    assert all(path.suffix == ".jsonl" for path in files)
    assert sum(path.stat().st_size for path in files) <= 1500
    last = json.loads(files[-1].read_text().splitlines()[-1])
    assert last["outputs"][0]["data"] == [29.0]


def test_a_folder_that_cannot_be_written_costs_samples_alone(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    keeper, metrics = sampler(tmp_path / "file" / "folder", 1.0)
    see(keeper, 1.0)
    keeper.close()
    assert (metrics.sampled, metrics.samples_dropped) == (0, 1)


def test_what_is_too_large_is_dropped(tmp_path: Path) -> None:
    keeper, metrics = sampler(tmp_path, 1.0)
    keeper.see([np.zeros((1 << 19, 2), np.float32), np.array([b""], object)], [np.zeros(1, np.float32)])
    keeper.close()
    assert (metrics.sampled, metrics.samples_dropped, list(tmp_path.iterdir())) == (0, 1, [])
