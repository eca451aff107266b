"""Find the object that makes planning fail, so that only this object is left out of the plan."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence, Set
from dataclasses import dataclass, replace

from fairway.plan import planning_cycle
from fairway.state.job import JobKey
from fairway.state.node import ClusterNode
from fairway.state.queue import Queue
from fairway.state.snapshot import PlannerSnapshot
from fairway.state.task import Task


@dataclass(frozen=True, slots=True)
class FaultyObject:
    """The object that makes planning fail, and the exception."""

    problem: Exception
    run: JobKey | None = None
    queue: str = ""
    """When neither a run nor a queue is set, planning fails because of the scheduler's memory or the nodes."""


def find(snapshot: PlannerSnapshot, now: float, *, places: bool, skip: Set[JobKey] = frozenset()) -> FaultyObject | None:
    """Return the first object that makes planning fail; None when planning does not fail.

    Runs and then queues are added one after another to an empty state. The first one with which planning fails is the
    culprit. The search is a bisection: planning that fails for some objects also fails when more objects are added.
    """

    def problem(runs: Sequence[JobKey], queues: Sequence[Queue]) -> Exception | None:
        try:
            planning_cycle.plan(part(snapshot, runs, queues), now, places=places, skip=skip)
        except Exception as error:  # noqa: BLE001 - finding out what raises is the purpose.
            return error
        return None

    runs, queues = list(snapshot.jobs), list(snapshot.queues.values())
    empty_failure = problem([], [])
    if empty_failure is not None:
        return FaultyObject(empty_failure)
    failure = first_bad(len(runs), lambda count: problem(runs[:count], []))
    if failure is not None:
        return FaultyObject(failure[1], run=runs[failure[0] - 1])
    failure = first_bad(len(queues), lambda count: problem(runs, queues[:count]))
    return FaultyObject(failure[1], queue=queues[failure[0] - 1].name) if failure is not None else None


def part(snapshot: PlannerSnapshot, runs: Collection[JobKey], queues: Collection[Queue]) -> PlannerSnapshot:
    """Return the snapshot reduced to these runs and queues."""
    kept = set(runs)
    trial = replace(snapshot.copy(), queues={queue.name: queue for queue in queues})
    for key in snapshot.jobs:
        if key not in kept:
            trial.forget(key)
    return trial


def less(nodes: Sequence[ClusterNode], held: Iterable[Task]) -> tuple[ClusterNode, ...]:
    """Return the nodes less the resources that these tasks hold.

    For tasks that are hidden from the planner while their resources are still in use.
    """
    tasks = list(held)
    return tuple(_less(node, [task for task in tasks if task.node == node.name]) for node in nodes)


def _less(node: ClusterNode, tasks: Sequence[Task]) -> ClusterNode:
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
        devices=tuple(replace(gpu, busy_with=gpu.busy_with or holders.get(gpu.uuid, "")) for gpu in node.devices),
        other={name: max(0, count) for name, count in other.items()},
    )


def first_bad(most: int, problem: Callable[[int], Exception | None]) -> tuple[int, Exception] | None:
    """Return the smallest count for which `problem` returns an exception, with that exception; None when `most` succeeds."""
    last = problem(most)
    if last is None:
        return None
    good, bad, cause = 0, most, last
    while bad - good > 1:
        middle = (good + bad) // 2
        failure = problem(middle)
        if failure is None:
            good = middle
        else:
            bad, cause = middle, failure
    return bad, cause
