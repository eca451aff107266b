"""The status of a run in a few lines, and the final lines about it."""

from __future__ import annotations

from typing import Any

import pytest

from fairway.cli.terminal.run_status import RunStatusLines, farewell, main_metric, restarted, sparkline


def job(**changes: Any) -> dict[str, Any]:
    return {
        "name": "mnist-7",
        "phase": "Running",
        "started": 100.0,
        "restarts": 0,
        "restarts_max": 3,
        "progress": {},
        "tasks": [],
        **changes,
    }


def test_a_run_that_reports() -> None:
    status = RunStatusLines()
    for step, loss in ((100, 1.0), (200, 0.5), (200, 0.5), (300, 0.1)):
        numbers = {"accuracy": 0.9, "loss": loss}
        progress = {"step": step, "at_step": 2000, "steps_per_second": 14.23, "remaining": 64.0, "time": 1.0, "metrics": numbers}
        status.take(job(progress=progress, restarts=1))
    assert status.lines(180.0) == [
        "mnist-7  Running  1m20s  step 300/2,000  14.2 steps/s  1m4s left  1 of 3 restarts",
        "loss 0.1 █▄▁  accuracy 0.9",
    ]


def test_several_tasks_are_named_and_many_are_counted() -> None:
    status = RunStatusLines()
    tasks = [{"name": f"worker-{index}", "role": "worker", "phase": "Running"} for index in range(2)]
    status.take(job(tasks=tasks))
    assert status.lines(100.0)[1] == "worker-0 Running  worker-1 Running"
    status.take(job(tasks=[{**tasks[0], "phase": "Failed"}, *tasks * 4]))
    assert status.lines(100.0)[1] == "1 worker Failed  8 worker Running"


def test_a_run_that_waits_says_why() -> None:
    status = RunStatusLines()
    status.take(job(phase="Pending", started=None, hold={"message": "all 2 cores are taken", "what_would_help": "stop a-1"}))
    assert status.lines(0.0) == ["mnist-7  Pending", "waits: all 2 cores are taken; stop a-1"]


def test_before_anything_is_known_there_is_nothing_to_say() -> None:
    assert RunStatusLines().lines(0.0) == []


def test_what_a_brief_view_leaves_out_is_remembered() -> None:
    status = RunStatusLines()
    status.take(job(tasks=[{"name": "worker-0"}]))
    status.take({"phase": "Succeeded"})
    assert (status.job["phase"], status.job["tasks"]) == ("Succeeded", [{"name": "worker-0"}])


def test_a_long_curve_is_thinned() -> None:
    status = RunStatusLines()
    for step in range(10_000):
        status.take(job(progress={"step": step, "metrics": {"loss": float(step)}}))
    assert len(status.curve) <= 400
    assert status.curve == sorted(status.curve)


@pytest.mark.parametrize(
    ("values", "drawn"),
    [([], ""), ([1.0], "▁"), ([1.0, 1.0], "▁▁"), ([0.0, 7.0], "▁█"), ([7.0, float("nan"), 0.0], "█×▁"), ([float("inf")], "")],
)
def test_curves(values: list[float], drawn: str) -> None:
    assert sparkline(values, 8) == drawn


def test_a_curve_fits_its_width() -> None:
    assert len(sparkline([float(value) for value in range(1000)], 24)) == 24


@pytest.mark.parametrize(
    ("names", "chosen"),
    [(["accuracy", "loss"], "loss"), (["accuracy", "val_loss"], "val_loss"), (["reward"], "reward"), ([], "")],
)
def test_the_curve_is_that_of_the_loss(names: list[str], chosen: str) -> None:
    assert main_metric(dict.fromkeys(names, 1.0)) == chosen


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (
            {"phase": "Succeeded", "duration": 12.0, "progress": {"step": 2000}, "outputs": {"model": "m"}, "folder": "/h"},
            "mnist-7 succeeded after 12s, at step 2,000; outputs: /h/outputs; logs: fairway logs mnist-7",
        ),
        (
            {"phase": "Failed", "duration": 3.0, "outcome": {"message": "worker-1 exited with 1"}},
            "mnist-7 failed after 3s: worker-1 exited with 1; logs: fairway logs mnist-7; next: fairway why mnist-7",
        ),
        ({"phase": "Stopped"}, "mnist-7 was stopped; logs: fairway logs mnist-7; to continue: fairway resume mnist-7"),
        ({"phase": "Running"}, "mnist-7 is Running; logs: fairway logs mnist-7"),
    ],
)
def test_the_last_words(changes: dict[str, Any], said: str) -> None:
    assert farewell(job(**changes)) == said


def test_a_restart_is_told_once_with_its_cause_and_from_where_it_went_on() -> None:
    failed = {"outcome": {"message": "worker-0 exited with 1: ValueError: bad label"}, "resume": "resumed from step 90"}
    after = job(attempt=1, restarts=1, **failed)
    assert restarted(job(attempt=0), after) == (
        "fairway: mnist-7 starts again, attempt 2; worker-0 exited with 1: ValueError: bad label; resumed from step 90; "
        "1 of 3 restarts used"
    )
    assert restarted(after, after) == ""
    assert restarted({}, after) == "", "who comes later is told by the status"


def test_a_task_that_starts_again_alone_is_told_too() -> None:
    before, after = (job(attempt=0, tasks=[{"name": "worker-0", "attempt": number}]) for number in (0, 1))
    assert restarted(before, after) == "fairway: mnist-7 starts again, attempt 2"
