"""The loop: observe -> fold -> plan -> store -> perform. It works from the current state, never from an event."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import replace

from fairway.app.loop.companion import CompanionSet
from fairway.app.loop.contained_engine import ContainedEngine
from fairway.app.loop.fault_register import ENGINE, LOOP, SCHEDULER, STORE, FaultRegister
from fairway.app.loop.observation_fold import ReportingRuns, folded_runs, folded_tasks, refusals
from fairway.app.loop.partial_commit import commit_each
from fairway.app.loop.planner import HOLDING, LoopPlanner
from fairway.app.loop.run_recovery import RunRecovery
from fairway.app.loop.run_watcher import RunWatchers
from fairway.app.loop.stall_detector import StallDetector
from fairway.app.port.port import ChangeSet, Clock, Engine, Observation, Store
from fairway.plan import scheduler_sync
from fairway.plan.action import ForgetJob, ForgetLogs
from fairway.plan.action_replay import recover
from fairway.plan.plan import EnginePlan
from fairway.plan.scheduling.preemption.defragmentation import MovePlan, plan_moves
from fairway.plan.scheduling.scheduler import Scheduler
from fairway.state.job import JobKey, JobState
from fairway.state.phase import JobPhase, TaskPhase
from fairway.state.queue import QueueUsage, by_name
from fairway.state.snapshot import PlannerSnapshot
from fairway.state.task import Task, TaskKey

MEASURE_EVERY = 1.0
"""Interval at which the metrics of running jobs are read, in seconds."""
NODES_EVERY = 1.0
"""Seconds for which the list of nodes is reused while a run waits."""
SWEEP_EVERY = 3600.0
"""Interval at which runs with expired retention are removed, in seconds."""
SWEEP_BATCH = 20
SWEEP_PAUSE = 1.0
"""At most `SWEEP_BATCH` runs are removed at once; then the loop does other work for this many seconds."""
MEASURED = frozenset({JobPhase.RUNNING, JobPhase.STARTING, JobPhase.STOPPING})
MOST_ROUNDS = 50
"""Maximum number of planning rounds in one turn, before commands get the lock."""


class ReconcileLoop:
    """Owns the snapshot. Commands change it under `lock`; the loop does the rest.

    A failure is contained to its object (`faults`): a run, a service, a queue or a companion that fails is retried with back-off,
    and everything else continues in the same turn.
    """

    def __init__(self, store: Store, engine: Engine, clock: Clock, *, places: bool = True) -> None:
        self.places = places
        """Whether the plan places tasks on nodes; otherwise the cluster's scheduler does."""
        self.store = store
        self.engine = engine
        self.clock = clock
        self.faults = FaultRegister(clock)
        self.snapshot = PlannerSnapshot()
        self.stalls = StallDetector(self.faults)
        self.companions = CompanionSet(self.faults)
        self.watchers = RunWatchers(self.faults)
        self.faults.noted.append(self._tell_fault)
        self.lock = asyncio.Lock()
        self._calls = ContainedEngine(engine, self.faults)
        self._planner = LoopPlanner(self.snapshot, self.faults, places=places)
        self._wake = asyncio.Event()
        self._closing = False
        self._measured = 0.0
        self._spoken = ReportingRuns()
        self._seen: list[Observation] = []
        """Measured and not yet stored: an engine returns each point only once."""
        self._unsaved: dict[TaskKey, Task] = {}
        """Values of tasks that are in the snapshot and are stored with the next commit, in the same turn."""
        self._swept = float("-inf")
        self._nodes_at = float("-inf")
        self.take_up: RunRecovery | None = None
        """Reconciles the store with what the engine keeps, at the start."""

    def wake(self) -> None:
        """Start another turn: something may have changed."""
        self._wake.set()

    async def start(self) -> None:
        """Load the stored state, read the engine's state, and repeat actions that may have been lost."""
        await self.engine.start(self.wake)
        if self.take_up is not None:
            await self.take_up.run()
        self.snapshot.queues = by_name(self.store.queues())
        self.snapshot.memory = self.store.memory() or b""
        for job in self.store.active_jobs():
            with self.faults.contain(str(job.key), "load"):
                self._take([job], self.store.tasks_of(job.key))
        await self.refresh_nodes()
        await self._adopt(recover(self.snapshot, self.clock.now()))
        self._remember(ChangeSet())
        await self.companions.start()

    async def run(self) -> None:
        """Run turns until closed."""
        while not self._closing:
            self._wake.clear()
            wake_at: float | None = self.clock.now() + 1.0
            with self.faults.contain(LOOP, "turn"):
                async with self.lock:
                    wake_at = await self.turn()
                    if self.clock.now() >= self._swept + SWEEP_EVERY:
                        await self.sweep()
            wake_at = min(self._swept + SWEEP_EVERY, float("inf") if wake_at is None else wake_at)
            timeout = max(0.0, wake_at - self.clock.now())
            try:
                # Not `wait_for`: in Python 3.11 it loses a cancellation that arrives in the same moment as the wake-up.
                async with asyncio.timeout(timeout):
                    await self._wake.wait()
            except TimeoutError:
                continue

    async def close(self) -> None:
        """Stop the loop. Tasks continue."""
        self._closing = True
        self.wake()
        self.watchers.close()
        await self.companions.close()
        await self.engine.close()

    async def sweep(self) -> None:
        """Remove runs and logs whose retention has expired, a few at a time."""
        now = self.clock.now()
        logs, records = self.store.expired(now, SWEEP_BATCH)
        full = SWEEP_BATCH in (len(logs), len(records))
        self._swept = now - SWEEP_EVERY + SWEEP_PAUSE if full else now
        for job in records:
            with self.faults.contain(str(job.key), "expire"):
                await self.delete(job.key)
        deleted = {job.key for job in records}
        for job in logs:
            if job.key not in deleted:
                with self.faults.contain(str(job.key), "expire logs"):
                    await self.engine.perform([ForgetLogs(job.key)])
                    self.store.commit(ChangeSet(jobs=(replace(job, logs_gone=True),)))

    async def turn(self) -> float | None:
        """Run one turn, until there is nothing more to do now. Return the time of the next turn."""
        began = self.clock.now()
        await self._observe()
        later = await self.companions.turn()
        retried = await self._retry()
        plan = EnginePlan()
        with self._planner.carrying_out():
            for _ in range(MOST_ROUNDS):
                if self.faults.of(ENGINE) or any(_waits_for_nodes(job) for job in self.snapshot.jobs.values()):
                    await self.refresh_nodes()
                plan = self._planner.plan(self.clock.now())
                if plan.empty:
                    break
                await self._adopt(plan)
        self._settle(retried)
        self.watchers.tell(self._remember(ChangeSet()))
        if self.companions.have_news():
            self.wake()
        self._forget_finished()
        times = [*later, self._next_look(plan), self.faults.next_retry(began)]
        return min((at for at in times if at is not None), default=None)

    async def refresh_nodes(self) -> None:
        """Read the nodes from the engine, unless they were read just now."""
        now = self.clock.now()
        if now >= self._nodes_at + NODES_EVERY:
            self.snapshot.nodes = await self._calls.nodes(self.snapshot.nodes)
            self._nodes_at = now

    @property
    def scheduler(self) -> Scheduler | None:
        """The scheduler that decided last, for queries; None before the first decision. Callers must not change it."""
        return self._planner.scheduler

    async def move(self, budget: int, *, carry_out: bool) -> MovePlan | None:
        """Return the fewest moves that let a waiting gang start now; None if there are none. With `carry_out`, perform them."""
        async with self.lock:
            await self.turn()
            follower, now = self._planner.follower, self.clock.now()
            move_plan = plan_moves(follower.scheduler.ledger, now, budget) if follower is not None else None
            if move_plan is not None and follower is not None and carry_out:
                with self._planner.carrying_out():
                    await self._adopt(scheduler_sync.move(self.snapshot, now, follower, move_plan))
                self.watchers.tell(self._remember(ChangeSet()))
                self.wake()
            return move_plan

    def position(self, key: JobKey) -> int:
        """Return the run's position in its queue, 1 for the next; 0 when it does not wait."""
        room = self.scheduler.ledger.room if self.scheduler is not None else None
        return 1 + room.ahead_of(key) if room is not None and key in room else 0

    def standing(self, name: str) -> QueueUsage:
        """Return the current usage and backlog of a queue."""
        follower = self._planner.follower or scheduler_sync.follow(self.snapshot)
        return scheduler_sync.standing(follower.scheduler, self.snapshot, name, self.clock.now())

    async def _observe(self) -> None:
        held_back = self._planner.held_back()
        alive = [task for run, tasks in self.snapshot.tasks.items() if run not in held_back for task in tasks.values()]
        alive = [task for task in alive if not task.phase.over]
        watched = [task.key for task in alive if task.phase is not TaskPhase.PENDING or not task.ready]
        tasks = folded_tasks(self.snapshot, await self._calls.observe(watched), self.faults)
        ended = {task.key.run for task in tasks if task.phase.over}
        running = [job for job in self.snapshot.jobs.values() if job.phase in MEASURED]
        now = self.clock.now()
        if now >= self._measured + MEASURE_EVERY:
            self._measured = now
        else:
            running = [job for job in running if job.key in ended]
        if running:
            self._seen.extend(self._spoken.counting(observation) for observation in await self._calls.measure(running))
        jobs, points = folded_runs(self.snapshot, self._seen, self.faults)
        events = refusals(self._seen, now)
        stalled, stall_events = self.stalls.note({**self.snapshot.jobs, **{job.key: job for job in jobs}}, self._seen, now)
        jobs = [*{job.key: job for job in (*jobs, *stalled)}.values()]
        events = (*events, *stall_events)
        if tasks or jobs or points or events:
            changes = ChangeSet(jobs=tuple(jobs), tasks=tuple(tasks), points=tuple(points), events=events)
            stored = self._remember(changes)
            self._take([job for job in jobs if job.key in stored], [task for task in tasks if task.key.run in stored])
            self.watchers.tell(stored)
        self._seen.clear()

    async def report(self, seen: Observation) -> None:
        """Store metrics that a run reports itself, at once. Consequences are planned in the next turn."""
        seen = self._spoken.counting(seen)
        async with self.lock:
            jobs, _ = folded_runs(self.snapshot, [seen], self.faults)
            points = [(seen.key, point) for point in seen.points]
            self.store.commit(ChangeSet(jobs=tuple(jobs), points=tuple(points), events=refusals([seen], self.clock.now())))
            self._take(jobs, ())
        self.watchers.tell([seen.key])

    async def _retry(self) -> dict[tuple[str, str], int]:
        """Retry runs whose back-off is over. Return their faults, each with its number of failures so far."""
        due = self.faults.take_due()
        for fault in due:
            if fault.work == "load":
                with self.faults.contain(fault.subject, "load"):
                    self.load(JobKey(*fault.subject.split("/", 1)))
        failed = {(fault.subject, fault.work): fault.tries for fault in due if fault.work in HOLDING}
        if not failed:
            return {}
        subjects = {subject for subject, _ in failed}
        runs = [key for key, job in self.snapshot.jobs.items() if subjects & {str(key), f"queue:{job.spec.queue}"}]
        for key in runs:
            self._planner.retry(key)
            if (str(key), "store") in failed:
                self._remember(ChangeSet(jobs=(self.snapshot.jobs[key],), tasks=tuple(self.snapshot.tasks_of(key))))
        to_recover = [key for key in runs if (str(key), "perform") in failed]
        if to_recover:
            await self._adopt(recover(self.snapshot, self.clock.now(), to_recover))
            # The result of these actions is observed in the next turn, and nothing else may cause that turn.
            self.wake()
        if SCHEDULER in subjects:
            self._remember(ChangeSet(memory=self.snapshot.memory))
        return failed

    def load(self, key: JobKey) -> None:
        """Load an active run that could not be loaded before; raises the store's error if it still cannot be read."""
        job = self.store.get_job(key)
        if job is not None and not job.phase.over and key not in self.snapshot.jobs:
            self._take([job], self.store.tasks_of(key))
            self._planner.reset()

    def _settle(self, retried: dict[tuple[str, str], int]) -> None:
        """End the faults of runs that were retried and did not fail again."""
        for (subject, work), tries in retried.items():
            current = next((fault for fault in self.faults.of(subject) if fault.work == work), None)
            if current is not None and current.tries == tries:
                self.faults.clear(subject, work)

    def _take(self, jobs: Iterable[JobState], tasks: Iterable[Task]) -> None:
        """Put values into the snapshot; only values that are already stored, so that a failed commit is retried."""
        for job in jobs:
            self.snapshot.put_job(job)
        for task in tasks:
            self.snapshot.put_task(task)

    async def _adopt(self, plan: EnginePlan) -> None:
        """Store the plan, then perform it. Actions that were stored but not performed are repeated after a restart."""
        plan = plan.without(self._planner.held_back())
        touched = self._remember(ChangeSet(jobs=plan.jobs, tasks=plan.tasks, events=plan.events, memory=plan.memory))
        plan = plan.without(self._planner.held_back())
        self._take(plan.jobs, plan.tasks)
        if plan.actions:
            reports, failed = await self._calls.perform(plan.actions)
            changes = folded_tasks(self.snapshot, reports, self.faults)
            # A crash before the next commit loses nothing: the engine reports the changes again.
            self._unsaved |= {task.key: task for task in changes}
            self._take((), changes)
            if failed:
                self._planner.reset()
        for key in plan.deleted:
            with self.faults.contain(str(key), "delete"):
                await self.delete(key)
                self._release(key)
        self.watchers.tell(touched)

    def _remember(self, changes: ChangeSet) -> set[JobKey]:
        """Commit changes, including those that wait for the next commit. Return the runs of which something was stored.

        What cannot be stored is dropped and becomes a fault of its run. Raises only if the store accepts nothing.
        """
        # A task's value in these changes is newer than one that waits.
        tasks = {**self._unsaved, **{task.key: task for task in changes.tasks}}
        events = self.faults.take_events()
        whole = replace(changes, tasks=tuple(tasks.values()), events=(*changes.events, *events))
        try:
            rejected = commit_each(self.store, whole, self.clock.now())
        except Exception as problem:
            self.faults.put_back(events)
            self.faults.fail(STORE, "commit", problem)
            raise
        self.faults.clear(STORE, "commit")
        self._unsaved.clear()
        if changes.memory is not None and not rejected.runs:
            self.snapshot.memory = changes.memory
        touched = {job.key for job in changes.jobs} | {task.run for task in tasks}
        if rejected:
            self._planner.reset()
            for run, cause in rejected.runs.items():
                self.faults.fail(str(run), "store", cause)
            for run, cause in rejected.points.items():
                self.faults.fail(str(run), "store metrics", cause)
            if rejected.memory is not None:
                self.faults.fail(SCHEDULER, "store", rejected.memory)
            if rejected.rest is not None:
                self.faults.fail(STORE, "commit events", rejected.rest)
        for run in {key for key, _ in changes.points} - rejected.points.keys():
            self.faults.clear(str(run), "store metrics")
        return touched - rejected.runs.keys()

    def _forget_finished(self) -> None:
        for key, job in list(self.snapshot.jobs.items()):
            if job.phase.over:
                self._release(key)
                self.watchers.tell_over(job)

    def _release(self, key: JobKey) -> None:
        self.snapshot.forget(key)
        self._spoken.forget(key)
        self.faults.clear(str(key))
        with self.faults.contain(ENGINE, "release"):
            self.engine.release(key)

    async def delete(self, key: JobKey) -> None:
        """Delete a finished run.

        First its files, then the record, so that the deletion can be repeated after a crash in between.
        """
        await self.engine.perform([ForgetJob(key)])
        self.store.commit(ChangeSet(deleted=(key,)))
        self.faults.clear(str(key))
        self.watchers.tell([key])

    def _tell_fault(self, subject: str) -> None:
        """Wake commands that wait for the run, so that they see its fault."""
        key = next((key for key in self.snapshot.jobs if str(key) == subject), None)
        if key is not None:
            self.watchers.tell([key])

    async def delete_by_force(self, key: JobKey) -> None:
        """Delete a run whose work keeps failing: end its processes and remove its files without a plan."""
        await self.delete(key)
        self._release(key)
        self._planner.reset()

    def _next_look(self, plan: EnginePlan) -> float | None:
        running = any(job.phase in (JobPhase.RUNNING, JobPhase.STOPPING) for job in self.snapshot.jobs.values())
        times = [] if plan.wake_at is None else [plan.wake_at]
        if running:
            times.append(self._measured + MEASURE_EVERY)
        # There is no notification when another home or program releases a device.
        if any(job.hold is not None and job.hold.reason == "gpu" for job in self.snapshot.jobs.values()):
            times.append(self.clock.now() + NODES_EVERY)
        return min(times) if times else None


def _waits_for_nodes(job: JobState) -> bool:
    """Return whether the run's progress depends on the nodes. An engine refuses a start if a device was taken in the meantime."""
    return job.phase is JobPhase.PENDING or (job.hold is not None and job.hold.reason == "refused")
