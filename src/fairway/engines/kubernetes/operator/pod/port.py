"""The ports that tasks listen on. Pure.

Every pod has a network of its own, and so all use the same ports, unless the document requests the node's network. There each
task of a run has ports of its own. They are declared, so that a scheduler never puts two tasks whose ports clash on one node.
"""

from __future__ import annotations

import hashlib

from fairway.launch.topology import ports_needed
from fairway.plan.task_expansion import slot_count
from fairway.state.job import JobState
from fairway.state.task import Task

FIRST = 20000
LAST = 32767
"""Above this port nodes assign ephemeral ports to outgoing connections."""


def ports_of(job: JobState, task: Task) -> tuple[int, ...]:
    """Return the ports that a task may listen on: the same at every attempt, so that running peers find it again."""
    width = ports_needed(max(task.processes, task.slots))
    first = FIRST
    if job.spec.kubernetes.network.host:
        names = list(job.spec.roles)
        before = sum(job.spec.roles[name].replicas.max for name in names[: names.index(task.key.role)])
        room = LAST - FIRST - needed(job)
        first += _number(str(job.key)) % max(1, room) + _widest(job) * (before + task.key.index)
    return tuple(range(first, first + width))


def needed(job: JobState) -> int:
    """Return how many ports the run takes of a node on which all its tasks run."""
    return _widest(job) * sum(role.replicas.max for role in job.spec.roles.values())


def fit(job: JobState) -> bool:
    """Whether a node has that many ports."""
    return needed(job) <= LAST - FIRST


def _widest(job: JobState) -> int:
    """Return the ports of the largest task, by the document: tasks that are added later count, too."""
    return max(ports_needed(slot_count(role)) for role in job.spec.roles.values())


def _number(text: str) -> int:
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")
