"""Builders of schedulers in a given state, for tests."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from fairway.plan.scheduling.delta import NodeChanged, QueueDefined, RunWaiting
from fairway.plan.scheduling.gang_request import GangRequest
from fairway.plan.scheduling.scheduler import Scheduler
from fairway.plan.scheduling.scheduler_memory import SchedulerMemory
from fairway.state.node import ClusterNode
from fairway.state.queue import Queue


def asked_in_turn(
    nodes: Iterable[ClusterNode],
    requests: Iterable[GangRequest],
    queues: Iterable[Queue] = (),
    memory: SchedulerMemory | None = None,
) -> Scheduler:
    """Return a scheduler with these nodes and queues that received the requests one second apart, starting at 0."""
    scheduler = Scheduler(memory)
    for node in nodes:
        scheduler.apply(NodeChanged(node), 0.0)
    for queue in queues:
        scheduler.apply(QueueDefined(queue), 0.0)
    for number, request in enumerate(requests):
        scheduler.apply(RunWaiting(replace(request, submitted=float(number))), float(number))
        scheduler.decide(float(number))
    return scheduler
