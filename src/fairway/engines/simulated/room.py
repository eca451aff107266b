"""What is taken on simulated nodes. Nothing is handed out twice: who asks for more than there is, is refused with the reason."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from math import inf

from fairway.plan.scheduling.shape import WHOLE, device_memory, milli_on
from fairway.plan.seating import shape_of
from fairway.state.job import Job
from fairway.state.node import Node
from fairway.state.task import Task, TaskKey


class Room:
    """Nodes by name, and what each task holds of them."""

    def __init__(self, nodes: Iterable[Node]) -> None:
        self.nodes = {node.name: node for node in nodes}
        self._held: dict[TaskKey, Counter[tuple[str, str]]] = {}
        self._taken: Counter[tuple[str, str]] = Counter()

    def take(self, job: Job, tasks: Sequence[Task]) -> str:
        """Give all of these tasks what they need, or none of them: then the reason."""
        asked = {task.key: self._amounts(job, task) for task in tasks}
        together: Counter[tuple[str, str]] = Counter()
        for amounts in asked.values():
            together.update(amounts)
        for task in tasks:
            if task.node not in self.nodes:
                return f"there is no node {task.node}"
        for (place, what), amount in together.items():
            free = self._capacity(place, what) - self._taken[place, what]
            if amount > free:
                return f"{place} has {free} of {what} left, and {amount} are needed"
        self._held.update(asked)
        self._taken.update(together)
        return ""

    def give(self, key: TaskKey) -> None:
        """The task holds nothing any more."""
        self._taken.subtract(self._held.pop(key, Counter()))

    def holds(self, key: TaskKey) -> bool:
        """Whether anything of it is left."""
        return key in self._held

    def _amounts(self, job: Job, task: Task) -> Counter[tuple[str, str]]:
        shape = shape_of(task.need, job.spec.roles[task.key.role].placement)
        found = Counter({(task.node, "cpu milli"): shape.cpu, (task.node, "memory MiB"): shape.memory, (task.node, "tasks"): 1})
        found.update({(task.node, name): count for name, count in shape.other})
        found.update({(uuid, "milli"): milli_on(shape, self._memory_of(task.node, uuid)) for uuid in task.devices})
        return found

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
