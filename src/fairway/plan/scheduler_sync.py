"""Connect the scheduler to the state: feed it changes, and turn its decisions into bound tasks and evicted runs."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence, Set
from dataclasses import dataclass, field, replace

from fairway.plan import job as job_plan
from fairway.plan import scheduler_request
from fairway.plan.action import BindGang, CreateTask
from fairway.plan.plan import EnginePlan, EnginePlanDraft
from fairway.plan.scheduling import forecast_record, scheduler_memory, seat_reservation
from fairway.plan.scheduling.decision import EvictDecision, StartDecision
from fairway.plan.scheduling.delta import (
    Delta,
    NodeChanged,
    NodeRemoved,
    QueueDefined,
    QueueRemoved,
    RunPlaced,
    RunStopped,
    RunWaiting,
    RunWithdrawn,
)
from fairway.plan.scheduling.explanation import wait_explanation
from fairway.plan.scheduling.gang_request import GangRequest
from fairway.plan.scheduling.preemption import preemption
from fairway.plan.scheduling.preemption.defragmentation import MovePlan
from fairway.plan.scheduling.queueing import queue_rule
from fairway.plan.scheduling.queueing.waiting_room import WaitingLine, WaitingLineKey
from fairway.plan.scheduling.scheduler import Scheduler
from fairway.plan.scheduling.scheduler_state import SchedulerState
from fairway.plan.task_expansion import another_task, folds_into_one
from fairway.state.job import JobKey, JobState, RunEviction, WaitReason
from fairway.state.phase import JobPhase, TaskPhase
from fairway.state.queue import QueueUsage
from fairway.state.snapshot import PlannerSnapshot
from fairway.state.task import Task

MOST_EXPLAINED = 200
"""Maximum number of waiting runs whose reason for waiting is updated after each change, counted over whole lines."""
HOLDS = 0.5
"""Seconds for which an empty decision stays valid while nothing changes; shares and ages change slowly."""


@dataclass(slots=True)
class SchedulerSync:
    """A scheduler, and how far it has processed the state's changes."""

    scheduler: Scheduler
    tick: int = 0
    """Snapshot changes up to this tick have been applied to the scheduler."""
    told: dict[WaitingLineKey, tuple[str, str]] = field(default_factory=dict)
    """By line: the reason and message that all of its runs have in their `WaitReason`."""
    nothing_until: float = float("-inf")
    """No decision is needed before this time unless a change is applied."""
    wake_at: float | None = None
    """When the scheduler must decide again even without a change."""

    def tell(self, delta: Delta, now: float) -> None:
        """Apply a change to the scheduler."""
        self.scheduler.apply(delta, now)
        self.nothing_until = float("-inf")


def follow(snapshot: PlannerSnapshot) -> SchedulerSync:
    """Return a scheduler rebuilt from the snapshot's memory."""
    return SchedulerSync(Scheduler(scheduler_memory.decode(snapshot.memory)))


def schedule(
    draft: EnginePlanDraft, waiting: Set[JobKey], looked: Collection[JobKey] | None, follower: SchedulerSync | None
) -> SchedulerSync | None:
    """Start the runs that fit, evict runs where a waiting run may preempt them, and record why the others wait.

    `looked`: the runs that may have started or stopped waiting; None: any run may have, and some may be removed.
    """
    if follower is None:
        looked = None
        if not waiting and not draft.snapshot.holding and not draft.snapshot.memory:
            return None
        follower = follow(draft.snapshot)
    changed = catch_up(draft, waiting, looked, follower)
    if draft.now >= follower.nothing_until:
        _decide(draft, follower, changed)
    if follower.wake_at is not None:
        draft.wake(follower.wake_at)
    return follower


def _decide(draft: EnginePlanDraft, follower: SchedulerSync, changed: Collection[JobKey]) -> None:
    decision = follower.scheduler.decide(draft.now)
    forecast_record.settle(follower.scheduler.ledger, draft.now)
    for start in decision.starts:
        _start(draft, start)
    for eviction in decision.evictions:
        _make_room(draft, eviction)
    _say_why(draft, follower, changed)
    follower.wake_at = decision.wake_at
    kept = follower.scheduler.ledger.memory.encode()
    draft.memory = kept if kept != draft.snapshot.memory else None
    if decision.empty and draft.memory is None:
        # A new reservation may let other runs start, so only a decision that changed nothing at all stays valid.
        follower.nothing_until = min(draft.now + HOLDS, decision.wake_at or float("inf"))


def move(snapshot: PlannerSnapshot, now: float, follower: SchedulerSync, moves: MovePlan) -> EnginePlan:
    """Evict the runs that move; the scheduler reserves the planned places for them."""
    draft = EnginePlanDraft(snapshot, now)
    follower.nothing_until = float("-inf")
    for eviction in follower.scheduler.move(moves, now).evictions:
        _make_room(draft, eviction)
    draft.memory = follower.scheduler.ledger.memory.encode()
    return draft.finish()


def standing(scheduler: Scheduler, snapshot: PlannerSnapshot, name: str, now: float) -> QueueUsage:
    """Return a queue's standing: its runs from the snapshot, its usage from the scheduler."""
    ledger = scheduler.ledger
    members = {key for key, job in snapshot.jobs.items() if job.spec.queue == name}
    running_keys = members & {task.run for task in snapshot.holding}
    dominant, share = ledger.accounts.dominant(name)
    return QueueUsage(
        name=name,
        running=len(running_keys),
        waiting=len(members - running_keys),
        used=dict(ledger.accounts.used.get(name, {})),
        dominant=dominant,
        share=share,
        usage=ledger.accounts.recent(name, now),
        borrowed=queue_rule.borrowed(ledger.queue(name), ledger.accounts),
    )


def catch_up(
    draft: EnginePlanDraft, waiting: Set[JobKey], looked: Collection[JobKey] | None, follower: SchedulerSync
) -> set[JobKey]:
    """Apply the changes since the last call to the scheduler; return the runs that may have changed."""
    _tell_places(draft.snapshot, follower, draft.now)
    ledger = follower.scheduler.ledger
    jobs = draft.snapshot.jobs
    changed = {*draft.snapshot.changed_since(follower.tick), *draft.jobs, *draft.tasks}
    if looked is None:
        changed |= (ledger.running.keys() - jobs.keys()) | (waiting ^ ledger.room.keys())
    else:
        changed.update(looked)
    follower.tick = draft.snapshot.tick
    for key in sorted(changed):
        _tell_run(draft, key, follower, asks=key in waiting)
    if looked is None:
        seat_reservation.drop_idle(ledger, waiting)
    ledger.forget_others(lambda key: key in jobs and draft.job(key).ending is None)
    return changed


def _tell_places(snapshot: PlannerSnapshot, follower: SchedulerSync, now: float) -> None:
    ledger = follower.scheduler.ledger
    present = {node.name for node in snapshot.nodes}
    for name in [name for name in ledger.nodes if name not in present]:
        follower.tell(NodeRemoved(name), now)
    for node in snapshot.nodes:
        if ledger.nodes.get(node.name) != node:
            follower.tell(NodeChanged(node), now)
    for name in [name for name in ledger.queues if name not in snapshot.queues]:
        follower.tell(QueueRemoved(name), now)
    for queue in snapshot.queues.values():
        if ledger.queues.get(queue.name) != queue:
            follower.tell(QueueDefined(queue), now)


def _tell_run(draft: EnginePlanDraft, key: JobKey, follower: SchedulerSync, *, asks: bool) -> None:
    ledger, now = follower.scheduler.ledger, draft.now
    job = draft.jobs.get(key) or draft.snapshot.jobs.get(key)
    tasks = draft.tasks_of(key) if job is not None else []
    before = ledger.running.get(key)
    running = scheduler_request.running_of(job, tasks, ledger.nodes, before, now) if job is not None else None
    if running is None and before is not None:
        at = max((task.finished for task in tasks if task.finished is not None), default=now)
        finished = job is not None and JobPhase.SUCCEEDED in (job.phase, job.ending)
        follower.tell(RunStopped(key, at, finished), now)
    elif running is not None and running != before:
        follower.tell(RunPlaced(running), now)
    if asks and job is not None:
        request = scheduler_request.request_of(job, tasks, draft.capacity_cpu)
        if ledger.room.get(key) != request:
            follower.tell(RunWaiting(request), now)
    elif key in ledger.room:
        follower.tell(RunWithdrawn(key), now)


def _start(draft: EnginePlanDraft, start: StartDecision) -> None:
    job = draft.job(start.key)
    current = [task for task in draft.tasks_of(job.key) if not task.phase.over]
    running = [task for task in current if task.phase.holds_resources]
    pending = [task for task in current if task.phase is TaskPhase.PENDING]
    seated, unused = scheduler_request.seat_tasks(pending, start.seats)
    extra = [
        replace(another_task(job, seat.role, seat.index, current, draft.now), node=seat.node, devices=seat.devices)
        for seat in unused
    ]
    placed = [replace(task, phase=TaskPhase.PLACED, message="") for task in [*seated, *extra]]
    sizes = {name: sum(task.key.role == name for task in [*placed, *running]) for name in job.spec.roles}
    if folds_into_one(job):
        sizes = job.sizes
    job = replace(job, phase=JobPhase.STARTING, hold=None, not_before=None, sizes=sizes)
    draft.put_job(job)
    for task in placed:
        draft.put_task(task)
    draft.actions.extend(CreateTask(job, task) for task in extra)
    draft.actions.append(BindGang(job, tuple(placed), tuple(running)))
    draft.tell(job.key, "Placed", _where(placed))


def _where(placed: Sequence[Task]) -> str:
    nodes = sorted({task.node for task in placed})
    devices = sum(task.need.gpu for task in placed)
    on_devices = f", {devices:g} GPU{'' if devices == 1 else 's'}" if devices else ""
    return f"{len(placed)} task{'' if len(placed) == 1 else 's'} on {', '.join(nodes)}{on_devices}"


def _make_room(draft: EnginePlanDraft, eviction: EvictDecision) -> None:
    message = wait_explanation.eviction(eviction)
    leaving = RunEviction(eviction.cause.value, message, draft.now, dict(eviction.sizes))
    job_plan.make_room(draft, draft.job(eviction.key), leaving)


def _say_why(draft: EnginePlanDraft, follower: SchedulerSync, changed: Collection[JobKey]) -> None:
    """Set a `WaitReason` on every waiting run. Beyond `MOST_EXPLAINED` runs it is set once and not updated."""
    ledger, before = follower.scheduler.ledger, follower.told
    lines = sorted(ledger.room.lines(), key=lambda line: line.rank())
    follower.told = {}
    changed_by_line = _by_line(ledger, changed)
    heads = _explained(lines)
    obstacles_by_line, spared = wait_explanation.obstacles(ledger, heads, draft.now), preemption.sparing(ledger, heads, draft.now)
    for line in lines:
        head = line.first()
        assert head is not None
        obstacle = obstacles_by_line.get(line.key)
        hold = WaitReason("queue", "waits behind many others")
        if obstacle is not None:
            hold = wait_explanation.hold(head, obstacle, ledger.nodes, spared.get(head.key, ()))
        text = follower.told[line.key] = (hold.reason, hold.message)
        # When the text is unchanged, only runs that changed need it; the line's other runs have it already.
        listeners = (
            changed_by_line.get(line.key, []) if before.get(line.key) == text else [member.key for member in line.in_order()]
        )
        for key in listeners:
            job = draft.job(key)
            if obstacle is not None or job.hold is None:
                _hold(draft, job, hold)


def _explained(lines: Iterable[WaitingLine]) -> list[GangRequest]:
    """Return the first request of each line, until the lines hold `MOST_EXPLAINED` runs."""
    count, heads = 0, []
    for line in lines:
        head = line.first()
        if count >= MOST_EXPLAINED or head is None:
            break
        heads.append(head)
        count += len(line.members)
    return heads


def _by_line(ledger: SchedulerState, keys: Collection[JobKey]) -> dict[WaitingLineKey, list[JobKey]]:
    """Return the waiting runs among `keys` by line, in the order of each line."""
    by_line: dict[WaitingLineKey, list[JobKey]] = {}
    for line in {id(line): line for key in keys if (line := ledger.room.line_at(key)) is not None}.values():
        by_line[line.key] = [request.key for request in line.in_order() if request.key in keys]
    return by_line


def _hold(draft: EnginePlanDraft, job: JobState, hold: WaitReason) -> None:
    if job.hold is not None and (job.hold.reason, job.hold.message) == (hold.reason, hold.message):
        return
    if job.hold is None or job.hold.reason != hold.reason:
        draft.tell(job.key, "Waiting", hold.message)
    draft.put_job(replace(job, hold=replace(hold, since=job.hold.since if job.hold else draft.now)))
