"""What can never run here is refused when it is asked for, with the reason."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from fairway.plan import gang, seating
from fairway.plan.scheduling import amounts, explain, rights
from fairway.plan.scheduling.cluster import Cluster
from fairway.state.job import Job
from fairway.state.node import Node
from fairway.state.queue import Queue


def never_fits(job: Job, nodes: Sequence[Node], queue: Queue | None = None) -> str:
    """Why the run could not start even on idle nodes with nobody else in its queue; empty when it could."""
    capacity = max((node.cpu for node in nodes), default=0.0)
    tasks = gang.make_tasks(job, gang.smallest_sizes(job.spec), capacity, job.created)
    asked = seating.gang_of(job, tasks, capacity)
    found = Cluster(nodes, "best-fit").ever(asked)
    if found is not None:
        return explain.never(found, asked, nodes) + _hidden(job, nodes, queue)
    limit = rights.never(queue, job.origin.user, amounts.of_gang(asked)) if queue is not None else None
    if limit is None:
        return ""
    most, needed = explain.amount(limit.what, limit.allowed), explain.number(limit.what, limit.asked)
    whose = f"each user of queue {limit.queue}" if limit.of == "per_user" else f"queue {limit.queue}"
    return f"{whose} may {'have' if limit.what == 'runs' else 'use'} {most} at a time; this needs {needed}"


def _hidden(job: Job, nodes: Sequence[Node], queue: Queue | None) -> str:
    """What to add where it would fit, if its caller saw all GPUs."""
    conditions = job.origin.conditions
    if conditions is None or conditions.devices is None:
        return ""
    anywhere = replace(job, origin=replace(job.origin, conditions=replace(conditions, devices=None)))
    if never_fits(anywhere, nodes, queue):
        return ""
    named = ",".join(conditions.devices)
    return f"; CUDA_VISIBLE_DEVICES={named!r} in your shell lets it use no other GPU: unset it there, or ask for --gpus 0"
