"""The changes that the scheduler processes between two decisions. Its state is a fold over these."""

from __future__ import annotations

from dataclasses import dataclass

from fairway.plan.scheduling.gang_request import GangRequest, RunningGang
from fairway.state.job import JobKey
from fairway.state.node import ClusterNode
from fairway.state.queue import Queue


@dataclass(frozen=True, slots=True)
class NodeChanged:
    """A node was added or changed."""

    node: ClusterNode


@dataclass(frozen=True, slots=True)
class NodeRemoved:
    """A node was removed."""

    name: str


@dataclass(frozen=True, slots=True)
class QueueDefined:
    """A queue was defined or changed."""

    queue: Queue


@dataclass(frozen=True, slots=True)
class QueueRemoved:
    """A queue's definition was removed."""

    name: str


@dataclass(frozen=True, slots=True)
class RunWaiting:
    """A run waits for places. Changes of what it holds are given by `RunPlaced` and `RunStopped`."""

    request: GangRequest


@dataclass(frozen=True, slots=True)
class RunWithdrawn:
    """A run no longer waits."""

    key: JobKey


@dataclass(frozen=True, slots=True)
class RunPlaced:
    """A run holds these seats: newly, or with changed values."""

    running: RunningGang


@dataclass(frozen=True, slots=True)
class RunStopped:
    """A run holds nothing since `at`."""

    key: JobKey
    at: float
    finished: bool = False
    """Whether the run completed: then its duration is recorded in the history."""


Delta = NodeChanged | NodeRemoved | QueueDefined | QueueRemoved | RunWaiting | RunWithdrawn | RunPlaced | RunStopped
