"""The scheduler in step with the state: changes in, decisions out as places for tasks and as runs that make room."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence, Set
from dataclasses import dataclass, field, replace

from fairway.plan import job as job_plan
from fairway.plan import seating
from fairway.plan.action import BindGang, CreateTask
from fairway.plan.gang import another_task, folds_into_one
from fairway.plan.plan import Draft, Plan
from fairway.plan.scheduling import explain, memory, preempt, reservation, rights, statements
from fairway.plan.scheduling.decision import Evict, Start
from fairway.plan.scheduling.defragment import MovePlan
from fairway.plan.scheduling.delta import Asked, Delta, Left, NodeGone, NodeSeen, QueueGone, QueueSet, Sits, Withdrawn
from fairway.plan.scheduling.ledger import Ledger
from fairway.plan.scheduling.request import Request
from fairway.plan.scheduling.scheduler import Scheduler
from fairway.plan.scheduling.waiting import Line, LineKey
from fairway.state.job import Hold, Job, JobKey, Leaving
from fairway.state.phase import JobPhase, TaskPhase
from fairway.state.queue import QueueStanding
from fairway.state.snapshot import Snapshot
from fairway.state.task import Task

MOST_EXPLAINED = 200
"""So many waiting runs, and those in line with them, are told anew why whenever something changes."""
HOLDS = 0.5
"""Seconds for which it holds that nothing is to be decided; shares and ages change slowly."""


@dataclass(slots=True)
class Follower:
    """A scheduler, and how far it has followed the state."""

    scheduler: Scheduler
    tick: int = 0
    """Every change of the snapshot up to this one was told."""
    told: dict[LineKey, tuple[str, str]] = field(default_factory=dict)
    """Why they wait, as everybody in a line was told."""
    nothing_until: float = float("-inf")
    """Nothing was to be decided, and until then nothing is, unless the scheduler is told something."""
    wake_at: float | None = None
    """When the scheduler wants to decide again in any case."""

    def tell(self, delta: Delta, now: float) -> None:
        """Let the scheduler know of a change."""
        self.scheduler.apply(delta, now)
        self.nothing_until = float("-inf")


def follow(snapshot: Snapshot) -> Follower:
    """A scheduler made anew from what was remembered."""
    return Follower(Scheduler(memory.decode(snapshot.memory)))


def schedule(draft: Draft, waiting: Set[JobKey], looked: Collection[JobKey] | None, follower: Follower | None) -> Follower | None:
    """Start what can start, make room where somebody has a right to it, and say why to the rest.

    `looked`: the runs that may have begun or ceased to wait; None: any may have, and some may be gone.
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


def _decide(draft: Draft, follower: Follower, changed: Collection[JobKey]) -> None:
    decision = follower.scheduler.decide(draft.now)
    statements.settle(follower.scheduler.ledger, draft.now)
    for start in decision.starts:
        _start(draft, start)
    for eviction in decision.evictions:
        _make_room(draft, eviction)
    _say_why(draft, follower, changed)
    follower.wake_at = decision.wake_at
    kept = follower.scheduler.ledger.memory.encode()
    draft.memory = kept if kept != draft.snapshot.memory else None
    if decision.empty and draft.memory is None:
        # What is reserved now may let others start, so only a decision that leaves no trace holds.
        follower.nothing_until = min(draft.now + HOLDS, decision.wake_at or float("inf"))


def move(snapshot: Snapshot, now: float, follower: Follower, moves: MovePlan) -> Plan:
    """Ask those to leave who move; the scheduler sees to it that everybody comes where the plan says."""
    draft = Draft(snapshot, now)
    follower.nothing_until = float("-inf")
    for eviction in follower.scheduler.move(moves, now).evictions:
        _make_room(draft, eviction)
    draft.memory = follower.scheduler.ledger.memory.encode()
    return draft.finish()


def standing(scheduler: Scheduler, snapshot: Snapshot, name: str, now: float) -> QueueStanding:
    """How a queue stands: its runs as they are, what they hold as the scheduler has it."""
    ledger = scheduler.ledger
    own = {key for key, job in snapshot.jobs.items() if job.spec.queue == name}
    sitting = own & {task.run for task in snapshot.holding}
    dominant, share = ledger.accounts.dominant(name)
    return QueueStanding(
        name=name,
        running=len(sitting),
        waiting=len(own - sitting),
        used=dict(ledger.accounts.used.get(name, {})),
        dominant=dominant,
        share=share,
        usage=ledger.accounts.recent(name, now),
        borrowed=rights.borrowed(ledger.queue(name), ledger.accounts),
    )


def catch_up(draft: Draft, waiting: Set[JobKey], looked: Collection[JobKey] | None, follower: Follower) -> set[JobKey]:
    """Tell the scheduler what has changed since it was told last; of which runs something has."""
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
        reservation.drop_idle(ledger, waiting)
    ledger.forget_others(lambda key: key in jobs and draft.job(key).ending is None)
    return changed


def _tell_places(snapshot: Snapshot, follower: Follower, now: float) -> None:
    ledger = follower.scheduler.ledger
    there = {node.name for node in snapshot.nodes}
    for name in [name for name in ledger.nodes if name not in there]:
        follower.tell(NodeGone(name), now)
    for node in snapshot.nodes:
        if ledger.nodes.get(node.name) != node:
            follower.tell(NodeSeen(node), now)
    for name in [name for name in ledger.queues if name not in snapshot.queues]:
        follower.tell(QueueGone(name), now)
    for queue in snapshot.queues.values():
        if ledger.queues.get(queue.name) != queue:
            follower.tell(QueueSet(queue), now)


def _tell_run(draft: Draft, key: JobKey, follower: Follower, *, asks: bool) -> None:
    ledger, now = follower.scheduler.ledger, draft.now
    job = draft.jobs.get(key) or draft.snapshot.jobs.get(key)
    tasks = draft.tasks_of(key) if job is not None else []
    before = ledger.running.get(key)
    sits = seating.running_of(job, tasks, ledger.nodes, before, now) if job is not None else None
    if sits is None and before is not None:
        at = max((task.finished for task in tasks if task.finished is not None), default=now)
        finished = job is not None and JobPhase.SUCCEEDED in (job.phase, job.ending)
        follower.tell(Left(key, at, finished), now)
    elif sits is not None and sits != before:
        follower.tell(Sits(sits), now)
    if asks and job is not None:
        request = seating.request_of(job, tasks, draft.capacity_cpu)
        if ledger.room.get(key) != request:
            follower.tell(Asked(request), now)
    elif key in ledger.room:
        follower.tell(Withdrawn(key), now)


def _start(draft: Draft, start: Start) -> None:
    job = draft.job(start.key)
    current = [task for task in draft.tasks_of(job.key) if not task.phase.over]
    running = [task for task in current if task.phase.holds_resources]
    pending = [task for task in current if task.phase is TaskPhase.PENDING]
    seated, more = seating.seat_tasks(pending, start.seats)
    extra = [
        replace(another_task(job, seat.role, seat.index, current, draft.now), node=seat.node, devices=seat.devices)
        for seat in more
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


def _make_room(draft: Draft, eviction: Evict) -> None:
    message = explain.eviction(eviction)
    leaving = Leaving(eviction.cause.value, message, draft.now, dict(eviction.sizes))
    job_plan.make_room(draft, draft.job(eviction.key), leaving)


def _say_why(draft: Draft, follower: Follower, changed: Collection[JobKey]) -> None:
    """A `Hold` for everybody who waits. Where very many do, the last of them are told only once."""
    ledger, before = follower.scheduler.ledger, follower.told
    lines = sorted(ledger.room.lines(), key=lambda line: line.rank())
    follower.told = {}
    fresh = _by_line(ledger, changed)
    heads = _explained(lines)
    found, spared = explain.obstacles(ledger, heads, draft.now), preempt.sparing(ledger, heads, draft.now)
    for line in lines:
        head = line.first()
        assert head is not None
        obstacle = found.get(line.key)
        hold = Hold("queue", "waits behind many others")
        if obstacle is not None:
            hold = explain.hold(head, obstacle, ledger.nodes, spared.get(head.key, ()))
        text = follower.told[line.key] = (hold.reason, hold.message)
        # What the others were told before still holds.
        listeners = fresh.get(line.key, []) if before.get(line.key) == text else [each.key for each in line.in_order()]
        for key in listeners:
            job = draft.job(key)
            if obstacle is not None or job.hold is None:
                _hold(draft, job, hold)


def _explained(lines: Iterable[Line]) -> list[Request]:
    """The first of each line, as far as there is an answer for everybody."""
    told, found = 0, []
    for line in lines:
        head = line.first()
        if told >= MOST_EXPLAINED or head is None:
            break
        found.append(head)
        told += len(line.members)
    return found


def _by_line(ledger: Ledger, keys: Collection[JobKey]) -> dict[LineKey, list[JobKey]]:
    """Those of the runs that wait, in the order of their line."""
    found: dict[LineKey, list[JobKey]] = {}
    for line in {id(line): line for key in keys if (line := ledger.room.line_at(key)) is not None}.values():
        found[line.key] = [request.key for request in line.in_order() if request.key in keys]
    return found


def _hold(draft: Draft, job: Job, hold: Hold) -> None:
    if job.hold is not None and (job.hold.reason, job.hold.message) == (hold.reason, hold.message):
        return
    if job.hold is None or job.hold.reason != hold.reason:
        draft.tell(job.key, "Waiting", hold.message)
    draft.put_job(replace(job, hold=replace(hold, since=job.hold.since if job.hold else draft.now)))
