"""The one loop: observe -> fold -> plan -> remember -> perform, from what *is*, never from what was just heard."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Protocol

from fairway.app.ports import Changes, Clock, Engine, MetricPoint, Observation, Store
from fairway.plan import cycle, queue
from fairway.plan.action import ForgetJob, ForgetLogs
from fairway.plan.plan import Plan
from fairway.plan.recover import recover
from fairway.plan.scheduling.defragment import MovePlan, plan_moves
from fairway.plan.scheduling.scheduler import Scheduler
from fairway.state.fold import fold_checkpoint, fold_progress, fold_report
from fairway.state.job import Job, JobKey
from fairway.state.phase import JobPhase, TaskPhase
from fairway.state.queue import QueueStanding, by_name
from fairway.state.snapshot import Snapshot
from fairway.state.task import Task, TaskKey, TaskReport
from fairway.units.roles import leader

MEASURE_EVERY = 1.0
"""Seconds between two looks at the metrics of running jobs."""
NODES_EVERY = 1.0
"""Seconds for which the list of nodes is trusted while something waits."""
SWEEP_EVERY = 3600.0
"""Seconds between two looks for what has stayed its time."""
SWEEP_BATCH = 20
SWEEP_PAUSE = 1.0
"""So many runs are forgotten at once; then others get this many seconds."""
MEASURED = frozenset({JobPhase.RUNNING, JobPhase.STARTING, JobPhase.STOPPING})
MOST_ROUNDS = 50
"""Planning again at once, this often at most, before others get a turn."""

log = logging.getLogger("fairway.loop")


class Companion(Protocol):
    """Somebody whose work is part of every turn: it makes runs and ends them, and the loop does the rest."""

    async def start(self) -> None:
        """Take up what was remembered; the snapshot is there."""
        ...

    async def turn(self) -> float | None:
        """Look, plan and act, under the loop's lock. Returns when to look again."""
        ...

    def has_news(self) -> bool:
        """Whether the rest of the turn did something that it waits for, so that another turn must follow at once."""
        ...

    async def close(self) -> None:
        """Let go."""
        ...


class Loop:
    """Owns the snapshot. Commands change it under `lock`; the loop does the rest."""

    def __init__(self, store: Store, engine: Engine, clock: Clock, *, places: bool = True) -> None:
        self.places = places
        """Whether the plan says where tasks go; otherwise a cluster's scheduler does."""
        self.store = store
        self.engine = engine
        self.clock = clock
        self.snapshot = Snapshot()
        self.companions: list[Companion] = []
        self.lock = asyncio.Lock()
        self._wake = asyncio.Event()
        self._closing = False
        self._measured = 0.0
        self._seen: list[Observation] = []
        """Measured and not yet remembered: an engine hands each point over once."""
        self._unsaved: dict[TaskKey, Task] = {}
        """Values of tasks that the snapshot has and the store gets with the next commit, in the same turn."""
        self._swept = float("-inf")
        self._nodes_at = float("-inf")
        self._outlooks = cycle.Outlooks()
        self._watchers: dict[JobKey, set[asyncio.Future[None]]] = {}
        self.changes: list[Callable[[JobKey], None]] = []
        """Called with the key of every run of which something has changed. They must not wait."""
        self.over: list[Callable[[Job], None]] = []
        """Called with every run that has ended, once it is remembered so. They must not wait, and a crash may skip them."""

    def wake(self) -> None:
        """Something may have changed: look again."""
        self._wake.set()

    async def start(self) -> None:
        """Load what was remembered, look at what is, and say again what may have been lost."""
        await self.engine.start(self.wake)
        await self._remove_strays()
        self.snapshot.queues = by_name(self.store.queues())
        self.snapshot.memory = self.store.memory() or b""
        for job in self.store.active_jobs():
            self.snapshot.put_job(job)
            for task in self.store.tasks_of(job.key):
                self.snapshot.put_task(task)
        await self.refresh_nodes()
        await self._adopt(recover(self.snapshot, self.clock.now()))
        self._remember(Changes())
        for companion in self.companions:
            await companion.start()

    async def _remove_strays(self) -> None:
        """What an engine keeps of a run that was never remembered is nobody's: the daemon died in the middle of a submit."""
        known = self.store.job_keys()
        strays = [key for key in await self.engine.kept() if key not in known]
        await self.engine.perform([ForgetJob(key) for key in strays])

    async def run(self) -> None:
        """Turn until closed."""
        while not self._closing:
            self._wake.clear()
            try:
                async with self.lock:
                    wake_at = await self.turn()
                    if self.clock.now() >= self._swept + SWEEP_EVERY:
                        await self.sweep()
            except Exception:  # The loop must survive whatever one turn meets; it re-plans from what is.
                log.exception("a turn of the loop failed; it is tried again in a second")
                wake_at = self.clock.now() + 1.0
            wake_at = min(self._swept + SWEEP_EVERY, wake_at or float("inf"))
            timeout = max(0.0, wake_at - self.clock.now())
            try:
                # Not `wait_for`: in Python 3.11 one that is cancelled and woken in the same moment forgets that it was cancelled.
                async with asyncio.timeout(timeout):
                    await self._wake.wait()
            except TimeoutError:
                continue

    async def close(self) -> None:
        """Stop turning. Tasks go on."""
        self._closing = True
        self.wake()
        for waiting in self._watchers.values():
            for future in waiting:
                future.cancel()
        for companion in self.companions:
            await companion.close()
        await self.engine.close()

    async def sweep(self) -> None:
        """Forget what has stayed its time, a few runs at a time: nobody waits for it."""
        now = self.clock.now()
        logs, records = self.store.expired(now, SWEEP_BATCH)
        full = SWEEP_BATCH in (len(logs), len(records))
        self._swept = now - SWEEP_EVERY + SWEEP_PAUSE if full else now
        for job in records:
            await self.delete(job.key)
        gone = {job.key for job in records}
        for job in logs:
            if job.key not in gone:
                await self.engine.perform([ForgetLogs(job.key)])
                self.store.commit(Changes(jobs=(replace(job, logs_gone=True),)))

    async def turn(self) -> float | None:
        """One turn, to the point where nothing more is to be done now. Returns when to look again."""
        await self._observe()
        later = [await companion.turn() for companion in self.companions]
        plan = Plan()
        with self._carrying_out():
            for _ in range(MOST_ROUNDS):
                if any(_waits_for_nodes(job) for job in self.snapshot.jobs.values()):
                    await self.refresh_nodes()
                plan = cycle.plan(self.snapshot, self.clock.now(), self._outlooks, places=self.places)
                if plan.empty:
                    break
                await self._adopt(plan)
        self.tell_watchers(self._remember(Changes()))
        if any(companion.has_news() for companion in self.companions):
            self.wake()
        self._forget_finished()
        return min((at for at in [self._next_look(plan), *later] if at is not None), default=None)

    @contextlib.contextmanager
    def _carrying_out(self) -> Iterator[None]:
        """Plan and adopt within; the planner takes what it planned for done, so it begins anew where that is not so."""
        try:
            yield
        except BaseException:  # Also when the turn is cancelled in the middle.
            self._outlooks = cycle.Outlooks()
            raise

    async def refresh_nodes(self) -> None:
        """Ask the engine what there is, unless it was asked just now."""
        now = self.clock.now()
        if now >= self._nodes_at + NODES_EVERY:
            self.snapshot.nodes = await self.engine.nodes()
            self._nodes_at = now

    @property
    def scheduler(self) -> Scheduler | None:
        """What decided last, for questions; None before the first decision. Whoever asks leaves it as it was."""
        follower = self._outlooks.scheduler
        return follower.scheduler if follower is not None else None

    async def move(self, budget: int, *, carry_out: bool) -> MovePlan | None:
        """The fewest moves that let a waiting gang start, as things stand now; None when none do. Told so, carry them out."""
        async with self.lock:
            await self.turn()
            follower, now = self._outlooks.scheduler, self.clock.now()
            found = plan_moves(follower.scheduler.ledger, now, budget) if follower is not None else None
            if found is not None and follower is not None and carry_out:
                with self._carrying_out():
                    await self._adopt(queue.move(self.snapshot, now, follower, found))
                self.tell_watchers(self._remember(Changes()))
                self.wake()
            return found

    def position(self, key: JobKey) -> int:
        """The run's place in its queue, 1 for the next; 0 when it does not wait."""
        follower = self._outlooks.scheduler
        room = follower.scheduler.ledger.room if follower is not None else None
        return 1 + room.ahead_of(key) if room is not None and key in room else 0

    def standing(self, name: str) -> QueueStanding:
        """How a queue stands."""
        follower = self._outlooks.scheduler or queue.follow(self.snapshot)
        return queue.standing(follower.scheduler, self.snapshot, name, self.clock.now())

    async def changed(self, key: JobKey) -> None:
        """Wait until something about the run changes."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._watchers.setdefault(key, set()).add(future)
        try:
            await future
        finally:
            self._watchers.get(key, set()).discard(future)

    def tell_watchers(self, keys: Iterable[JobKey]) -> None:
        """Let everybody who waits for these runs look again."""
        for key in keys:
            for told in self.changes:
                told(key)
            for future in self._watchers.pop(key, set()):
                if not future.done():
                    future.set_result(None)

    async def _observe(self) -> None:
        alive = [task for tasks in self.snapshot.tasks.values() for task in tasks.values() if not task.phase.over]
        watched = [task.key for task in alive if task.phase is not TaskPhase.PENDING or not task.ready]
        tasks = self._folded(await self.engine.observe(watched))
        ended = {task.key.run for task in tasks if task.phase.over}
        running = [job for job in self.snapshot.jobs.values() if job.phase in MEASURED]
        now = self.clock.now()
        if now >= self._measured + MEASURE_EVERY:
            self._measured = now
        else:
            running = [job for job in running if job.key in ended]
        if running:
            self._seen.extend(await self.engine.measure(running))
        jobs, points = self._folded_observations(self._seen)
        if tasks or jobs or points:
            known = self._remember(Changes(jobs=tuple(jobs), tasks=tuple(tasks), points=tuple(points)))
            self._take(jobs, tasks)
            self.tell_watchers(known)
        self._seen.clear()

    async def report(self, seen: Observation) -> None:
        """Remember at once what a run says of itself. What follows from it is planned at the next look."""
        async with self.lock:
            jobs, _ = self._folded_observations([seen])
            self.store.commit(Changes(jobs=tuple(jobs), points=tuple((seen.key, point) for point in seen.points)))
            self._take(jobs, ())
        self.tell_watchers([seen.key])

    def _take(self, jobs: Iterable[Job], tasks: Iterable[Task]) -> None:
        """Into the snapshot with it; only what the store has already, so that a failed commit is tried again."""
        for job in jobs:
            self.snapshot.put_job(job)
        for task in tasks:
            self.snapshot.put_task(task)

    def _folded(self, reports: Iterable[TaskReport]) -> list[Task]:
        """New values of the tasks that the reports change."""
        changed = []
        for report in reports:
            task = self.snapshot.tasks.get(report.key.run, {}).get(report.key)
            folded = fold_report(task, report) if task is not None else None
            if folded is not None and folded != task:
                changed.append(folded)
        return changed

    def _folded_observations(self, observed: Iterable[Observation]) -> tuple[list[Job], list[tuple[JobKey, MetricPoint]]]:
        """New values of the runs that were measured, and their points."""
        jobs: dict[JobKey, Job] = {}
        points: list[tuple[JobKey, MetricPoint]] = []
        for seen in observed:
            before = jobs.get(seen.key) or self.snapshot.jobs.get(seen.key)
            if before is None:
                continue
            points.extend((seen.key, point) for point in seen.points)
            speaker = _speaker(before, {point.task for point in seen.points})
            own = [(point.time, _step_of(point), point.metrics) for point in seen.points if point.task in ("", speaker)]
            folded = fold_progress(before, speaker, own)
            if seen.checkpoint_step is not None:
                folded = fold_checkpoint(folded, seen.checkpoint_step, seen.checkpoint_time)
            if folded != before:
                jobs[seen.key] = folded
        return list(jobs.values()), points

    async def _adopt(self, plan: Plan) -> None:
        """Remember, then do. What is remembered and not done is said again after a restart."""
        touched = self._remember(Changes(jobs=plan.jobs, tasks=plan.tasks, events=plan.events, memory=plan.memory))
        self._take(plan.jobs, plan.tasks)
        if plan.memory is not None:
            self.snapshot.memory = plan.memory
        if plan.actions:
            changes = self._folded(await self.engine.perform(plan.actions))
            # A crash before the next commit loses nothing: the engine says it again.
            self._unsaved |= {task.key: task for task in changes}
            self._take((), changes)
        for key in plan.deleted:
            await self.delete(key)
            self._let_go(key)
        self.tell_watchers(touched)

    def _remember(self, changes: Changes) -> set[JobKey]:
        """Commit, with what waits for the next commit. Returns the runs of which the store knows more now."""
        # What is said now of a task is newer than what was heard of it before.
        tasks = {**self._unsaved, **{task.key: task for task in changes.tasks}}
        self.store.commit(replace(changes, tasks=tuple(tasks.values())))
        self._unsaved.clear()
        return {job.key for job in changes.jobs} | {task.run for task in tasks}

    def _forget_finished(self) -> None:
        for key, job in list(self.snapshot.jobs.items()):
            if job.phase.over:
                self._let_go(key)
                for told in self.over:
                    told(job)

    def _let_go(self, key: JobKey) -> None:
        self.snapshot.forget(key)
        self.engine.release(key)

    async def delete(self, key: JobKey) -> None:
        """Forget a run that is over: first its files, then the record, so that a crash in between can be repeated."""
        await self.engine.perform([ForgetJob(key)])
        self.store.commit(Changes(deleted=(key,)))
        self.tell_watchers([key])

    def _next_look(self, plan: Plan) -> float | None:
        running = any(job.phase in (JobPhase.RUNNING, JobPhase.STOPPING) for job in self.snapshot.jobs.values())
        times = [] if plan.wake_at is None else [plan.wake_at]
        if running:
            times.append(self._measured + MEASURE_EVERY)
        # A device that another home or program holds gives no sign when it is let go.
        if any(job.hold is not None and job.hold.reason == "gpu" for job in self.snapshot.jobs.values()):
            times.append(self.clock.now() + NODES_EVERY)
        return min(times) if times else None


def _waits_for_nodes(job: Job) -> bool:
    """Whether what nodes have decides how it goes on. An engine refuses a start when a device was taken meanwhile."""
    return job.phase is JobPhase.PENDING or (job.hold is not None and job.hold.reason == "refused")


def _step_of(point: MetricPoint) -> int | None:
    """How far it has come by that report. To MLflow's clients a step that nobody named is 0, which says nothing."""
    return None if point.source == "mlflow" and point.step == 0 else point.step


def _speaker(job: Job, reporting: set[str]) -> str:
    """Whose reports count: the leader's as soon as it reports; until then those of the first task that did.

    Not every framework makes the first task its rank 0: MXNet deals ranks out in the order of arrival.
    """
    first = leader(tuple(job.spec.roles))
    if first in reporting:
        return first
    return job.progress.speaker or min(reporting - {""}, default="")
