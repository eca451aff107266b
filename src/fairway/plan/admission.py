"""Admission: reject a job that can never run here when it is submitted, with the reason."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from fairway.plan import scheduler_request, task_expansion
from fairway.plan.scheduling import resource_amount
from fairway.plan.scheduling.cluster import ClusterModel
from fairway.plan.scheduling.explanation import wait_explanation
from fairway.plan.scheduling.queueing import queue_rule
from fairway.state.job import JobState
from fairway.state.node import ClusterNode
from fairway.state.queue import Queue


def never_fits(job: JobState, nodes: Sequence[ClusterNode], queue: Queue | None = None) -> str:
    """Return why the run could not start even on idle nodes with no other run in its queue; empty when it could."""
    capacity = max((node.cpu for node in nodes), default=0.0)
    tasks = task_expansion.make_tasks(job, task_expansion.smallest_sizes(job.spec), capacity, job.created)
    gang_request = scheduler_request.gang_of(job, tasks, capacity)
    shortfall = ClusterModel(nodes, "best-fit").ever(gang_request)
    if shortfall is not None:
        return wait_explanation.never(shortfall, gang_request, nodes) + _hidden(job, nodes, queue)
    limit = queue_rule.never(queue, job.origin.user, resource_amount.of_gang(gang_request)) if queue is not None else None
    if limit is None:
        return ""
    allowed, required = wait_explanation.amount(limit.what, limit.allowed), wait_explanation.number(limit.what, limit.asked)
    subject = f"each user of queue {limit.queue}" if limit.of == "per_user" else f"queue {limit.queue}"
    return f"{subject} may {'have' if limit.what == 'runs' else 'use'} {allowed} at a time; this needs {required}"


def _hidden(job: JobState, nodes: Sequence[ClusterNode], queue: Queue | None) -> str:
    """Return a hint to append when the run would fit if its submitter's shell exposed all GPUs; else empty."""
    conditions = job.origin.conditions
    if conditions is None or conditions.devices is None:
        return ""
    unrestricted = replace(job, origin=replace(job.origin, conditions=replace(conditions, devices=None)))
    if never_fits(unrestricted, nodes, queue):
        return ""
    visible = ",".join(conditions.devices)
    return f"; CUDA_VISIBLE_DEVICES={visible!r} in your shell hides the other GPUs: unset it there, or ask for --gpus 0"
