"""A run as data for programs."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest

from fairway.state.job import JobState
from fairway.state.metric import summarise
from fairway.state.phase import JobPhase
from fairway.state.task import Task, TaskKey
from fairway.testing.builder.job_builder import a_job, a_role, a_task
from fairway.views.job import job_view, split_attempts
from fairway.views.job_document import MASK, flat_spec, looks_secret
from fairway.views.job_page import detail_text
from fairway.views.text.output_format import to_json, to_yaml


def _names(tasks: list[Task]) -> list[str]:
    return [f"{task.key.task}#{task.key.attempt}" for task in tasks]


def test_the_newest_attempt_of_each_task_is_current() -> None:
    job = a_job(replicas=2)
    tasks = [a_task(job, 0), a_task(job, 1), a_task(job, 1, attempt=1)]
    current, earlier = split_attempts(job, tasks)
    assert (_names(current), _names(earlier)) == (["worker-0#0", "worker-1#1"], ["worker-1#0"])


def test_a_smaller_gang_leaves_the_others_in_the_past() -> None:
    job = a_job(replicas=2, attempt=1)
    tasks = [a_task(job, 0, attempt=0), a_task(job, 1, attempt=0), a_task(job, 0, attempt=1)]
    current, earlier = split_attempts(job, tasks)
    assert (_names(current), _names(earlier)) == (["worker-0#1"], ["worker-0#0", "worker-1#0"])


def test_before_the_new_attempt_is_made_the_old_one_is_shown() -> None:
    job = a_job(attempt=1)
    current, earlier = split_attempts(job, [a_task(job, 0, attempt=0)])
    assert (_names(current), earlier) == (["worker-0#0"], [])


def test_tasks_come_in_the_order_of_the_document() -> None:
    job = a_job(roles={"worker": a_role(["a"], 11), "chief": a_role(["b"])})
    keys = [TaskKey("default", "mnist-1", role, index, 0) for role, index in [("chief", 0), ("worker", 10), ("worker", 2)]]
    current, _ = split_attempts(job, [Task(key) for key in keys])
    assert _names(current) == ["worker-2#0", "worker-10#0", "chief-0#0"]


def test_a_run_on_the_wire(running: JobState, running_tasks: list[Task], now: float) -> None:
    view = msgspec.json.decode(to_json(job_view(running, running_tasks, now, folder="/f")))
    expected = {
        "name": "mnist-7", "namespace": "default", "series": "mnist", "number": 7, "phase": "Running", "framework": "pytorch",
        "ready": 2, "replicas": 2, "gpus": 2.0, "priority": 10, "queue": "research", "user": "ana", "duration": 300.0,
        "attempt": 0, "restarts": 0,
        "restarts_max": 3, "hold": None, "outcome": None, "resume": "", "nodes": ["here"], "folder": "/f",
        "outputs": {"model": "mnist"}, "warnings": [], "position": 0, "finished": None,
    }  # fmt: skip
    assert {name: view[name] for name in expected} == expected
    assert view["roles"] == {
        "worker": {"replicas": 2, "min": 2, "max": 2, "command": "python train.py --epochs 3", "resources": {}}
    }
    assert view["progress"]["at_step"] == 2000
    assert view["progress"]["remaining"] == pytest.approx(800 / 4.1 - 2)
    assert view["tasks"][1]["name"] == "worker-1"
    assert view["spec"]["command"] == "python train.py --epochs 3"
    assert view["spec"]["name"] == "mnist"


def test_a_line_of_a_list_is_short(running: JobState, now: float) -> None:
    view = msgspec.json.decode(to_json(job_view(running, [], now, tasks_too=False, spec_too=False)))
    assert {"tasks", "earlier", "spec"}.isdisjoint(view)
    assert (view["ready"], view["replicas"]) == (0, 2)


def test_a_failed_task_shows_its_last_lines(failed: JobState, failed_tasks: list[Task], now: float) -> None:
    view = job_view(failed, failed_tasks, now)
    assert isinstance(view.tasks, tuple)
    assert isinstance(view.earlier, tuple)
    assert view.tasks[0].tail == ""
    assert "ValueError" in view.tasks[1].tail
    assert view.tasks[1].exit_code == 1
    assert view.earlier[1].tail == "the first time"


def test_metrics_that_are_no_numbers_are_null(running: JobState, now: float) -> None:
    sick = replace(running, progress=replace(running.progress, metrics={"loss": float("nan"), "lr": 0.1}))
    assert msgspec.json.decode(to_json(job_view(sick, [], now)))["progress"]["metrics"] == {"loss": None, "lr": 0.1}


def test_secrets_are_masked() -> None:
    job = a_job(
        env={"HF_TOKEN": "hf_abc", "BATCH": "64"},
        roles={"worker": a_role(["a"]).model_copy(update={"env": {"DB_PASSWORD": "x", "A": "b"}})},
    )
    shown = flat_spec(job)
    assert shown["env"] == {"HF_TOKEN": MASK, "BATCH": "64"}
    assert shown["roles"]["worker"]["env"] == {"DB_PASSWORD": MASK, "A": "b"}
    assert "hf_abc" not in to_yaml(job_view(job, [], 0.0))
    assert job.spec.env["HF_TOKEN"] == "hf_abc"


@pytest.mark.parametrize(
    "name", ["HF_TOKEN", "AWS_SECRET_ACCESS_KEY", "password", "API_KEY", "GOOGLE_APPLICATION_CREDENTIALS", "WANDB_API_KEY"]
)
def test_secret_names(name: str) -> None:
    assert looks_secret(name)


@pytest.mark.parametrize("name", ["BATCH", "TOKENIZERS_PARALLELISM", "MAX_TOKENS", "KEYBOARD", "SORT_KEY", "SECRETARY"])
def test_plain_names(name: str) -> None:
    assert not looks_secret(name)


def test_more_memory_after_the_first_time_is_told(running: JobState, now: float) -> None:
    view = job_view(replace(running, memory_factor=1.5), [], now)
    assert view.warnings == ("it ran out of memory, and now requests 1.5 times as much as the document says",)


def test_a_long_run_without_a_checkpoint_is_told(running: JobState, now: float) -> None:
    unsaved = replace(running, started=now - 3600, progress=replace(running.progress, checkpoint_step=None))
    assert job_view(unsaved, [], now).warnings == ("no checkpoint in 1h: a restart would begin at 0",)
    assert job_view(replace(unsaved, phase=JobPhase.SUCCEEDED), [], now).warnings == ()
    assert job_view(replace(unsaved, started=now - 60), [], now).warnings == ()


def test_yaml_is_for_people(failed: JobState, failed_tasks: list[Task], now: float) -> None:
    text = to_yaml(job_view(failed, failed_tasks, now))
    assert text.startswith("name: mnist-7\nnamespace: default\nseries: mnist\n")
    assert "  tail: the first time\n" in text
    assert to_yaml({"tail": "one\ntwo\n", "phase": JobPhase.FAILED}) == "tail: |\n  one\n  two\nphase: Failed\n"


def test_workers_of_one_launcher_are_one_task_with_processes() -> None:
    job = a_job(replicas=3, framework="mpi")
    before = job_view(job, [], 0.0)
    assert (before.replicas, before.processes) == (1, 3)
    after = job_view(job, [replace(a_task(job, 0), slots=3)], 0.0)
    assert (after.replicas, after.processes) == (1, 3)
    two = job_view(a_job(replicas=2), [], 0.0)
    assert (two.replicas, two.processes) == (2, 2)


def test_the_last_and_the_best_value_of_each_metric(running: JobState, now: float) -> None:
    values = [(10, 0.9), (20, 0.3), (30, 0.5), (0, 0.7)]
    summaries = summarise({}, 0, [(float(time), step, {"loss": y, "gap": y}) for time, (step, y) in enumerate(values)])
    metrics = {"loss": 0.7, "gap": 0.7, "accuracy": 0.923}
    job = replace(running, progress=replace(running.progress, metrics=metrics, summaries=summaries))
    progress = msgspec.json.decode(to_json(job_view(job, [], now)))["progress"]
    assert progress["metrics"] == {"loss": 0.5, "gap": 0.5, "accuracy": 0.923}
    both = {"last": 0.5, "last_step": 30, "min": 0.3, "max": 0.9}
    assert progress["summary"] == {
        "loss": {**both, "goal": "min", "best": 0.3, "best_step": 20},
        "gap": {**both, "goal": "", "best": None, "best_step": None},
    }
    text = detail_text(job_view(job, [], now), [], now)
    assert "loss        0.5   best 0.3 at step 20\n" in text
    assert "gap         0.5   min 0.3, max 0.9\n" in text
    assert "accuracy  0.923\n" in text
