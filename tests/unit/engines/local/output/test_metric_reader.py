"""Reading metrics of runs from the files that they write."""

from __future__ import annotations

import json
import math
import os
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fairway.app.port.port import MetricPoint, Observation
from fairway.engines.local.home import EngineHome
from fairway.engines.local.output import metric_detection, metric_reader
from fairway.engines.local.output.metric_reader import MEMORY_FILE, MetricReader
from fairway.spec.job import CodeSource, JobSpec, MetricSource, StopPolicy, TaskRole, TensorBoardSource
from fairway.state.job import JobKey, JobState, SubmissionOrigin

RECORDED = Path(__file__).parents[3] / "runtime" / "fixtures" / "tensorboard"


class Run:
    """One run and its folder."""

    def __init__(self, home: Path, **spec: Any) -> None:
        self.home = EngineHome(home)
        origin = SubmissionOrigin(folder=str(home / "source"))
        self.job = JobState(
            JobKey("default", "mnist-1"),
            "mnist",
            1,
            JobSpec(roles={"worker": TaskRole(command=("python",))}, **spec),
            origin=origin,
        )
        self.folder = self.home.make_shared_parts(self.job.key)
        self.meter = MetricReader(self.home)

    def attempt(self, name: str) -> Path:
        folder = self.folder / "attempts" / name
        folder.mkdir(exist_ok=True)
        return folder

    def report(self, text: str, name: str = "worker-0-0", rank: int = 0) -> None:
        with (self.attempt(name) / f"metrics-{rank}.jsonl").open("a") as file:
            file.write(text)

    def print(self, text: str, name: str = "worker-0-0") -> None:
        with (self.attempt(name) / "out-0.log").open("a") as file:
            file.write(text)

    def measure(self) -> Observation | None:
        observations = self.meter.measure([self.job])
        return observations[0] if observations else None

    def points(self) -> tuple[MetricPoint, ...]:
        observation = self.measure()
        return observation.points if observation else ()


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run(tmp_path)


def line(time: float, step: int | None = None, **metrics: float | str) -> str:
    return json.dumps({"time": time, "step": step, "metrics": metrics}) + "\n"


def test_nothing_to_measure(run: Run) -> None:
    assert run.meter.measure([run.job]) == []


def test_a_run_without_a_folder_has_nothing(tmp_path: Path, run: Run) -> None:
    shutil.rmtree(run.folder)
    assert run.meter.measure([run.job]) == []
    assert not run.folder.exists()


def test_reports_are_handed_over_once(run: Run) -> None:
    run.report(line(1.0, 1, loss=0.5))
    assert run.points() == (MetricPoint(1.0, 1, {"loss": 0.5}, "worker-0", "report"),)
    assert run.points() == ()
    run.report(line(2.0, 2, loss=0.25))
    assert run.points() == (MetricPoint(2.0, 2, {"loss": 0.25}, "worker-0", "report"),)


def test_a_line_half_written_is_taken_when_it_is_whole(run: Run) -> None:
    whole = line(1.0, 1, loss=0.5)
    run.report(whole[:10])
    assert run.points() == ()
    run.report(whole[10:])
    assert [point.step for point in run.points()] == [1]


@pytest.mark.parametrize("torn", ["{\n", "[]\n", "\0\0\n", '{"time": "x"}\n', "\n"])
def test_lines_that_are_no_reports_are_passed_over(run: Run, torn: str) -> None:
    run.report(torn + line(1.0, 1, loss=0.5))
    assert [point.step for point in run.points()] == [1]


def test_processes_and_attempts_are_told_apart_and_come_in_order_of_time(run: Run) -> None:
    run.report(line(3.0, 3), "worker-1-0")
    run.report(line(2.0, 2), "worker-0-1", rank=1)
    run.report(line(1.0, 1), "worker-0-0")
    assert [(point.task, point.step) for point in run.points()] == [("worker-0", 1), ("worker-0.1", 2), ("worker-1", 3)]


def test_a_new_daemon_goes_on_where_the_old_one_was(run: Run) -> None:
    run.report(line(1.0, 1))
    run.points()
    run.report(line(2.0, 2))
    # The second call confirms that the points of the first are stored.
    assert [point.step for point in run.points()] == [2]
    run.meter.close()
    run.report(line(3.0, 3))
    run.meter = MetricReader(run.home)
    assert [point.step for point in run.points()] == [3]


def test_after_a_crash_only_the_last_call_comes_again(run: Run) -> None:
    run.report(line(1.0, 1))
    run.points()
    run.report(line(2.0, 2))
    run.points()
    run.meter = MetricReader(run.home)
    assert [point.step for point in run.points()] == [2]


@pytest.mark.parametrize("memory", ["", "[]", '{"best": 0}', '{"best": "x", "offsets": {}}', "\0"])
def test_a_damaged_memory_is_as_none(run: Run, memory: str) -> None:
    (run.folder / MEMORY_FILE).write_text(memory)
    run.report(line(1.0, 1))
    assert [point.step for point in run.points()] == [1]


def test_event_files_give_points_a_step(run: Run) -> None:
    shutil.copy(RECORDED / "simple-scalars.tfevents", run.folder / "tensorboard" / "events.out.tfevents.1")
    points = run.points()
    assert [(point.step, point.source, point.task) for point in points] == [(step, "tensorboard", "") for step in range(5)]
    assert points[1].metrics == {"loss": 0.5, "train/accuracy": 0.125}
    assert run.points() == ()


def test_an_event_file_that_grows_byte_by_byte(run: Run) -> None:
    content = (RECORDED / "tensor-scalars.tfevents").read_bytes()
    path = run.folder / "tensorboard" / "worker-0" / "x.tfevents.1"
    path.parent.mkdir()
    metric_points: list[MetricPoint] = []
    with path.open("ab", buffering=0) as file:
        for at in range(0, len(content), 13):
            file.write(content[at : at + 13])
            metric_points += run.points()
    assert [(point.step, name) for point in metric_points for name in point.metrics] == [
        (step, name) for step in range(3) for name in ("epoch_loss", "lr")
    ]


def test_runs_that_say_what_was_measured_are_part_of_the_name(run: Run) -> None:
    for name in ("train", "validation", "version_0"):
        (run.folder / "tensorboard" / name).mkdir()
        shutil.copy(RECORDED / "tensor-scalars.tfevents", run.folder / "tensorboard" / name / "a.tfevents")
    names = {name for point in run.points() for name in point.metrics if "loss" in name}
    assert names == {"train/epoch_loss", "validation/epoch_loss", "epoch_loss"}


def test_event_files_of_a_task_are_its_own(run: Run) -> None:
    run.attempt("worker-1-0")
    (run.folder / "tensorboard" / "worker-1").mkdir()
    shutil.copy(RECORDED / "tensor-scalars.tfevents", run.folder / "tensorboard" / "worker-1" / "a.tfevents")
    assert {point.task for point in run.points()} == {"worker-1"}


def test_a_damaged_event_file_gives_what_comes_before(run: Run) -> None:
    content = bytearray((RECORDED / "tensor-scalars.tfevents").read_bytes())
    content[212] ^= 1
    (run.folder / "tensorboard" / "a.tfevents").write_bytes(content)
    assert [point.step for point in run.points()] == [0]
    assert run.points() == ()


def test_a_folder_named_by_the_document_less_what_older_runs_left(tmp_path: Path) -> None:
    run = Run(tmp_path, tensorboard=TensorBoardSource(dir="runs"), code=CodeSource(in_place=True))
    folder = tmp_path / "source" / "runs"
    folder.mkdir(parents=True)
    for name in ("old", "new"):
        shutil.copyfile(RECORDED / "tensor-scalars.tfevents", folder / f"{name}.tfevents")
    object.__setattr__(run.job, "created", (folder / "new.tfevents").stat().st_mtime)
    os.utime(folder / "old.tfevents", (1.0, 1.0))
    assert len(run.points()) == 3


def test_printed_lines_give_points_where_a_pattern_says_so(tmp_path: Path) -> None:
    run = Run(tmp_path, metrics=MetricSource(pattern=r"step (?P<step>\d+): loss (?P<loss>\S+)(?: acc (?P<acc>\S+))?"))
    run.print("hello\nstep 10: loss 0.5 acc 0.9\nstep 20: loss oops\nstep 30: loss 1e-2\nstep 4")
    points = run.points()
    assert [(point.step, point.metrics, point.source) for point in points] == [
        (10, {"loss": 0.5, "acc": 0.9}, "log"),
        (20, {}, "log"),
        (30, {"loss": 0.01}, "log"),
    ]
    assert all(point.time > 1e9 for point in points)
    run.print("0: loss 0.1\n")
    assert [point.step for point in run.points()] == [40]


def test_printed_lines_have_the_time_of_the_index(tmp_path: Path) -> None:
    run = Run(tmp_path, metrics=MetricSource(pattern=r"loss (?P<loss>\S+)"))
    run.print("loss 1\nloss 2\n")
    (run.attempt("worker-0-0") / "out-0.index").write_text("7 100.0\n14 200.0\n")
    assert [point.time for point in run.points()] == [100.0, 200.0]


def test_a_progress_bar_is_read_piece_by_piece(tmp_path: Path) -> None:
    run = Run(tmp_path, metrics=MetricSource(pattern=r"loss=(?P<loss>[\d.]+)"))
    run.print("\rloss=1.0\rloss=0.5\rlo")
    assert [point.metrics["loss"] for point in run.points()] == [1.0, 0.5]
    run.print("ss=0.25\n")
    assert [point.metrics["loss"] for point in run.points()] == [0.25]


def test_a_better_source_silences_the_lesser_ones(tmp_path: Path) -> None:
    run = Run(tmp_path, metrics=MetricSource(pattern=r"loss (?P<loss>\S+)"))
    run.print("loss 1\n")
    assert {point.source for point in run.points()} == {"log"}
    shutil.copy(RECORDED / "tensor-scalars.tfevents", run.folder / "tensorboard" / "a.tfevents")
    run.print("loss 2\n")
    assert {point.source for point in run.points()} == {"tensorboard"}
    run.report(line(1.0, 1))
    shutil.copy(RECORDED / "tensor-scalars.tfevents", run.folder / "tensorboard" / "b.tfevents")
    assert {point.source for point in run.points()} == {"report"}
    run.print("loss 3\n")
    assert run.points() == ()


def checkpoint(run: Run, step: int, sequence: int) -> None:
    folder = run.folder / "checkpoints" / f"step-{step:012d}"
    folder.mkdir()
    manifest = {"step": step, "sequence": sequence, "world_size": 1, "meta": {}, "files": {}}
    (folder / "manifest.json").write_text(json.dumps(manifest))


def test_the_newest_finished_checkpoint_is_told_once(run: Run) -> None:
    checkpoint(run, 100, 1)
    (run.folder / "checkpoints" / "step-000000000300").mkdir()
    observation = run.measure()
    assert observation is not None
    assert observation.checkpoint_step == 100
    assert observation.checkpoint_time is not None
    assert run.measure() is None
    checkpoint(run, 200, 2)
    observation = run.measure()
    assert observation is not None
    assert observation.checkpoint_step == 200


def test_the_checkpoint_saved_last_counts_whatever_its_step(run: Run) -> None:
    checkpoint(run, 500, 1)
    checkpoint(run, 20, 2)
    observation = run.measure()
    assert observation is not None
    assert observation.checkpoint_step == 20


def test_a_forgotten_run_leaves_nothing_behind(run: Run) -> None:
    run.report(line(1.0, 1))
    run.points()
    run.meter.forget(run.job.key)
    shutil.rmtree(run.folder)
    run.meter.close()
    assert not run.folder.exists()


def test_looking_where_nothing_changed_reads_nothing(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    for index in range(20):
        run.report(line(1.0, 1), f"worker-{index}-0")
    past = 1_000_000_000
    for folder in [
        *(run.folder / "attempts").iterdir(),
        run.folder / "attempts",
        run.folder / "tensorboard",
        run.folder / "checkpoints",
    ]:
        os.utime(folder, (past, past))
    run.points()
    run.points()
    opened: list[str] = []
    monkeypatch.setattr(os, "open", lambda path, *_: opened.append(str(path)))
    monkeypatch.setattr(os, "listdir", lambda path: opened.append(str(path)))
    monkeypatch.setattr(os, "scandir", lambda path: opened.append(str(path)))
    assert run.points() == ()
    assert opened == []


def test_what_is_refused_is_named_once_a_kind_and_the_rest_counts(run: Run) -> None:
    run.report(line(1.0, 2**63, loss=0.5) + line(2.0, 2**64, loss=0.5) + line(3.0, 3, loss=0.25))
    observation = run.measure()
    assert observation is not None
    assert [point.step for point in observation.points] == [3]
    assert observation.refused == (
        "report refused: step 9223372036854775808 is out of range; a step is a whole number from -2**63 to 2**63 - 1 (worker-0)",
    )
    run.report(line(4.0, -(2**70), loss=0.5) + line(5.0, 1, **{"n" * 300: 1.0}))
    observation = run.measure()
    assert observation is not None
    assert observation.points == ()
    assert [reason.partition(";")[0] for reason in observation.refused] == [
        f"report refused: metric {repr('n' * 61)[:60]}… is left out"
    ]


def test_a_new_daemon_does_not_name_it_again(run: Run) -> None:
    run.report(line(1.0, 2**63))
    run.measure()
    run.meter.close()
    run.meter = MetricReader(run.home)
    run.report(line(2.0, 2**63) + line(3.0, 3))
    observation = run.measure()
    assert observation is not None
    assert observation.refused == ()
    assert [point.step for point in observation.points] == [3]


def test_a_printed_step_of_twenty_digits_is_refused(tmp_path: Path) -> None:
    run = Run(tmp_path, metrics=MetricSource(pattern=r"step (?P<step>\S+) loss (?P<loss>\S+)"))
    run.print(
        "step 99999999999999999999 loss 1\nstep 1e30 loss 1\nstep nan loss 2\nstep 9007199254740993 loss 3\nstep 7 loss nan\n"
    )
    observation = run.measure()
    assert observation is not None
    assert [point.step for point in observation.points] == [None, 9007199254740993, 7]
    assert math.isnan(observation.points[-1].metrics["loss"])
    assert [reason.partition(";")[0] for reason in observation.refused] == [
        "printed line refused: step 99999999999999999999 is out of range",
    ]


@pytest.mark.timeout(30)
def test_pipes_folders_and_links_hold_nothing_up(tmp_path: Path) -> None:
    run = Run(tmp_path, metrics=MetricSource(pattern=r"loss (?P<loss>\S+)"))
    attempt = run.attempt("worker-0-0")
    os.mkfifo(attempt / "metrics-0.jsonl")
    (attempt / "metrics-1.jsonl").mkdir()
    (attempt / "metrics-2.jsonl").symlink_to("/dev/zero")
    run.print("loss 1\n")
    os.mkfifo(attempt / "out-0.index")
    os.mkfifo(run.folder / MEMORY_FILE)
    os.mkfifo(run.folder / f".{MEMORY_FILE}")
    os.mkfifo(run.folder / "tensorboard" / "a.tfevents")
    for name in ("step-000000000001", "step-000000000002", "step-000000000003"):
        (run.folder / "checkpoints" / name).mkdir()
    os.mkfifo(run.folder / "checkpoints" / "step-000000000001" / "manifest.json")
    (run.folder / "checkpoints" / "step-000000000002" / "manifest.json").symlink_to("/dev/zero")
    (run.folder / "checkpoints" / "step-000000000003" / "manifest.json").mkdir()
    observation = run.measure()
    assert observation is not None
    assert [point.metrics for point in observation.points] == [{"loss": 1.0}]
    assert {reason.partition(":")[0] for reason in observation.refused} == {
        "report refused",
        "event file refused",
        "checkpoint refused",
    }
    assert run.measure() is None
    run.meter.close()


def test_folders_with_names_that_cannot_be_stored_are_passed_over(run: Run) -> None:
    for name in (b"w\xff-0-0", b"a\nb-0-0", "wörker-0-0".encode(), b"worker-\xd9\xa1-0"):
        folder = os.fsencode(run.folder / "attempts") + b"/" + name
        os.mkdir(folder)
        with open(folder + b"/metrics-0.jsonl", "w") as file:
            file.write(line(1.0, 1))
    run.report(line(1.0, 2))
    assert [point.task for point in run.points()] == ["worker-0"]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("step", 2**63),
        ("step", -1),
        ("step", True),
        ("step", "3"),
        ("step", 1.5),
        ("sequence", 2**70),
        ("files", []),
        ("meta", None),
    ],
)
def test_a_manifest_that_is_wrong_is_refused_and_the_one_before_counts(run: Run, field: str, value: object) -> None:
    checkpoint(run, 100, 1)
    folder = run.folder / "checkpoints" / "step-000000000200"
    folder.mkdir()
    manifest = {"step": 200, "sequence": 2, "world_size": 1, "meta": {}, "files": {}, field: value}
    (folder / "manifest.json").write_text(json.dumps(manifest))
    observation = run.measure()
    assert observation is not None
    assert observation.checkpoint_step == 100
    (reason,) = observation.refused
    assert reason.startswith(f"checkpoint refused: checkpoint step-000000000200 is left out: {field} of its manifest is ")


@pytest.mark.parametrize("content", [b"[" * 100_000, b"\xff\xfe", b"{}", b"null", b" " * (17 << 20)])
def test_a_manifest_that_is_none_is_refused(run: Run, content: bytes) -> None:
    checkpoint(run, 100, 1)
    folder = run.folder / "checkpoints" / "step-000000000200"
    folder.mkdir()
    (folder / "manifest.json").write_bytes(content)
    observation = run.measure()
    assert observation is not None
    assert observation.checkpoint_step == 100
    assert len(observation.refused) == 1


def test_files_of_a_manifest_with_names_that_no_disk_knows_are_missing(run: Run) -> None:
    checkpoint(run, 100, 1)
    for number, name in enumerate(("a\0b", "\ud800", "x" * 5000), start=2):
        folder = run.folder / "checkpoints" / f"step-{number:012d}"
        folder.mkdir()
        manifest = {"step": 200, "sequence": number, "world_size": 1, "meta": {}, "files": {name: {"size": 1}}}
        (folder / "manifest.json").write_text(json.dumps(manifest))
    observation = run.measure()
    assert observation is not None
    assert observation.checkpoint_step == 100


def test_a_run_has_a_bounded_number_of_metrics(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metric_reader, "MOST_METRICS", 10)
    run.report("".join(line(1.0, step, loss=1.0, **{f"n{step}": 1.0}) for step in range(30)))
    observation = run.measure()
    assert observation is not None
    assert len(observation.points) == 30
    assert len({name for point in observation.points for name in point.metrics}) == 10
    assert [reason.partition(";")[2] for reason in observation.refused] == [" a run has at most 10 metrics (worker-0)"]


def test_reports_of_ever_different_metrics_become_few_curves(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metric_reader, "MOST_SETS", 5)
    run.report("".join(line(1.0, step, **{f"n{bit}": 1.0 for bit in range(6) if step >> bit & 1}) for step in range(1, 64)))
    points = run.points()
    assert len({frozenset(point.metrics) for point in points}) <= 5 + 6
    assert sum(len(point.metrics) for point in points) == sum(step.bit_count() for step in range(1, 64))


def test_one_look_takes_a_bounded_part_and_every_file_gets_its_turn(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metric_reader, "LOOK_LIMIT", 1000)
    for index in range(20):
        run.report("".join(line(1.0, step) for step in range(40)), f"worker-{index}-0")
    counts = [len(run.points()) for _ in range(25)]
    assert 0 < max(counts) <= 80
    assert sum(counts) == 20 * 40


def test_a_run_that_cannot_be_read_hides_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = Run(tmp_path)
    other = replace(run.job, key=JobKey("default", "other-1"))
    folder = run.home.make_shared_parts(other.key) / "attempts" / "worker-0-0"
    folder.mkdir()
    (folder / "metrics-0.jsonl").write_text(line(1.0, 7))
    run.report(line(1.0, 1))
    read = metric_reader.AppendedFile.new_lines

    def failing(file: metric_reader.AppendedFile, *rest: Any) -> Any:
        if "mnist-1" in str(file.path):
            message = "boom"
            raise RuntimeError(message)
        return read(file, *rest)

    monkeypatch.setattr(metric_reader.AppendedFile, "new_lines", failing)
    broken, sound = run.meter.measure([run.job, other])
    assert broken.refused == ("report refused: it cannot be read (RuntimeError: boom)",)
    assert [point.step for point in sound.points] == [7]
    assert run.meter.measure([run.job, other]) == []
    monkeypatch.undo()
    assert [point.step for point in run.points()] == [1]


def test_a_run_whose_folder_cannot_be_looked_at_hides_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = Run(tmp_path)
    run.report(line(1.0, 1))
    bad = replace(run.job, key=JobKey("default", "bad-1"))
    monkeypatch.setattr(
        metric_reader, "_tensorboard_folder", lambda folder, job: 1 / 0 if job.key == bad.key else folder / "tensorboard"
    )
    observations = run.meter.measure([bad, run.job])
    assert [observation.key.name for observation in observations] == ["bad-1", "mnist-1"]
    assert "ZeroDivisionError" in observations[0].refused[0]
    assert run.meter.measure([bad]) == []


def test_an_attempt_has_a_bounded_number_of_files(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metric_reader, "MOST_FILES", 3)
    for rank in range(10):
        run.report(line(1.0, rank), rank=rank)
    observation = run.measure()
    assert observation is not None
    assert len(observation.points) == 3
    assert observation.refused == (
        "report refused: metrics-3.jsonl is not read; an attempt has at most 3 such files (worker-0.3)",
    )


def test_usual_lines_are_read_without_any_setting(run: Run) -> None:
    run.print("Epoch 1/2\n3/10 ━━━━ 1s 12ms/step - accuracy: 0.91 - loss: 0.32\nsaved to /tmp/loss=0.5\n")
    (point,) = run.points()
    assert (point.step, point.metrics, point.task, point.source) == (3, {"accuracy": 0.91, "loss": 0.32}, "worker-0", "auto")
    run.print("step 7 lo")
    assert run.points() == ()
    run.print("ss=0.25\n")
    assert [(point.step, point.metrics) for point in run.points()] == [(7, {"loss": 0.25})]


def test_reports_silence_what_is_detected(run: Run) -> None:
    run.print("step 1 loss=0.5\n")
    assert len(run.points()) == 1
    run.report(line(1.0, 1, accuracy=0.5))
    run.print("step 2 loss=0.4\n")
    assert [point.source for point in run.points()] == ["report"]
    run.print("step 3 loss=0.3\n")
    assert run.points() == ()


def test_detection_can_be_turned_off(tmp_path: Path) -> None:
    run = Run(tmp_path, metrics=MetricSource(auto=False))
    run.print("step 1 loss=0.5\n")
    (run.folder / "code" / "runs").mkdir(parents=True)
    shutil.copy(RECORDED / "simple-scalars.tfevents", run.folder / "code" / "runs" / "a.tfevents")
    assert run.points() == ()


def test_an_expression_replaces_the_usual_formats(tmp_path: Path) -> None:
    run = Run(tmp_path, metrics=MetricSource(pattern=r"cost (?P<cost>\S+)"))
    run.print("loss=0.5\ncost 2.5\n")
    assert [(point.metrics, point.source) for point in run.points()] == [({"cost": 2.5}, "log")]


def test_a_stop_condition_is_not_decided_by_what_is_detected(tmp_path: Path) -> None:
    run = Run(tmp_path, stop=StopPolicy(when="accuracy > 0.9", at_step=5))
    run.print("step 9 accuracy=0.95 loss=0.5\n")
    assert [(point.step, point.metrics) for point in run.points()] == [(None, {"loss": 0.5})]


def test_of_a_flood_the_newest_lines_are_read_and_few_points_are_made(run: Run) -> None:
    run.print("x" * 100 + "\n" + "val_loss=0.5\n" * 100_000 + "step 5 loss=0.25\n")
    points = run.points()
    assert 0 < len(points) <= metric_detection.MOST_POINTS
    assert {frozenset(point.metrics) for point in points} == {frozenset({"val_loss"})}
    run.print("step 6 loss=0.25\n")
    assert [point.step for point in run.points()] == [6]


def test_detected_points_are_handed_over_once_across_daemons(run: Run) -> None:
    run.print("step 1 loss=0.5\n")
    table = run.folder / "code" / "lightning_logs" / "version_0" / "metrics.csv"
    table.parent.mkdir(parents=True)
    table.write_text("step,val_loss\n1,0.5\n")
    assert len(run.points()) == 2
    run.meter.close()
    run.meter = MetricReader(run.home)
    assert run.points() == ()
    run.print("step 2 loss=0.5\n")
    table.write_text("step,val_loss\n1,0.5\n2,0.4\n")
    assert sorted(point.step or 0 for point in run.points()) == [2, 2]


def test_files_of_two_runs_in_one_folder_are_not_read(tmp_path: Path) -> None:
    run = Run(tmp_path, code=CodeSource(path=".", in_place=True))
    other = replace(run.job, key=JobKey("default", "mnist-2"), number=2)
    run.home.make_shared_parts(other.key)
    (tmp_path / "source" / "runs").mkdir(parents=True)
    run.meter.measure([run.job, other])
    shutil.copy(RECORDED / "simple-scalars.tfevents", tmp_path / "source" / "runs" / "a.tfevents")
    assert run.meter.measure([run.job, other]) == []
    alone = MetricReader(run.home)
    assert alone.measure([run.job])
