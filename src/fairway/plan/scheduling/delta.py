"""What can change between two decisions. The scheduler is a fold over these."""

from __future__ import annotations

from dataclasses import dataclass

from fairway.plan.scheduling.request import Request, Running
from fairway.state.job import JobKey
from fairway.state.node import Node
from fairway.state.queue import Queue


@dataclass(frozen=True, slots=True)
class NodeSeen:
    """A node is there, or is another than before."""

    node: Node


@dataclass(frozen=True, slots=True)
class NodeGone:
    """A node is no longer there."""

    name: str


@dataclass(frozen=True, slots=True)
class QueueSet:
    """A queue is described, anew or for the first time."""

    queue: Queue


@dataclass(frozen=True, slots=True)
class QueueGone:
    """A queue is described no longer."""

    name: str


@dataclass(frozen=True, slots=True)
class Asked:
    """A run waits for places. What it held before is said with `Sits` or `Left`."""

    request: Request


@dataclass(frozen=True, slots=True)
class Withdrawn:
    """A run waits no longer."""

    key: JobKey


@dataclass(frozen=True, slots=True)
class Sits:
    """A run holds these places, since then: new, or another value than before."""

    running: Running


@dataclass(frozen=True, slots=True)
class Left:
    """A run holds nothing any more, since `at`."""

    key: JobKey
    at: float
    finished: bool = False
    """Whether it did all it had to do: then how long it took is worth remembering."""


Delta = NodeSeen | NodeGone | QueueSet | QueueGone | Asked | Withdrawn | Sits | Left
