"""A plan in sentences."""

from __future__ import annotations

from dataclasses import replace

from fairway.plan.action import BindGang, CreateTask, EvictTask, ForgetJob, NudgeTask
from fairway.plan.plan import EnginePlan
from fairway.state.job import WaitReason
from fairway.state.task import TaskNeed
from fairway.testing.builder.job_builder import a_job, a_role, a_task
from fairway.views.plan import needs, plan_text, plan_view


def test_a_run_that_would_start() -> None:
    job = a_job(["python", "train.py"], name="mnist-0", roles={"worker": a_role(["w"], 2, processes=2), "ps": a_role(["p"])})
    workers = [
        replace(a_task(job, index), need=TaskNeed(2.0, 1 << 30, 2.0, gpu_type=("H100",)), devices=(f"GPU-{index}",))
        for index in (0, 1)
    ]
    tasks = (*workers, a_task(job, 0, role="ps"))
    plan = EnginePlan(jobs=(job,), tasks=tasks, actions=(*(CreateTask(job, task) for task in tasks), BindGang(job, tasks)))
    view = plan_view(plan)
    assert view.sentences == (
        "mnist would have 2 workers, each with 2 CPU, 1 GiB memory, 2 GPU (H100) and 2 processes",
        "mnist would have 1 ps with 1 CPU",
        "mnist would start now:",
        "  worker-0 on here with GPU-0 (2 CPU, 1 GiB memory, 2 GPU (H100))",
        "  worker-1 on here with GPU-1 (2 CPU, 1 GiB memory, 2 GPU (H100))",
        "  ps-0 on here (1 CPU)",
    )
    assert view.jobs == ("mnist",)
    assert view.documents[0]["name"] == "mnist"
    assert plan_text(view).splitlines() == list(view.sentences)


def test_a_run_that_would_wait() -> None:
    job = replace(a_job(), hold=WaitReason("gpu", "needs 4 GPUs, 2 are free", "ask for 2"))
    assert plan_view(EnginePlan(jobs=(job,))).sentences == (
        "mnist-1 would wait: needs 4 GPUs, 2 are free; what would help: ask for 2",
    )


def test_who_would_have_to_go() -> None:
    job, other = a_job(name="new-1"), a_job(name="old-1")
    key = a_task(other).key
    actions = (
        EvictTask(key, 30.0, "Preempted"),
        EvictTask(key, 0.0, "Preempted"),
        NudgeTask(key, "enough"),
        ForgetJob(other.key),
    )
    assert plan_view(EnginePlan(jobs=(job,), actions=actions)).sentences == (
        "old-1/worker-0 would be ended with 30s to save its state (Preempted)",
        "old-1/worker-0 would be ended at once (Preempted)",
        "old-1/worker-0 would be asked to end (enough)",
        "old-1 would be deleted with its logs, checkpoints and outputs",
    )


def test_what_happens_to_others_anyway_is_not_told() -> None:
    job, other = a_job(name="new-1"), a_job(name="old-1")
    plan = EnginePlan(jobs=(job,), actions=(CreateTask(other, a_task(other)), BindGang(other, (a_task(other),))))
    assert plan_view(plan).sentences == ("nothing would change",)


def test_needs() -> None:
    assert needs(TaskNeed()) == "nothing"
    assert (
        needs(TaskNeed(0.5, gpus=1, gpu_milli=250, gpu_type=("A100", "H100"), other={"rdma/hca": 1}))
        == "0.5 CPU, 0.25 GPU (A100 or H100), 1 rdma/hca"
    )
