"""Forecasts for a waiting run, in plain sentences."""

from __future__ import annotations

import math
from dataclasses import replace
from textwrap import dedent
from typing import Any

import pytest

from fairway.plan.scheduling.explanation.start_hint import StartHint, StartHintKind
from fairway.plan.scheduling.forecast.duration_estimate import DurationEstimate
from fairway.plan.scheduling.forecast.start_forecast import StartForecast
from fairway.plan.scheduling.gang import GangRole, GangShape, TaskShape
from fairway.plan.scheduling.gang_request import GangRequest
from fairway.plan.scheduling.start_simulation import StartProspect
from fairway.spec.job import JobSpec
from fairway.state.job import JobKey, JobState, WaitReason
from fairway.views.diagnosis.run_explanation import why_view
from fairway.views.diagnosis.start_forecast import change_view, moves_view, start_view, waiting_view
from fairway.views.job_page import why_text

ASKED = GangRequest(JobKey("default", "train-3"), GangShape((GangRole("worker", TaskShape(gpus=4)),)), 0.0)


def run(**role: Any) -> JobState:
    worker = {"command": ["python", "train.py"], "resources": {"gpu": "4"}, **role}
    return JobState(JobKey("default", "train-3"), "train", 3, JobSpec.model_validate({"roles": {"worker": worker}}))


def prospect(low: float, median: float, high: float, **more: Any) -> StartProspect:
    return StartProspect(StartForecast(low, median, high, 0.8, (low, median, high)), 9, **more)


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (prospect(240, 2400, 6600), "in 4m to 1h45m, most likely in about 40m (confidence 80%)"),
        (prospect(0, 20, 40), "within a minute (confidence 80%)"),
        (prospect(10, 300, 900), "within 15m, most likely in about 5m (confidence 80%)"),
        (prospect(3000, 3300, 3700), "in 50m to 1h (confidence 80%)"),
        (prospect(90_000, 200_000, 400_000), "in 1d1h to 4d15h, most likely in about 2d8h (confidence 80%)"),
        (
            prospect(240, 2400, 6600, left_out=3501),
            "in 4m to 1h45m, most likely in about 40m (confidence 80%); not counting 3,501 runs before it, so probably later",
        ),
        (
            prospect(3000, 3300, 3700, guess=True),
            "in 50m to 1h (a guess: the run times of the runs before it are unknown)",
        ),
        (
            StartProspect(None, 9, beyond=True, endless=("web",)),
            "no estimate: service web holds the resources, and a service does not end by itself",
        ),
        (
            StartProspect(None, 9, beyond=True, endless=("chat", "web")),
            "no estimate: services chat and web hold the resources, and services do not end by themselves",
        ),
        (StartProspect(None, 9, horizon=72 * 3600.0, beyond=True), "not within the next 3d, as things stand"),
        (StartProspect(None, 1, at_least=3144.0), "not within the next 52m; a longer forecast took too much time"),
        (StartProspect(None, 0), "no estimate: the forecast took too much time"),
    ],
)
def test_the_earliest_start(found: StartProspect, words: str) -> None:
    assert start_view(found).words == words


def test_the_earliest_start_as_data() -> None:
    view = start_view(prospect(240, 2400, 6600))
    assert (view.low, view.median, view.high, view.confidence, view.plays) == (240, 2400, 6600, 0.8, 9)
    assert start_view(StartProspect(None, 9, horizon=3600.0, beyond=True)).not_before == 3600.0
    assert [start_view(prospect(240, 2400, 6600, guess=guess)).guess for guess in (False, True)] == [False, True]


SUBMIT = "fairway submit --like train-3 {} && fairway stop train-3"


@pytest.mark.parametrize(
    ("change", "words", "flags"),
    [
        (StartHint(StartHintKind.GPUS, ASKED, "worker", "3"), "with 3 GPUs: now", "--gpus 3"),
        (StartHint(StartHintKind.GPUS, ASKED, "worker", "1"), "with 1 GPU: now", "--gpus 1"),
        (StartHint(StartHintKind.TYPE, ASKED, "worker", "T4"), "on GPUs of type T4: now", "--gpus T4:4"),
        (StartHint(StartHintKind.CPU, ASKED, "worker", "1500"), "with 1.5 CPUs: now", "--cpus 1.5"),
        (StartHint(StartHintKind.CPU, ASKED, "worker", "1000"), "with 1 CPU: now", "--cpus 1"),
        (StartHint(StartHintKind.MEMORY, ASKED, "worker", "4096"), "with 4Gi of memory: now", "--memory 4Gi"),
        (StartHint(StartHintKind.MEMORY, ASKED, "worker", "768"), "with 768Mi of memory: now", "--memory 768Mi"),
        (StartHint(StartHintKind.QUEUE, ASKED, value="large"), "in queue large: now", "--queue large"),
        (StartHint(StartHintKind.TIMEOUT, ASKED, value="1500"), "with a timeout of 25m: now", "--timeout 25m"),
        (
            StartHint(StartHintKind.PRIORITY, ASKED, value="10", after=(JobKey("default", "b-1"),)),
            "with priority 10: after b-1 has made room",
            "--priority 10",
        ),
        (
            StartHint(
                StartHintKind.PRIORITY, ASKED, value="10", after=tuple(JobKey("default", f"b-{number}") for number in range(9))
            ),
            "with priority 10: after b-0, b-1, b-2 and 6 more have made room",
            "--priority 10",
        ),
        (StartHint(StartHintKind.PLACEMENT, ASKED, "worker", "apart"), "without `apart` in the placement: now", ""),
    ],
)
def test_a_change_in_words_and_as_a_command(change: StartHint, words: str, flags: str) -> None:
    view = change_view(run(), change)
    assert view is not None
    assert view.words == words
    assert view.command == (SUBMIT.format(flags) if flags else "")


def test_a_gang_of_several_tasks_says_for_each() -> None:
    job = run(replicas={"min": 2, "max": 2})
    view = change_view(job, StartHint(StartHintKind.GPUS, ASKED, "worker", "2"))
    fewer = change_view(job, StartHint(StartHintKind.REPLICAS, ASKED, "worker", "1"))
    assert view is not None
    assert view.words == "with 2 GPUs for each worker: now"
    assert fewer is not None
    assert (fewer.words, fewer.command) == ("with 1 worker: now", SUBMIT.format("--workers 1"))


def test_several_roles_and_another_namespace_are_named() -> None:
    roles = {name: {"command": ["x"], "resources": {"gpu": "2"}} for name in ("chief", "worker")}
    job = JobState(JobKey("team", "train-3"), "train", 3, JobSpec.model_validate({"roles": roles}))
    view = change_view(job, StartHint(StartHintKind.TYPE, ASKED, "worker", "T4"))
    assert view is not None
    assert view.words == "on GPUs of type T4 for worker: now"
    assert view.command == "fairway submit -n team --like train-3 --role worker --gpus T4:2 && fairway stop -n team train-3"


def test_a_run_of_one_launcher_is_not_told_what_its_document_does_not_say() -> None:
    worker = {"command": ["mpirun", "x"], "replicas": {"min": 4, "max": 4}, "resources": {"gpu": "1"}}
    spec = JobSpec.model_validate({"framework": "mpi", "roles": {"worker": worker}})
    assert change_view(replace(run(), spec=spec), StartHint(StartHintKind.GPUS, ASKED, "worker", "3")) is None


def test_a_function_has_no_command() -> None:
    job = run(command=["python", "-m", "fairway.runtime.call", "call.pickle"])
    view = change_view(job, StartHint(StartHintKind.GPUS, ASKED, "worker", "3"))
    assert view is not None
    assert (view.words, view.command) == ("with 3 GPUs: now", "")


def test_gpus_shared_by_memory_alone_have_no_number_to_say() -> None:
    view = change_view(run(resources={"gpu_memory": "4Gi"}), StartHint(StartHintKind.TYPE, ASKED, "worker", "T4"))
    assert view is not None
    assert view.command == ""


@pytest.mark.parametrize(
    ("wait", "words"),
    [
        (
            DurationEstimate(600, 2400, 7200, 0.7, "name"),
            "when b-1 has ended: in 10m to 2h, most likely in about 40m (confidence 70%)",
        ),
        (DurationEstimate(0, 1200, 2400, 1.0, "limit"), "when b-1 has ended: within 40m, when its timeout expires at the latest"),
        (DurationEstimate(900, 3600, 14_400, 0.0, "none"), "when b-1 has ended: time unknown"),
        (
            DurationEstimate(math.inf, math.inf, math.inf, 0.0, "service"),
            "when b-1 has ended: a service does not end by itself; `fairway scale` or `fairway delete` makes room",
        ),
    ],
)
def test_when_another_run_ends(wait: DurationEstimate, words: str) -> None:
    view = change_view(run(), StartHint(StartHintKind.ENDS, ASKED, after=(JobKey("default", "b-1"),), wait=wait))
    assert view is not None
    assert (view.words, view.command, view.after) == (words, "", ("b-1",))
    assert (view.median is None) == (wait.basis in ("none", "service")), "a guess is no number"


def test_the_page() -> None:
    job = replace(run(), hold=WaitReason("gpu", "old news", since=900.0))
    hold = WaitReason(
        "gpu", "needs 4 GPUs on one node; the most any node has free is 3; 10 are free in all", "a job must end first"
    )
    found = (StartHint(StartHintKind.TYPE, ASKED, "worker", "T4"), StartHint(StartHintKind.PLACEMENT, ASKED, "worker", "nodes"))
    changes = [view for each in found if (view := change_view(job, each)) is not None]
    changes.append(moves_view([JobKey("default", "b-1"), JobKey("default", "c-2")]))
    view = why_view(job, [], 1000.0, hold, waiting_view(job, 3, 12, prospect(240, 2400, 6600), changes))
    assert (view.position, view.since) == (3, 900.0)
    assert why_text(view, 1000.0) == dedent("""\
        train-3 is Pending for 1m40s: needs 4 GPUs on one node; the most any node has free is 3; 10 are free in all
          place in queue default: 3 of 12
          earliest start: in 4m to 1h45m, most likely in about 40m (confidence 80%)
          what would help, the cheapest first:
            on GPUs of type T4: now
              fairway submit --like train-3 --gpus T4:4 && fairway stop train-3
            without `nodes` in the placement: now
            if b-1 and c-2 move elsewhere: after they have saved and moved
              fairway defragment
        """)


def test_without_changes_the_general_hint_stays() -> None:
    hold = WaitReason("gpu", "needs 4 GPUs; 0 of 8 are free", "a job with GPUs must end first")
    text = why_text(why_view(run(), [], 1000.0, hold, waiting_view(run(), 1, 1, StartProspect(None, 0), [])), 1000.0)
    assert "what would help: a job with GPUs must end first" in text
