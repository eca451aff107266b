"""Conversion between runs and the scheduler's values: the request of a waiting run, the seats of a running one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from fairway.plan import task_expansion as gangs
from fairway.plan.scheduling.gang import (
    WHOLE,
    GangRole,
    GangShape,
    TaskNodeSelector,
    TaskSeat,
    TaskShape,
    device_memory,
    milli_on,
)
from fairway.plan.scheduling.gang_request import GangRequest, RunningGang
from fairway.plan.service.replica import service_of
from fairway.spec.resource import PlacementConstraints, gpu_ask
from fairway.state.job import JobState
from fairway.state.node import ClusterNode
from fairway.state.phase import TaskPhase
from fairway.state.task import Task, TaskNeed
from fairway.units import quantity

NO_DEVICE = "none"
"""A name that no device has: for a submitter whose `CUDA_VISIBLE_DEVICES` is empty."""


def request_of(job: JobState, tasks: Sequence[Task], capacity_cpu: float) -> GangRequest:
    """Return the run's request: its pending tasks, and more where the gang may start larger than its minimum."""
    return GangRequest(
        key=job.key,
        gang=gang_of(job, tasks, capacity_cpu),
        submitted=job.created,
        queue=job.spec.queue,
        user=job.origin.user,
        name=job.series,
        priority=job.spec.priority,
        limit=quantity.seconds(job.spec.timeout) if job.spec.timeout is not None else None,
        resumes=resumes(job),
        service=service_of(job.key),
    )


def gang_of(job: JobState, tasks: Sequence[Task], capacity_cpu: float) -> GangShape:
    """Return the gang of the pending tasks; the run's other tasks may be placed already."""
    pending: dict[str, list[Task]] = {}
    for task in tasks:
        if task.phase is TaskPhase.PENDING:
            pending.setdefault(task.key.role, []).append(task)
    # Only a gang with no started task may grow: later each index has had its task.
    begun = any(task.phase is not TaskPhase.PENDING and task.key.attempt >= job.attempt for task in tasks)
    fixed = begun or gangs.folds_into_one(job)
    limits = job.sizes or gangs.largest_sizes(job.spec)
    parts = []
    for name, role in job.spec.roles.items():
        own = pending.get(name, [])
        if not own and (fixed or not limits.get(name)):
            continue
        need = own[0].need if own else gangs.need_of(role, min(1.0, capacity_cpu), job.memory_factor)
        most = len(own) if fixed else max(len(own), limits.get(name, 0))
        wish = placement_of(job, name)
        parts.append(GangRole(name, shape_of(need, wish), len(own), most, wish.together, wish.apart))
    return GangShape(tuple(parts), any(role.placement.same_rack for role in job.spec.roles.values()))


def running_of(
    job: JobState, tasks: Sequence[Task], nodes: Mapping[str, ClusterNode], known: RunningGang | None, now: float
) -> RunningGang | None:
    """Return what the run holds; None when it holds nothing. `known` is its previous value, whose `since` is kept."""
    holding = [task for task in tasks if task.phase.holds_resources]
    if not holding:
        return None
    seats = tuple(_seat(task, placement_of(job, task.key.role), nodes) for task in holding)
    leaving = job.ending is not None or job.leaving is not None or all(task.evicting_since is not None for task in holding)
    since = min((task.started for task in holding if task.started is not None), default=now)
    if known is not None and {(seat.role, seat.index, seat.node) for seat in known.seats} == {
        (seat.role, seat.index, seat.node) for seat in seats
    }:
        since = known.since
    return RunningGang(
        request=GangRequest(
            key=job.key,
            gang=_whole_gang(job, holding, may_grow=not _comes_to_its_end(job, tasks)),
            submitted=job.created,
            queue=job.spec.queue,
            user=job.origin.user,
            name=job.series,
            priority=job.spec.priority,
            limit=quantity.seconds(job.spec.timeout) if job.spec.timeout is not None else None,
            resumes=resumes(job),
            service=service_of(job.key),
        ),
        seats=seats,
        since=since,
        saved=job.progress.checkpoint_time,
        leaving=leaving,
    )


def resumes(job: JobState) -> bool:
    """Return whether the run resumes after an eviction: it has saved a checkpoint before."""
    return job.progress.checkpoint_step is not None


def placement_of(job: JobState, name: str) -> PlacementConstraints:
    """Return where a role may be placed: as in its document, else on the GPUs visible to its submitter."""
    role = job.spec.roles[name]
    visible = job.origin.conditions.devices if job.origin.conditions is not None else None
    if visible is None or role.placement.devices or not gpu_ask(role.resources).count:
        return role.placement
    return role.placement.model_copy(update={"devices": visible or (NO_DEVICE,)})


def shape_of(need: TaskNeed, wish: PlacementConstraints) -> TaskShape:
    """Return what one task takes from a node, in the scheduler's units."""
    where = TaskNodeSelector(
        nodes=wish.nodes,
        devices=wish.devices,
        labels=tuple(sorted(wish.labels.items())),
        tolerates=wish.tolerations,
    )
    return TaskShape(
        # Rounded down: three tasks that each get a third of two cores must fit on them.
        cpu=int(need.cpu * 1000 + 1e-6),
        memory=-(-need.memory >> 20),
        gpus=need.gpus,
        gpu_milli=WHOLE if wish.alone else need.gpu_milli,
        gpu_memory=-(-need.gpu_memory >> 20),
        gpu_types=need.gpu_type if need.gpus else (),
        other=tuple(sorted((name, count) for name, count in need.other.items() if count)),
        where=where,
    )


def seat_tasks(pending: Iterable[Task], seats: Iterable[TaskSeat]) -> tuple[list[Task], list[TaskSeat]]:
    """Return the pending tasks with their seats, and the remaining seats, for tasks that do not exist yet."""
    unused: dict[str, list[TaskSeat]] = {}
    for seat in sorted(seats, key=lambda seat: seat.index):
        unused.setdefault(seat.role, []).append(seat)
    placed = []
    for task in sorted(pending, key=lambda task: task.key):
        seat = unused[task.key.role].pop(0)
        placed.append(replace(task, node=seat.node, devices=seat.devices))
    return placed, [seat for seats in unused.values() for seat in seats]


def _comes_to_its_end(job: JobState, tasks: Sequence[Task]) -> bool:
    """Return whether some tasks have succeeded already: such a run is not restarted to run at full size."""
    return any(task.phase is TaskPhase.SUCCEEDED and task.key.attempt >= job.attempt for task in tasks)


def _whole_gang(job: JobState, sitting: Sequence[Task], *, may_grow: bool) -> GangShape:
    """Return the gang of the document, with the needs of the placed tasks."""
    spec = job.spec
    parts = []
    for name, role in spec.roles.items():
        own = [task for task in sitting if task.key.role == name]
        if not own:
            continue
        is_folded = gangs.folds_into_one(job)
        least, most = (1, 1) if is_folded else (role.replicas.min, role.replicas.max if may_grow else len(own))
        wish = placement_of(job, name)
        parts.append(GangRole(name, shape_of(own[0].need, wish), min(least, len(own)), most, wish.together, wish.apart))
    return GangShape(tuple(parts), any(role.placement.same_rack for role in spec.roles.values()))


def _seat(task: Task, wish: PlacementConstraints, nodes: Mapping[str, ClusterNode]) -> TaskSeat:
    shape = shape_of(task.need, wish)
    node = nodes.get(task.node)
    own = [device_memory(device) for device in node.devices if device.uuid in task.devices] if node is not None else []
    milli = max((milli_on(shape, memory) for memory in own), default=WHOLE)
    return TaskSeat(task.key.role, task.key.index, shape, task.node, task.devices, milli)
