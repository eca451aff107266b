"""Who starts now: in order of priority and age, gangs whole, and a `Hold` with the reason for everybody else."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from fairway.plan import gang
from fairway.plan.action import BindGang, CreateTask
from fairway.plan.plan import Draft
from fairway.plan.scheduling import fit
from fairway.state.job import Hold, Job, JobKey
from fairway.state.phase import JobPhase, TaskPhase
from fairway.state.task import Task


@dataclass(frozen=True, slots=True)
class Place:
    """Where a waiting run stands, and what it waits with."""

    rank: tuple[int, float, int, JobKey]
    shape: object
    """Runs with equal shapes wait for the same reason."""
    key: JobKey

    @classmethod
    def of(cls, draft: Draft, job: Job) -> Place:
        """The place of a run, as the draft has it."""
        return cls(rank(job), _shape(job, _current(draft, job)), job.key)


def rank(job: Job) -> tuple[int, float, int, JobKey]:
    """Sorts runs: higher priority first, then the older."""
    return (-job.spec.priority, job.created, job.number, job.key)


def start_waiting(draft: Draft, waiting: Sequence[Place]) -> None:
    """Bind what fits, in order; say why to the rest."""
    if not waiting:
        return
    free = fit.rooms(draft.snapshot.nodes, draft.holding())
    blocked: dict[object, Hold] = {}
    for place in sorted(waiting, key=lambda place: place.rank):
        job = draft.job(place.key)
        if job.not_before is not None and job.not_before > draft.now:
            draft.wake(job.not_before)
            continue
        found = blocked.get(place.shape) or _start_as_many_as_fit(draft, job, free)
        if found is None:
            continue
        _hold(draft, job, found)
        if place.shape not in blocked:
            # The first of its shape keeps its place; later ones of the same shape cannot overtake it anyway.
            fit.reserve(_current(draft, job), free)
            blocked[place.shape] = found


def _start_as_many_as_fit(draft: Draft, job: Job, free: list[fit.Room]) -> Hold | None:
    pending = [task for task in _current(draft, job) if task.phase is TaskPhase.PENDING]
    running = [task for task in _current(draft, job) if task.phase.holds_resources]
    placements = {name: role.placement for name, role in job.spec.roles.items()}
    found = fit.place(pending, free, placements)
    if isinstance(found, Hold):
        return found
    extra = [] if running else _grow(draft, job, free)
    placed = [replace(task, phase=TaskPhase.PLACED, message="") for task in [*found, *extra]]
    sizes = {name: sum(task.key.role == name for task in [*placed, *running]) for name in job.spec.roles}
    if gang.folds_into_one(job.spec):
        sizes = job.sizes
    job = replace(job, phase=JobPhase.STARTING, hold=None, not_before=None, sizes=sizes)
    draft.put_job(job)
    for task in placed:
        draft.put_task(task)
    draft.actions.extend(CreateTask(job, task) for task in extra)
    draft.actions.append(BindGang(job, tuple(placed), tuple(running)))
    where = sorted({task.node for task in placed})
    devices = sum(len(task.devices) for task in placed)
    on_devices = f", {devices} GPUs" if devices else ""
    draft.tell(job.key, "Placed", f"{len(placed)} tasks on {', '.join(where)}{on_devices}")
    return None


def _grow(draft: Draft, job: Job, free: list[fit.Room]) -> list[Task]:
    """Tasks beyond the gang's minimum, one by one, as long as they fit and the last attempt's size allows."""
    if gang.folds_into_one(job.spec):
        return []
    limits = job.sizes or gang.largest_sizes(job.spec)
    have = gang.smallest_sizes(job.spec)
    placements = {name: role.placement for name, role in job.spec.roles.items()}
    grown: list[Task] = []
    for name in job.spec.roles:
        while have[name] < limits.get(name, have[name]):
            sizes = {**have, name: have[name] + 1}
            wanted = gang.make_tasks(job, sizes, draft.capacity_cpu, draft.now)
            newest = next(task for task in wanted if task.key.role == name and task.key.index == have[name])
            placed = fit.place([replace(newest, ready=True)], free, placements)
            if isinstance(placed, Hold):
                break
            grown.extend(placed)
            have = sizes
    return grown


def _hold(draft: Draft, job: Job, hold: Hold) -> None:
    if job.hold is not None and (job.hold.reason, job.hold.message) == (hold.reason, hold.message):
        return
    if job.hold is None or job.hold.reason != hold.reason:
        draft.tell(job.key, "Waiting", hold.message)
    draft.put_job(replace(job, hold=replace(hold, since=job.hold.since if job.hold else draft.now)))


def _shape(job: Job, tasks: Sequence[Task]) -> object:
    needs = tuple((task.key.role, task.need.cpu, task.need.memory, task.need.gpu, task.need.gpu_type) for task in tasks)
    special = any(task.need.other for task in tasks) or any(role.placement.model_fields_set for role in job.spec.roles.values())
    return (needs, job.key) if special else needs


def _current(draft: Draft, job: Job) -> list[Task]:
    return [task for task in draft.tasks_of(job.key) if not task.phase.over]
