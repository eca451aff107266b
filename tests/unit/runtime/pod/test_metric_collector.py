"""Metrics of a task where it runs: reports, event files, printed lines; the best available source is used."""

from __future__ import annotations

import json
import shutil
import socket
from pathlib import Path

import pytest

from fairway.runtime import task_contract
from fairway.runtime.pod import metric_collector as measuring_module
from fairway.runtime.pod.metric_collector import LONGEST, MOST, MetricCollector, OutputMetrics

RECORDED = Path(__file__).parents[1] / "fixtures" / "tensorboard" / "simple-scalars.tfevents"
PATTERN = r"step (?P<step>\d+) loss (?P<loss>[\d.]+)"


def report(folder: Path, step: int) -> None:
    with (folder / task_contract.METRICS_FILE.format(local_rank=0)).open("a") as file:
        file.write(json.dumps({"time": float(step), "step": step, "metrics": {"loss": 0.5}}) + "\n")


def test_lines_are_heard_in_pieces_of_any_size_and_by_process() -> None:
    printed = OutputMetrics(PATTERN)
    printed.hear(0, b"step 1 lo")
    printed.hear(1, b"step 7 loss 0.7\n")
    printed.hear(0, b"ss 0.5\nstep 2 loss 0.25\rstep 3 loss")
    found = [(point["rank"], point["step"], point["metrics"], point["source"]) for point in printed.new_points()]
    assert found == [(1, 7, {"loss": 0.7}, "log"), (0, 1, {"loss": 0.5}, "log"), (0, 2, {"loss": 0.25}, "log")]
    assert printed.new_points() == []


def test_what_has_no_end_takes_no_memory() -> None:
    printed = OutputMetrics(PATTERN)
    for _ in range(100):
        printed.hear(0, b"x" * LONGEST)
    assert len(printed._begun[0]) == LONGEST
    printed.hear(0, b"\n" + b"step 1 loss 1\n" * (MOST + 5))
    assert len(printed.new_points()) == MOST


def test_an_expression_that_could_take_forever_is_not_tried_and_said(capsys: pytest.CaptureFixture[str]) -> None:
    printed = OutputMetrics("(a+)+b")
    printed.hear(0, b"a" * 60 + b"\n")
    assert printed.new_points() == []
    assert "metrics.pattern is ignored" in capsys.readouterr().err


def test_event_files_of_this_pod_are_read_and_those_of_others_are_not(tmp_path: Path) -> None:
    events = tmp_path / "tensorboard"
    (events / "validation").mkdir(parents=True)
    measuring = MetricCollector(str(tmp_path), 1, str(events))
    shutil.copyfile(RECORDED, events / f"events.out.tfevents.1.{socket.gethostname()}.7.0")
    shutil.copyfile(RECORDED, events / "validation" / f"events.out.tfevents.2.{socket.gethostname()}.7.1")
    shutil.copyfile(RECORDED, events / "events.out.tfevents.1.another-pod.7.0")
    points = measuring.new_points()
    names = {name for point in points for name in point["metrics"]}
    own = {name for name in names if not name.startswith("validation/")}
    assert own
    assert {f"validation/{name}" for name in own} == names - own
    assert {point["source"] for point in points} == {"tensorboard"}
    assert measuring.new_points() == []


def test_a_better_source_silences_the_lesser_ones(tmp_path: Path) -> None:
    printed = OutputMetrics(PATTERN)
    measuring = MetricCollector(str(tmp_path), 1, "", printed)
    printed.hear(0, b"step 1 loss 0.5\n")
    assert [point["source"] for point in measuring.new_points()] == ["log"]
    report(tmp_path, 2)
    printed.hear(0, b"step 2 loss 0.5\n")
    assert [point["source"] for point in measuring.new_points()] == ["report"]
    printed.hear(0, b"step 3 loss 0.5\n")
    assert measuring.new_points() == []


def test_usual_lines_and_files_are_read_where_nothing_is_said(tmp_path: Path) -> None:
    printed = OutputMetrics()
    work = tmp_path / "code"
    table = work / "lightning_logs" / "version_0" / "metrics.csv"
    table.parent.mkdir(parents=True)
    measuring = MetricCollector(str(tmp_path), 2, "", printed, str(work), ["accuracy"])
    printed.hear(1, b"step 3 loss=0.5 accuracy=0.9\nsome text 1.2.3\nstep 4 lo")
    table.write_text("step,val_loss\n3,0.75\n")
    found = [(point["rank"], point["step"], point["metrics"], point["source"]) for point in measuring.new_points()]
    assert found == [(0, 3, {"val_loss": 0.75}, "auto"), (1, 3, {"loss": 0.5}, "auto")]
    report(tmp_path, 5)
    printed.hear(1, b"ss=0.25\n")
    assert [point["source"] for point in measuring.new_points()] == ["report"]
    printed.hear(1, b"step 6 loss=0.25\n")
    assert measuring.new_points() == []


def test_a_flood_is_not_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measuring_module, "HEARD", 1000)
    monkeypatch.setattr("time.monotonic", lambda: 5.0)
    printed = OutputMetrics()
    printed.hear(0, b"step 1 loss=0.5\n")
    printed.hear(0, b"step 2 loss=0.5\n" * 1000 + b"step 2 val_")
    monkeypatch.setattr("time.monotonic", lambda: 7.0)
    printed.hear(0, b"loss=0.7\nstep 3 loss=0.5\n")
    assert [point["step"] for point in printed.new_points()] == [1, 3]
