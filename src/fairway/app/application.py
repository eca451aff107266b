"""The use cases of Fairway: commands change state, queries read it. All interfaces call this module and nothing below it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import replace

from fairway.app.dataset import DatasetUseCases
from fairway.app.idempotency import IdempotencyKey, IdempotentRequest, ReceiptBook
from fairway.app.loop.loop import ReconcileLoop
from fairway.app.model import ModelUseCases
from fairway.app.port.model_store import ModelStore
from fairway.app.port.port import (
    ChangeSet,
    Clock,
    DatasetStore,
    Engine,
    GroupLookup,
    JobFilter,
    JobPage,
    LogChunk,
    LogQuery,
    MetricPoint,
    SecretStore,
    Store,
)
from fairway.app.port.serving import ServingPorts
from fairway.app.queue import QueueUseCases
from fairway.app.sample import SampleGatherer
from fairway.app.service import ServiceUseCases
from fairway.app.serving.service_turn import ServiceReconciler
from fairway.app.submission import Submission, SubmissionStore, in_order, receipt_of, written
from fairway.app.system.clock import SystemGroups
from fairway.app.wait_forecast import WaitForecaster
from fairway.errors import ConflictError, FairwayError, NeverFitsError, NotFoundError, RefusedError
from fairway.plan import planning_cycle
from fairway.plan.action import ForgetJob
from fairway.plan.admission import never_fits
from fairway.plan.plan import EnginePlan
from fairway.spec.queue import JobQueue
from fairway.state.database_recovery import DatabaseCondition
from fairway.state.event import RunEvent
from fairway.state.job import AttemptHistory, JobKey, JobState, ResumePoint
from fairway.state.node import ClusterNode
from fairway.state.phase import JobPhase, RunIntent, TaskPhase
from fairway.state.queue import Queue
from fairway.state.service import ServiceKey
from fairway.state.task import Task
from fairway.units import names, suggestion


class Application:
    """The use cases on one loop."""

    def __init__(
        self,
        store: Store,
        engine: Engine,
        clock: Clock,
        secrets: SecretStore,
        submissions: SubmissionStore,
        datasets: DatasetStore,
        people: GroupLookup = SystemGroups(),
        models: ModelStore | None = None,
        serving: ServingPorts | None = None,
        *,
        places: bool = True,
    ) -> None:
        self.store = store
        self.engine = engine
        self.clock = clock
        self.secrets = secrets
        self.submissions = submissions
        self.datasets = datasets
        self.loop = ReconcileLoop(store, engine, clock, places=places)
        self.dataset_commands = DatasetUseCases(self.loop, datasets)
        self.queues = QueueUseCases(self.loop, people)
        self.receipts = ReceiptBook(store, clock)
        self.waiting = WaitForecaster(self.loop, self.queues)
        self.models = ModelUseCases(self.loop, models, datasets)
        self.dataset_commands.gone = self.models.free_soon
        self.dataset_commands.catch_up = self.models.catch_up
        self.services: ServiceUseCases | None = None
        """None where serving is not available."""
        if serving is not None:
            turns = ServiceReconciler(self.loop, serving)
            self.loop.companions.append(turns)
            self.services = ServiceUseCases(turns, secrets, submissions)
            self.models.in_use = self.services.serving
            self.models.batching = self.services.batching
        files = serving.samples if serving is not None else None
        self.samples = SampleGatherer(self.loop, files, datasets, self.dataset_commands) if files is not None else None
        self.condition: Callable[[], DatabaseCondition] = DatabaseCondition
        """Return the condition of the database; set by the code that opened it."""
        self._background: set[asyncio.Task[None]] = set()

    # Commands

    async def submit(self, submission: Submission) -> JobState:
        """Queue one run."""
        return (await self.submit_all([submission]))[0]

    async def submit_all(
        self, asked: Sequence[Submission], queues: Sequence[Queue] = (), user: str = "", key: IdempotencyKey | None = None
    ) -> list[JobState]:
        """Queue several runs and store queues on behalf of a user, all or none; with the idempotency key `key`, at most once.

        Refuses runs that can never fit, that name a missing secret, or that their queue does not admit.
        """
        async with self.receipts.once(self._asked_by(key), "submit", *written(map(self._as_asked, asked))) as once:
            if once.over:
                return self._made_before(once)
            return await self._submit(asked, queues, user, once)

    async def _submit(
        self,
        asked: Sequence[Submission],
        queues: Sequence[Queue],
        user: str,
        once: IdempotentRequest,
        standing: Sequence[JobState | None] = (),
    ) -> list[JobState]:
        """Queue the runs. The receipt is committed together with them: a crash before the commit leaves neither."""
        asked = [self._admitted(submission, queues) for submission in asked]
        self._check_secrets(asked)
        if any(submission.document.spec.data for submission in asked):
            # The inputs may be outputs of a run that has just ended.
            await self.models.catch_up()
        await self.loop.refresh_nodes()
        for submission in asked:
            self._check_fit(self._new_job(submission, 0))
        received = [replace(submission, origin=await self.submissions.receive(submission)) for submission in asked]
        jobs = []
        for submission in received:
            meta = submission.document.metadata
            number = names.split_run(submission.run)[1] or self.store.next_number(meta.namespace, meta.name)
            job = self._new_job(submission, number)
            self.submissions.keep(job.key, submission)
            jobs.append(job)
        self.models.expect(jobs)
        async with self.loop.lock:
            queue_changes = self.queues.changes(queues, user)
            await self._remember(jobs, replace(queue_changes, receipts=receipt_of(once, standing, jobs)))
        self.loop.wake()
        self._note_digests([job for job in jobs if job.spec.code.in_place])
        return jobs

    def _asked_by(self, key: IdempotencyKey | None) -> IdempotencyKey | None:
        """Return the idempotency key in its stored form; an override adds the authenticated user where there is one."""
        return key

    def _as_asked(self, submission: Submission) -> Submission:
        """Return the submission as the user wrote it, without the parts that differ when the same submission is sent again."""
        return submission

    def _made_before(self, once: IdempotentRequest) -> list[JobState]:
        """Return the runs created by the first request with this key."""
        assert once.known is not None
        assert once.key is not None
        pairs = [(name, self._current(JobKey(*name.split("/", 1)))) for name in once.known.made]
        deleted = [name for name, job in pairs if job is None]
        if deleted:
            message = f"the key {once.key.text!r} created {', '.join(deleted)}, which was deleted; nothing was changed"
            raise ConflictError(message, fix="use another key to submit it again")
        return [job for _, job in pairs if job is not None]

    def _current(self, key: JobKey) -> JobState | None:
        return self.loop.snapshot.jobs.get(key) or self.store.get_job(key)

    async def publish(self, queues: Sequence[JobQueue]) -> None:
        """Create the queues as objects of a cluster, where the engine has such objects; here they exist only in the store."""

    def objects_of(self, plan: EnginePlan) -> tuple[dict[str, object], ...]:
        """Return the cluster objects that a plan would create; none here."""
        return ()

    async def _remember(self, jobs: Sequence[JobState], put: ChangeSet) -> None:
        now = self.clock.now()
        events = tuple(RunEvent(now, str(job.key), "Submitted", f"by {job.origin.user or 'an unknown user'}") for job in jobs)
        try:
            self.queues.check_there(jobs, put.queues)
            self.store.commit(replace(put, jobs=tuple(jobs), events=(*put.events, *events)))
        except FairwayError:
            await self.engine.perform([ForgetJob(job.key) for job in jobs])
            raise
        self.queues.take(put)
        for job in jobs:
            self.loop.snapshot.put_job(job)

    async def apply(
        self, asked: Sequence[Submission], queues: Sequence[Queue] = (), user: str = "", key: IdempotencyKey | None = None
    ) -> list[tuple[JobState, bool]]:
        """Apply the documents: a series whose newest run has the same spec is left unchanged, any other gets a new run.

        With the idempotency key `key`, this happens at most once. Returns each run, and whether it was created now. Queues are
        stored in the same step, all or none.
        """
        texts = [*written(map(self._as_asked, asked)), *map(repr, queues)]
        async with self.receipts.once(self._asked_by(key), "apply", *texts) as once:
            if once.over and once.known is not None:
                return [(job, str(job.key) not in once.known.left_alone) for job in self._made_before(once)]
            unchanged = [self.standing(submission, queues) for submission in asked]
            new_submissions = [submission for submission, current in zip(asked, unchanged, strict=True) if current is None]
            created: Sequence[JobState] = ()
            if new_submissions or queues:
                created = await self._submit(new_submissions, queues, user, once, unchanged)
            elif once.key is not None:
                self.store.commit(ChangeSet(receipts=receipt_of(once, unchanged, ())))
            return in_order(unchanged, created)

    def standing(self, submission: Submission, queues: Sequence[Queue] = ()) -> JobState | None:
        """Return the newest run of the series if an apply leaves it unchanged.

        It has the same spec and has not failed or been stopped.
        """
        document = self._admitted(submission, queues).document
        newest = self.store.newest(document.metadata.namespace, document.metadata.name)
        if newest is None or newest.spec != document.spec or newest.phase in (JobPhase.FAILED, JobPhase.STOPPED):
            return None
        return newest

    async def preview(self, submission: Submission, queues: Sequence[Queue] = ()) -> EnginePlan:
        """Return the plan that a submit would produce now, as if these queues had been stored before. Changes nothing."""
        submission = self._admitted(submission, queues)
        self._check_secrets([submission])
        await self.loop.refresh_nodes()
        job = self._new_job(submission, 0)
        self._check_fit(job)
        trial = self.loop.snapshot.copy()
        trial.queues.update((queue.name, queue) for queue in queues)
        trial.put_job(job)
        created = planning_cycle.plan(trial, self.clock.now(), places=self.loop.places)
        for task in created.tasks:
            if task.key.run == job.key:
                trial.put_task(replace(task, ready=True))
        placed = planning_cycle.plan(trial, self.clock.now(), places=self.loop.places)
        return EnginePlan(
            jobs=tuple(value for value in placed.jobs if value.key == job.key) or (job,),
            tasks=tuple(task for task in placed.tasks or created.tasks if task.key.run == job.key) or created.tasks,
            actions=(*created.actions, *placed.actions),
            events=tuple(event for event in (*created.events, *placed.events) if event.subject == str(job.key)),
        )

    async def stop(self, key: JobKey, *, now: bool = False) -> JobState:
        """Stop a run: SIGTERM, its grace period, SIGKILL; with `now`, without the grace period.

        Stopping a finished run changes nothing.
        """
        async with self.loop.lock:
            self.loop.load(key)
            job = self.loop.snapshot.jobs.get(key)
            if job is None:
                return self._stored(key)
            spec = job.spec.model_copy(update={"grace": "0s"}) if now else job.spec
            job = replace(job, intent=RunIntent.STOP, spec=spec)
            event = RunEvent(self.clock.now(), str(key), "StopRequested", "at once" if now else f"with a grace of {spec.grace}")
            self.store.commit(ChangeSet(jobs=(job,), events=(event,)))
            self.loop.snapshot.put_job(job)
            self.loop.faults.hurry(str(key))
        self.loop.wake()
        return job

    async def resume(self, key: JobKey, request: IdempotencyKey | None = None) -> JobState:
        """Restart a stopped or failed run from its last checkpoint, with a fresh restart budget.

        With an idempotency key, at most once.
        """
        async with self.receipts.once(self._asked_by(request), "resume", str(key)) as once:
            return self._current(key) or self._stored(key) if once.over else await self._resume(key, once)

    async def _resume(self, key: JobKey, once: IdempotentRequest) -> JobState:
        async with self.loop.lock:
            if key in self.loop.snapshot.jobs:
                message = f"{key.name} is not over, so there is nothing to resume"
                raise ConflictError(message, fix=f"see `fairway get {key.name}`")
            job = self._stored(key)
            if job.phase is JobPhase.SUCCEEDED:
                message = f"{key.name} has succeeded; it cannot be resumed"
                raise ConflictError(message, fix=f"submit a new run of {job.series}")
            self.queues.check_there([job])
            self.models.expect([job])
            tasks = self.store.tasks_of(key)
            step, at = job.progress.checkpoint_step, job.progress.checkpoint_time
            ended = job.finished or self.clock.now()
            job = replace(
                job,
                intent=RunIntent.RUN,
                phase=JobPhase.PENDING,
                attempt=max((task.key.attempt for task in tasks), default=job.attempt) + 1,
                restarts=0,
                outcome=None,
                finished=None,
                started=None,
                hold=None,
                not_before=None,
                last_failure="",
                trail=AttemptHistory(),
                resume=ResumePoint(step, max(0.0, ended - at) if at is not None else None),
            )
            event = RunEvent(self.clock.now(), str(key), "Resumed", self._from_where(job))
            self.store.commit(ChangeSet(jobs=(job,), events=(event,), receipts=once.receipt([key])))
            self.loop.snapshot.put_job(job)
            for task in tasks:
                self.loop.snapshot.put_task(task)
        self.loop.wake()
        return job

    async def delete(self, key: JobKey) -> None:
        """Delete a run with its logs, checkpoints and outputs; a running one is killed first.

        If work on the run keeps failing, it is killed and deleted without a plan. Raises what prevents the engine from doing so.
        """
        async with self.loop.lock:
            job = self.loop.snapshot.jobs.get(key)
            if job is None:
                # Checked by name only, so that a run whose record cannot be read can be deleted.
                if not self.store.has_job(key):
                    raise self._not_found(key.namespace, key.name)
                await self.loop.delete(key)
                return
            if self.loop.faults.of(str(key)):
                await self.loop.delete_by_force(key)
                return
            job = replace(job, intent=RunIntent.STOP, deleting=True, spec=job.spec.model_copy(update={"grace": "0s"}))
            self.store.commit(ChangeSet(jobs=(job,)))
            self.loop.snapshot.put_job(job)
        self.loop.wake()
        while key in self.loop.snapshot.jobs or self.store.get_job(key) is not None:
            await self.loop.watchers.changed(key)
            if self.loop.faults.of(str(key)):
                async with self.loop.lock:
                    await self.loop.delete_by_force(key)

    # Queries

    def find(self, namespace: str, name: str) -> JobState:
        """Return the run of that name: `mnist-7`, or the newest of the series `mnist`."""
        exact = self.loop.snapshot.jobs.get(JobKey(namespace, name)) or self.store.get_job(JobKey(namespace, name))
        newest = exact or self.store.newest(namespace, name)
        if newest is None:
            raise self._not_found(namespace, name)
        return self.loop.snapshot.jobs.get(newest.key, newest)

    def is_unreadable(self, key: JobKey) -> bool:
        """Return whether the run has a record that cannot be read; such a run can be deleted by name."""
        return any((bad.kind, bad.key) == ("job", (key.namespace, key.name)) for bad in self.store.unreadable())

    def runs(self, namespace: str, name: str) -> list[JobState]:
        """Return every run that the name refers to: one for `mnist-7`, all runs of the series for `mnist`."""
        exact = self.store.get_job(JobKey(namespace, name))
        if exact is not None:
            return [self.loop.snapshot.jobs.get(exact.key, exact)]
        jobs = self.store.list_jobs(JobFilter(namespace=namespace, series=name, limit=1_000_000)).jobs
        if not jobs:
            raise self._not_found(namespace, name)
        return [self.loop.snapshot.jobs.get(job.key, job) for job in jobs]

    def list_jobs(self, filter: JobFilter) -> JobPage:
        """List runs, newest first."""
        return self.store.list_jobs(filter)

    def tasks(self, job: JobState) -> list[Task]:
        """Return every attempt of every task of the run."""
        return self.store.tasks_of(job.key)

    def events(self, subject: str, limit: int = 1000) -> list[RunEvent]:
        """Return events, oldest first."""
        return self.store.events_of(subject, limit)

    def events_in(self, namespace: str, limit: int = 1000) -> list[RunEvent]:
        """Return events of the runs and services of a namespace, oldest first."""
        return self.store.events_in(namespace, limit)

    def points(self, job: JobState, metric: str = "", limit: int = 2000) -> list[MetricPoint]:
        """Return the run's metrics over time."""
        return self.store.points_of(job.key, metric, limit)

    async def nodes(self) -> tuple[tuple[ClusterNode, ...], list[Task]]:
        """Return the nodes, and the tasks that hold resources on them."""
        await self.loop.refresh_nodes()
        return self.loop.snapshot.nodes, list(self.loop.snapshot.holding.values())

    def position(self, job: JobState) -> int:
        """Return the run's position in its queue, 1 for the next; 0 when it does not wait."""
        return self.loop.position(job.key)

    def logs(self, job: JobState, query: LogQuery) -> AsyncIterator[LogChunk]:
        """Stream the output of the run's tasks."""
        return self.engine.logs(job, query)

    def running_task(self, job: JobState, name: str = "", role: str = "", index: int | None = None) -> Task:
        """Return the running task of that name (`worker-0`), or of that role and index; by default the first."""
        running = [task for task in self.tasks(job) if task.phase is TaskPhase.RUNNING]
        for task in running:
            if name in ("", task.key.task) and role in ("", task.key.role) and index in (None, task.key.index):
                return task
        requested = name or "-".join(str(part) for part in (role or "task", index) if part is not None)
        running_names = ", ".join(task.key.task for task in running) or "none"
        message = f"{requested} of {job.key.name} is not running; running: {running_names}"
        raise ConflictError(message, fix=f"see `fairway get {job.key.name}`")

    async def changed(self, job: JobState) -> JobState:
        """Wait until the run differs from the given value, and return it."""
        while True:
            current = self.find(job.key.namespace, job.key.name)
            if current != job:
                return current
            await self.loop.watchers.changed(job.key)

    def set_aside(self, name: str) -> str:
        """Move the folder of a run that cannot be read (`default/mnist-7`) out of the way; return its new path."""
        if self.loop.take_up is None:
            message = f"{name} is not an unreadable folder of this home"
            raise NotFoundError(message, fix="`fairway doctor` lists them")
        return self.loop.take_up.set_aside(name)

    def is_over(self, key: JobKey) -> bool:
        """Return whether the run has ended, or never existed."""
        return key not in self.loop.snapshot.jobs

    # Helpers

    def _note_digests(self, jobs: Sequence[JobState]) -> None:
        """Record the code digest of runs in place in the background, without delaying them."""
        if jobs:
            noting = asyncio.create_task(self._note_digests_slowly(jobs))
            self._background.add(noting)
            noting.add_done_callback(self._background.discard)

    async def _note_digests_slowly(self, jobs: Sequence[JobState]) -> None:
        for job in jobs:
            digest = await self.submissions.fingerprint(job)
            async with self.loop.lock:
                current = self.loop.snapshot.jobs.get(job.key) or self.store.get_job(job.key)
                if current is None or not digest:
                    continue
                current = replace(current, origin=replace(current.origin, code_digest=digest))
                self.store.commit(ChangeSet(jobs=(current,)))
                if job.key in self.loop.snapshot.jobs:
                    self.loop.snapshot.put_job(current)

    def _new_job(self, submission: Submission, number: int) -> JobState:
        meta = submission.document.metadata
        return JobState(
            key=JobKey(meta.namespace, submission.run or f"{meta.name}-{number}"),
            series=meta.name,
            number=number,
            spec=submission.document.spec,
            origin=submission.origin,
            labels=dict(meta.labels),
            created=self.clock.now(),
        )

    def _admitted(self, submission: Submission, queues: Sequence[Queue]) -> Submission:
        """Return the submission with its queue's defaults filled in, or raise a refusal."""
        document = submission.document
        spec = self.queues.admitted(document.metadata.name, document.spec, submission.origin.user, queues)
        return submission if spec is document.spec else replace(submission, document=document.model_copy(update={"spec": spec}))

    def _check_fit(self, job: JobState) -> None:
        if not self.loop.places:
            return  # A cluster may grow; its scheduler reports what is missing.
        why = never_fits(job, self.loop.snapshot.nodes, self.loop.snapshot.queues.get(job.spec.queue))
        if why:
            message = f"{job.series} can never run here: {why}"
            raise NeverFitsError(message, fix="request fewer resources; `fairway top node` shows what the nodes have")

    def _check_secrets(self, asked: Sequence[Submission]) -> None:
        if not self.loop.places:
            return  # Secrets belong to the namespace; the operator must not read them.
        existing = set(self.secrets.names())
        missing = sorted({name for submission in asked for name in submission.document.spec.secrets} - existing)
        if missing:
            message = f"there is no secret {', '.join(missing)}"
            raise RefusedError(message, fix=f"fairway secret set {missing[0]}")

    def _stored(self, key: JobKey) -> JobState:
        job = self.store.get_job(key)
        if job is None:
            raise self._not_found(key.namespace, key.name)
        return job

    def _not_found(self, namespace: str, name: str) -> NotFoundError:
        series_names = self.store.series_names(namespace)
        series, number = names.split_run(name)
        if number is not None and series in series_names:
            newest = self.store.newest(namespace, series)
            return NotFoundError(f"there is no run {name}", fix=f"the newest is {newest.key.name}" if newest else "")
        if self.services is not None and self.services.is_kept(ServiceKey(namespace, name)):
            return NotFoundError(f"there is no job {name} in namespace {namespace}", fix=f"did you mean service/{name}?")
        near = suggestion.nearest(name, series_names)
        hint = f"did you mean {near}?" if near else "`fairway list` shows the jobs"
        return NotFoundError(f"there is no job {name} in namespace {namespace}", fix=hint)

    @staticmethod
    def _from_where(job: JobState) -> str:
        step = job.resume.step if job.resume else None
        return f"from the checkpoint of step {step:,}" if step is not None else "no checkpoint found: from step 0"
