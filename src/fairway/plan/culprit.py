"""Which object makes planning fail, so that it alone is left out of the plan."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence, Set
from dataclasses import dataclass, replace

from fairway.plan import cycle
from fairway.state.job import JobKey
from fairway.state.node import Node
from fairway.state.queue import Queue
from fairway.state.snapshot import Snapshot
from fairway.state.task import Task


@dataclass(frozen=True, slots=True)
class Culprit:
    """What planning fails for, and how."""

    problem: Exception
    run: JobKey | None = None
    queue: str = ""
    """Neither a run nor a queue: planning fails for what the scheduler remembers, or for the nodes."""


def find(snapshot: Snapshot, now: float, *, places: bool, skip: Set[JobKey] = frozenset()) -> Culprit | None:
    """The object without which planning would get further; None when planning does not fail.

    Runs and queues are added one after another to an empty state. The first with which planning fails is the culprit. The
    search is binary, since planning that fails for some objects fails for more of them too.
    """

    def problem(runs: Sequence[JobKey], queues: Sequence[Queue]) -> Exception | None:
        try:
            cycle.plan(part(snapshot, runs, queues), now, places=places, skip=skip)
        except Exception as error:  # noqa: BLE001 - finding out what raises is the purpose.
            return error
        return None

    runs, queues = list(snapshot.jobs), list(snapshot.queues.values())
    alone = problem([], [])
    if alone is not None:
        return Culprit(alone)
    found = first_bad(len(runs), lambda count: problem(runs[:count], []))
    if found is not None:
        return Culprit(found[1], run=runs[found[0] - 1])
    found = first_bad(len(queues), lambda count: problem(runs, queues[:count]))
    return Culprit(found[1], queue=queues[found[0] - 1].name) if found is not None else None


def part(snapshot: Snapshot, runs: Collection[JobKey], queues: Collection[Queue]) -> Snapshot:
    """The snapshot with these runs and queues alone."""
    kept = set(runs)
    trial = replace(snapshot.copy(), queues={queue.name: queue for queue in queues})
    for key in snapshot.jobs:
        if key not in kept:
            trial.forget(key)
    return trial


def less(nodes: Sequence[Node], held: Iterable[Task]) -> tuple[Node, ...]:
    """The nodes without what these tasks hold: for tasks that the planner must not see, and whose room is not free."""
    tasks = list(held)
    return tuple(_less(node, [task for task in tasks if task.node == node.name]) for node in nodes)


def _less(node: Node, tasks: Sequence[Task]) -> Node:
    if not tasks:
        return node
    holders = {device: str(task.key.run) for task in tasks for device in task.devices}
    other = Counter(node.other)
    for task in tasks:
        other.subtract(task.need.other)
    return replace(
        node,
        cpu=max(0.0, node.cpu - sum(task.need.cpu for task in tasks)),
        memory=max(0, node.memory - sum(task.need.memory for task in tasks)),
        devices=tuple(replace(one, busy_with=one.busy_with or holders.get(one.uuid, "")) for one in node.devices),
        other={name: max(0, count) for name, count in other.items()},
    )


def first_bad(most: int, problem: Callable[[int], Exception | None]) -> tuple[int, Exception] | None:
    """The smallest count with which it fails, and how; None when it does not fail with all."""
    last = problem(most)
    if last is None:
        return None
    good, bad, cause = 0, most, last
    while bad - good > 1:
        middle = (good + bad) // 2
        found = problem(middle)
        if found is None:
            good = middle
        else:
            bad, cause = middle, found
    return bad, cause
