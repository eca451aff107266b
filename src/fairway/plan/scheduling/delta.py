"""The changes that the scheduler processes between two decisions. Its state is a fold over these."""

from __future__ import annotations

from dataclasses import dataclass

from fairway.plan.scheduling.request import Request, Running
from fairway.state.job import JobKey
from fairway.state.node import Node
from fairway.state.queue import Queue


@dataclass(frozen=True, slots=True)
class NodeSeen:
    """A node was added or changed."""

    node: Node


@dataclass(frozen=True, slots=True)
class NodeGone:
    """A node was removed."""

    name: str


@dataclass(frozen=True, slots=True)
class QueueSet:
    """A queue was defined or changed."""

    queue: Queue


@dataclass(frozen=True, slots=True)
class QueueGone:
    """A queue's definition was removed."""

    name: str


@dataclass(frozen=True, slots=True)
class Asked:
    """A run waits for places. Changes of what it holds are given by `Sits` and `Left`."""

    request: Request


@dataclass(frozen=True, slots=True)
class Withdrawn:
    """A run no longer waits."""

    key: JobKey


@dataclass(frozen=True, slots=True)
class Sits:
    """A run holds these seats: newly, or with changed values."""

    running: Running


@dataclass(frozen=True, slots=True)
class Left:
    """A run holds nothing since `at`."""

    key: JobKey
    at: float
    finished: bool = False
    """Whether the run completed: then its duration is recorded in the history."""


Delta = NodeSeen | NodeGone | QueueSet | QueueGone | Asked | Withdrawn | Sits | Left
