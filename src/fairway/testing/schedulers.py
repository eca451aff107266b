"""Builders of schedulers in a given state, for tests."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from fairway.plan.scheduling.delta import Asked, NodeSeen, QueueSet
from fairway.plan.scheduling.memory import SchedulerMemory
from fairway.plan.scheduling.request import Request
from fairway.plan.scheduling.scheduler import Scheduler
from fairway.state.node import Node
from fairway.state.queue import Queue


def asked_in_turn(
    nodes: Iterable[Node], requests: Iterable[Request], queues: Iterable[Queue] = (), memory: SchedulerMemory | None = None
) -> Scheduler:
    """Return a scheduler with these nodes and queues that received the requests one second apart, starting at 0."""
    scheduler = Scheduler(memory)
    for node in nodes:
        scheduler.apply(NodeSeen(node), 0.0)
    for queue in queues:
        scheduler.apply(QueueSet(queue), 0.0)
    for number, request in enumerate(requests):
        scheduler.apply(Asked(replace(request, submitted=float(number))), float(number))
        scheduler.decide(float(number))
    return scheduler
