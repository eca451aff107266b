"""Metrics in the files that frameworks write by themselves."""

from __future__ import annotations

import json
import os
import shutil
import time
from pathlib import Path

import pytest

from fairway.runtime.metric_detection.metric_file import MetricFiles
from fairway.runtime.metric_detection.metric_source import EVENTS, LINES, STATE, TABLE, MetricSourceChoice

RECORDED = Path(__file__).parents[1] / "fixtures" / "tensorboard" / "simple-scalars.tfevents"


def told(files: MetricFiles) -> list[tuple[str, int | None, dict[str, float]]]:
    return [(kind, step, values) for kind, (_, step, values) in files.new_points()]


@pytest.mark.parametrize("place", ["runs", "runs/a/b", "logs/fit", "lightning_logs/version_0", "tb_logs", "out/runs/x"])
def test_event_files_in_the_usual_places(tmp_path: Path, place: str) -> None:
    files = MetricFiles(tmp_path, time.time())
    assert told(files) == []
    (tmp_path / place).mkdir(parents=True)
    shutil.copyfile(RECORDED, tmp_path / place / "events.out.tfevents.1.host.7.0")
    found = told(files)
    assert found
    assert {kind for kind, _, _ in found} == {EVENTS}
    assert told(files) == []


@pytest.mark.parametrize("place", ["other", "a/b/runs", ".cache/runs", "data"])
def test_event_files_elsewhere_are_of_others(tmp_path: Path, place: str) -> None:
    (tmp_path / place).mkdir(parents=True)
    shutil.copyfile(RECORDED, tmp_path / place / "events.out.tfevents.1.host.7.0")
    assert told(MetricFiles(tmp_path, 0.0)) == []


def test_files_from_before_the_run_are_of_others(tmp_path: Path) -> None:
    (tmp_path / "runs").mkdir()
    (tmp_path / "lightning_logs" / "version_0").mkdir(parents=True)
    (tmp_path / "out" / "checkpoint-5").mkdir(parents=True)
    olds = [tmp_path / "runs" / "events.out.tfevents.1.host.7.0", tmp_path / "lightning_logs" / "version_0" / "metrics.csv"]
    olds += [tmp_path / "out" / "checkpoint-5" / "trainer_state.json"]
    shutil.copyfile(RECORDED, olds[0])
    olds[1].write_text("step,loss\n1,0.5\n")
    olds[2].write_text(json.dumps({"log_history": [{"step": 1, "loss": 0.5}]}))
    for old in olds:
        os.utime(old, (1000.0, 1000.0))
    assert told(MetricFiles(tmp_path, 2000.0)) == []
    assert told(MetricFiles(tmp_path, 900.0))


def test_event_files_of_other_hosts_are_of_others(tmp_path: Path) -> None:
    (tmp_path / "runs").mkdir()
    shutil.copyfile(RECORDED, tmp_path / "runs" / "events.out.tfevents.1.other.7.0")
    assert told(MetricFiles(tmp_path, 0.0, host="mine")) == []
    assert told(MetricFiles(tmp_path, 0.0, host="other"))


def test_a_table_is_read_row_by_row_and_may_get_columns(tmp_path: Path) -> None:
    table = tmp_path / "lightning_logs" / "version_0" / "metrics.csv"
    table.parent.mkdir(parents=True)
    files = MetricFiles(tmp_path, 0.0)
    table.write_text("epoch,step,train_loss\n0,9,0.5\n0,19,0.4\n1,2")
    assert told(files) == [(TABLE, 9, {"train_loss": 0.5}), (TABLE, 19, {"train_loss": 0.4})]
    table.write_text("epoch,step,train_loss,val_loss\n0,9,0.5,\n0,19,0.4,\n1,29,,0.3\n1,39,nan,\n")
    found = told(files)
    assert found[0] == (TABLE, 29, {"val_loss": 0.3})
    assert [step for _, step, _ in found] == [29, 39]
    assert files.positions() == {table: 4}
    again = MetricFiles(tmp_path, 0.0, lambda path: 4 if path == table else 0)
    assert told(again) == []


def test_a_state_of_a_trainer_tells_what_the_one_before_did_not(tmp_path: Path) -> None:
    files = MetricFiles(tmp_path, 0.0)
    first, second = (tmp_path / "out" / f"checkpoint-{number}" for number in (10, 20))
    history = [{"step": 10, "epoch": 0.5, "loss": 0.5}, {"step": 10, "epoch": 0.5, "eval_loss": 0.6, "eval_runtime": 3.0}]
    first.mkdir(parents=True)
    assert told(files) == []
    (first / "trainer_state.json").write_text(json.dumps({"log_history": history}))
    assert told(files) == [(STATE, 10, {"loss": 0.5}), (STATE, 10, {"eval_loss": 0.6})]
    second.mkdir()
    (second / "trainer_state.json").write_text(json.dumps({"log_history": [*history, {"step": 20, "loss": 0.4}]}))
    assert told(files) == [(STATE, 20, {"loss": 0.4})]


@pytest.mark.parametrize("content", ["", "[]", "{", '{"log_history": 5}', '{"log_history": [1, null, {"loss": "x"}]}'])
def test_a_damaged_state_tells_nothing(tmp_path: Path, content: str) -> None:
    folder = tmp_path / "out" / "checkpoint-1"
    folder.mkdir(parents=True)
    (folder / "trainer_state.json").write_text(content)
    assert told(MetricFiles(tmp_path, 0.0)) == []


def test_pipes_and_links_hold_nothing_up(tmp_path: Path) -> None:
    (tmp_path / "lightning_logs" / "version_0").mkdir(parents=True)
    os.mkfifo(tmp_path / "lightning_logs" / "version_0" / "metrics.csv")
    os.symlink("/", tmp_path / "runs")
    (tmp_path / "out" / "checkpoint-1").mkdir(parents=True)
    os.mkfifo(tmp_path / "out" / "checkpoint-1" / "trainer_state.json")
    assert told(MetricFiles(tmp_path, 0.0)) == []


def test_one_metric_has_one_source() -> None:
    sources = MetricSourceChoice()
    assert sources.kept(LINES, None, {"loss": 0.5, "acc": 0.1}) == (None, {"loss": 0.5, "acc": 0.1})
    assert sources.kept(EVENTS, 3, {"train/loss": 0.5}) == (3, {"train/loss": 0.5})
    assert sources.kept(LINES, 4, {"loss": 0.4, "acc": 0.2}) == (4, {"acc": 0.2})
    assert sources.kept(STATE, 4, {"acc": 0.2, "f1": 0.3}) == (4, {"f1": 0.3})


def test_what_a_stop_condition_asks_for_is_not_detected() -> None:
    assert MetricSourceChoice(["accuracy", "step"]).kept(LINES, 4, {"accuracy": 0.4, "loss": 0.2}) == (None, {"loss": 0.2})
