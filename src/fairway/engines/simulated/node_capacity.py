"""Accounts for what is taken on simulated nodes.

Nothing is taken twice: a request beyond the capacity is refused with the reason.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from math import inf

from fairway.plan.scheduler_request import shape_of
from fairway.plan.scheduling.gang import WHOLE, device_memory, milli_on
from fairway.state.job import JobState
from fairway.state.node import ClusterNode
from fairway.state.task import Task, TaskKey


class NodeCapacity:
    """Nodes by name, and what each task holds of them."""

    def __init__(self, nodes: Iterable[ClusterNode]) -> None:
        self.nodes = {node.name: node for node in nodes}
        self._held: dict[TaskKey, Counter[tuple[str, str]]] = {}
        self._taken: Counter[tuple[str, str]] = Counter()

    def take(self, job: JobState, tasks: Sequence[Task]) -> str:
        """Take what all of these tasks need, or nothing; return the reason for nothing."""
        amounts_by_task = {task.key: self._amounts(job, task) for task in tasks}
        totals: Counter[tuple[str, str]] = Counter()
        for amounts in amounts_by_task.values():
            totals.update(amounts)
        for task in tasks:
            if task.node not in self.nodes:
                return f"there is no node {task.node}"
        for (node_or_device, what), amount in totals.items():
            free = self._capacity(node_or_device, what) - self._taken[node_or_device, what]
            if amount > free:
                return f"{node_or_device} has {free} of {what} left, and {amount} are needed"
        self._held.update(amounts_by_task)
        self._taken.update(totals)
        return ""

    def give(self, key: TaskKey) -> None:
        """Release what the task holds."""
        self._taken.subtract(self._held.pop(key, Counter()))

    def holds(self, key: TaskKey) -> bool:
        """Return whether the task holds anything."""
        return key in self._held

    def _amounts(self, job: JobState, task: Task) -> Counter[tuple[str, str]]:
        shape = shape_of(task.need, job.spec.roles[task.key.role].placement)
        amounts = Counter({(task.node, "cpu milli"): shape.cpu, (task.node, "memory MiB"): shape.memory, (task.node, "tasks"): 1})
        amounts.update({(task.node, name): count for name, count in shape.other})
        amounts.update({(uuid, "milli"): milli_on(shape, self._memory_of(task.node, uuid)) for uuid in task.devices})
        return amounts

    def _memory_of(self, node: str, uuid: str) -> int:
        devices = self.nodes[node].devices if node in self.nodes else ()
        return next((device_memory(device) for device in devices if device.uuid == uuid), 0)

    def _capacity(self, place: str, what: str) -> float:
        node = self.nodes.get(place)
        if node is None:
            return WHOLE
        if what == "cpu milli":
            return round(node.cpu * 1000)
        if what == "memory MiB":
            return node.memory >> 20
        if what == "tasks":
            return node.tasks or inf
        return node.other.get(what, 0)
