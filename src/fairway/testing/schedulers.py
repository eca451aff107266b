"""Schedulers in a situation, for tests of what they say about it."""

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
    """One that knows these nodes and queues and was asked for the runs one after the other, a second apart, from 0 on."""
    made = Scheduler(memory)
    for node in nodes:
        made.apply(NodeSeen(node), 0.0)
    for queue in queues:
        made.apply(QueueSet(queue), 0.0)
    for number, request in enumerate(requests):
        made.apply(Asked(replace(request, submitted=float(number))), float(number))
        made.decide(float(number))
    return made
