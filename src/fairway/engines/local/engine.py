"""The local engine: the `Engine` port, implemented with processes of this machine."""

from __future__ import annotations

import asyncio
import contextlib
import os
import tempfile
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from fairway.app.port.port import Clock, LogChunk, LogQuery, Observation, TaskSite, TaskUsage
from fairway.app.system import crash_point
from fairway.devices.device_probe import DeviceProbe
from fairway.devices.mps_service import MpsService
from fairway.engines.local import machine_capacity, task_usage
from fairway.engines.local.device_lock import DeviceLocks
from fairway.engines.local.fork_server_client import ForkServerClient, SpawnAnswer
from fairway.engines.local.gang_binder import Reveal, TaskGangBinder, Tracks
from fairway.engines.local.home import EngineHome
from fairway.engines.local.machine_folder import MachineFolder
from fairway.engines.local.output.log_reader import LogReader, removed_bytes
from fairway.engines.local.output.metric_reader import MetricReader
from fairway.engines.local.port_lease import PortLeases
from fairway.engines.local.provision.caller_environment import forget_environment
from fairway.engines.local.provision.preparation import Preparations, PreparerPort
from fairway.engines.local.run_record import RunRecordWriter
from fairway.engines.local.spare_interpreter import SpareInterpreters
from fairway.engines.local.supervision import attempt_record
from fairway.engines.local.supervisor_watch import SupervisorWatch
from fairway.engines.local.task_access import TaskAccess
from fairway.engines.local.task_evictor import CANNOT_RUN, TaskEvictor
from fairway.engines.local.task_observer import TaskObserver
from fairway.errors import BugError, FairwayError, SpecError, UsageError
from fairway.launch.mlflow import TOKEN
from fairway.plan.action import Action, BindGang, CreateTask, EvictTask, ForgetJob, ForgetLogs, NudgeTask
from fairway.runtime import task_contract
from fairway.state.job import JobKey, JobState
from fairway.state.node import ClusterNode, NodeDevice
from fairway.state.phase import TaskPhase
from fairway.state.task import TaskExit, TaskKey, TaskReport

WARNINGS = "machine-warnings.json"
"""File in the home: warnings about ignored files of other users in the machine's shared folder."""
REFRESH_EVERY = 3600.0
"""Seconds between two touches of the machine-wide lock files, which cleaners of temporary files would remove as stale."""


class LocalEngine:
    """Runs tasks as processes under supervisors that outlive it.

    Its memory holds only what is on disk or can be computed anew.
    """

    def __init__(
        self,
        home: EngineHome,
        *,
        machine_folder: Path,
        node_name: str,
        probe: DeviceProbe,
        preparer: PreparerPort,
        reveal: Reveal,
        clock: Clock,
        cpus: float | None = None,
        other: Mapping[str, int] | None = None,
        umask: int = 0o022,
        tracks: Tracks = lambda _job: {},
        held: Sequence[int] = (),
    ) -> None:
        self._home = home
        self._node_name = node_name
        self._probe = probe
        self._clock = clock
        self._cpus = cpus
        self._other = dict(other or {})
        self._reveal = reveal
        self._tracks = tracks
        self._wake: Callable[[], None] = lambda: None
        self._devices: tuple[NodeDevice, ...] = ()
        self._machine = MachineFolder(machine_folder)
        self._device_locks = DeviceLocks(self._machine, home.name)
        self._warned: tuple[str, ...] | None = None
        self._spawner = ForkServerClient()
        self._spares = SpareInterpreters(self._spawner, clock)
        self._preparing = Preparations(preparer, lambda: self._wake())
        self._observer = TaskObserver(home, clock)
        self._evictor = TaskEvictor(home, self._observer, clock)
        self._sharing = MpsService(self._sharing_folder, probe.service)
        self._binder = TaskGangBinder(
            home,
            self._spawner,
            self._spares,
            PortLeases(self._machine),
            self._device_locks,
            reveal,
            umask,
            lambda: self._devices,
            self._sharing,
            tracks,
            held,
            clock,
        )
        self._records = RunRecordWriter(home)
        self.forgetting: Callable[[JobKey], None] = lambda _key: None
        """Called before anything of a run is removed."""
        self._reader = LogReader(home)
        self._meter = MetricReader(home)
        self.activity = task_usage.RankActivity(home)
        self._insides = TaskAccess(home)
        self._vigil = SupervisorWatch(lambda: self._wake())
        self._refreshing: asyncio.TimerHandle | None = None
        self.is_over: Callable[[JobKey], bool] | None = None
        """Returns whether a run is over; set by the application. Without it, a run is over when none of its tasks runs."""

    async def start(self, wake: Callable[[], None]) -> None:
        """Start listening to supervisors, and start the fork server."""
        self._wake = wake
        self._spawner.start()
        self._vigil.listen(self._home.poke)
        self._refresh_locks()
        await asyncio.to_thread(self._home.empty_trash)

    async def close(self) -> None:
        """Close the engine. Supervisors and tasks go on."""
        self._preparing.close()
        if self._refreshing is not None:
            self._refreshing.cancel()
        self._vigil.close()
        self._meter.close()
        self._spares.close()
        self._spawner.close()

    async def nodes(self) -> tuple[ClusterNode, ...]:
        """Return this machine as the only node."""
        devices = await asyncio.to_thread(self._probe.devices, self._is_ours)
        holders = self._device_locks.foreign_holders([device.uuid for device in devices])
        self._devices = tuple(replace(each, busy_with=holders.get(each.uuid) or each.busy_with) for each in devices)
        if self._sharing.started and not any(self._device_locks.is_shared(device.uuid) for device in devices):
            await asyncio.to_thread(self._sharing.end)
        self._note_warnings()
        cpus = self._cpus if self._cpus is not None else machine_capacity.cpu_count()
        return (ClusterNode(self._node_name, cpus, machine_capacity.memory_bytes(), self._devices, dict(self._other)),)

    async def perform(self, actions: Sequence[Action]) -> list[TaskReport]:
        """Carry out the actions, in order; return the latest report of each task."""
        reports: dict[TaskKey, TaskReport] = {}
        for action in actions:
            for report in await self._perform(action):
                reports[report.key] = report
        return list(reports.values())

    async def observe(self, keys: Iterable[TaskKey]) -> list[TaskReport]:
        """Return the state of each task, from the disk and from its preparation."""
        return [await self._look(key) for key in keys]

    async def measure(self, jobs: Iterable[JobState]) -> list[Observation]:
        """Return new metrics and checkpoints of these runs. Healthy runs get spare interpreters when they are due."""
        jobs = list(jobs)
        await self._spares.tend(jobs)
        observations = {observation.key: observation for observation in self._meter.measure(jobs)}
        activity = await self.activity.look({job.key: self._vigil.running_of(job.key) for job in jobs}, self._probe.use)
        for key, ranks in activity.items():
            removed = await asyncio.to_thread(removed_bytes, self._home.job(key) / "attempts")
            if ranks or removed:
                observations[key] = replace(observations.get(key) or Observation(key), ranks=ranks, removed=removed)
        return list(observations.values())

    def logs(self, job: JobState, query: LogQuery) -> AsyncIterator[LogChunk]:
        """Yield the output of a run's tasks, without the values of its secrets."""
        return self._reader.read(job, query, lambda: self._run_is_over(job), self._masked(job))

    async def kept(self) -> list[JobKey]:
        """Return the runs that have a folder."""
        return await asyncio.to_thread(self._home.jobs)

    def release(self, key: JobKey) -> None:
        """Drop what memory holds of a finished run, and its caller's environment. Followers of its logs see the end."""
        forget_environment(self._home.job(key))
        self._preparing.forget(key)
        self._spares.forget(key)
        self._meter.forget(key)
        self.activity.forget(key)
        self._reader.wake(key)

    async def type_in(self, key: TaskKey, data: bytes) -> None:
        """Pass input to a running task."""
        await asyncio.to_thread(self._insides.type_in, key, data)

    async def resize(self, key: TaskKey, rows: int, columns: int) -> None:
        """Pass the window size to a running task's terminal."""
        await asyncio.to_thread(self._insides.resize, key, rows, columns)

    async def inside(self, key: TaskKey) -> TaskSite:
        """Return folder and environment of a running task."""
        return await asyncio.to_thread(self._insides.look, key)

    async def usage(self, keys: Iterable[TaskKey]) -> dict[TaskKey, TaskUsage]:
        """Return what running tasks use, from two measurements shortly after each other."""
        return await task_usage.look(self._home, keys, self._probe.use)

    async def _perform(self, action: Action) -> list[TaskReport]:
        if isinstance(action, CreateTask):
            return [await self._create(action)]
        if isinstance(action, BindGang):
            return await self._bind(action)
        if isinstance(action, EvictTask):
            return [await self._evictor.evict(action)]
        if isinstance(action, NudgeTask):
            self._evictor.nudge(action)
        elif isinstance(action, ForgetJob):
            await self._forget(action)
        elif isinstance(action, ForgetLogs):
            await asyncio.to_thread(self._home.forget_logs, action.key)
        return []

    async def _create(self, action: CreateTask) -> TaskReport:
        self._home.make_job(action.job.key)
        # Written before the attempt is created: the record in the folder is never older than its attempts.
        self._records.write(action.job)
        with crash_point.reach("engine.create"):
            fresh = self._home.make_attempt(action.task.key)
        # A new folder has no state to read.
        report = TaskReport(action.task.key, TaskPhase.PENDING) if fresh else await self._look(action.task.key)
        if report.phase is TaskPhase.PENDING:
            self._preparing.begin(action.job)
        return self._with_preparation(report)

    async def _bind(self, action: BindGang) -> list[TaskReport]:
        prepared = self._preparing.result(action.job.key)
        if prepared is None:
            return await self._not_prepared(action)
        try:
            answers = await self._binder.bind(action, prepared)
        except (FairwayError, OSError) as problem:
            return await self._not_bound(action, problem)
        reports = [await self._begun(task.key, answer) for task, answer in zip(action.tasks, answers, strict=True)]
        why = next((answer.problem for answer in answers if answer.problem), "")
        return [replace(report, message=why) if report.phase is TaskPhase.PENDING else report for report in reports]

    async def _not_prepared(self, action: BindGang) -> list[TaskReport]:
        reports = [await self._look(task.key) for task in action.tasks]
        if all(report.phase is TaskPhase.PENDING for report in reports):
            self._preparing.begin(action.job)
        return [self._with_preparation(report) for report in reports]

    async def _not_bound(self, action: BindGang, problem: Exception) -> list[TaskReport]:
        reports = [await self._look(task.key) for task in action.tasks]
        if any(report.phase is not TaskPhase.PENDING for report in reports):
            # The action was carried out before: nothing is started twice. A gang that lost a task is the planner's to handle.
            return reports
        if isinstance(problem, UsageError | SpecError | BugError):
            # The request is invalid, and will be the next time, too.
            return [self._evictor.give_up(task.key, problem.message) for task in action.tasks]
        return [replace(report, ready=True, message=_words(problem)) for report in reports]

    async def _begun(self, key: TaskKey, answer: SpawnAnswer) -> TaskReport:
        """Return the report of a task from its supervisor's answer; without an answer, from its folder."""
        if answer.supervisor is None:
            return await self._look(key)
        report = TaskReport(key, TaskPhase.RUNNING, started=answer.started, address=answer.address, message="")
        self._vigil.watch(report, answer.supervisor)
        return report

    def note_end(self, job: JobState) -> None:
        """Write the record of a finished run into its folder."""
        self._records.write(job)
        self._records.forget(job.key)

    async def _forget(self, action: ForgetJob) -> None:
        self.forgetting(action.key)
        self._records.forget(action.key)
        self._preparing.forget(action.key)
        self._spares.forget(action.key)
        for key in self._home.attempts_of(action.key):
            await self._evictor.end_for_good(key)
        await asyncio.to_thread(self._home.forget_job, action.key)

    async def _look(self, key: TaskKey) -> TaskReport:
        running = self._vigil.running(key)
        if running is not None:
            return running
        sight = await self._observer.look(key)
        if sight.supervisor is not None:
            self._vigil.watch(sight.report, sight.supervisor)
        return self._with_preparation(sight.report) if sight.report.phase is TaskPhase.PENDING else sight.report

    def _with_preparation(self, report: TaskReport) -> TaskReport:
        """Return the report of a task that was never started, with the state of its run's preparation."""
        if report.phase is not TaskPhase.PENDING:
            return report
        problem = self._preparing.problem(report.key.run)
        if problem is not None:
            exit_ = TaskExit(code=CANNOT_RUN)
            return replace(report, phase=TaskPhase.FAILED, exit=exit_, finished=self._clock.now(), message=_words(problem))
        message = self._preparing.said(report.key.run)
        return replace(report, ready=not self._preparing.busy(report.key.run), message=message)

    def _is_ours(self, pid: int) -> bool:
        """Return whether a process of this user belongs to a task of this home: its environment names the home."""
        try:
            if os.stat(f"/proc/{pid}").st_uid != os.getuid():
                return False
            return f"{task_contract.ATTEMPT_DIR}={self._home.path}/".encode() in Path(f"/proc/{pid}/environ").read_bytes()
        except OSError:
            return False

    def _note_warnings(self) -> None:
        """Write the warnings about the machine's shared folder where `fairway doctor` reads them."""
        warnings = self._machine.warnings
        if warnings != self._warned:
            with contextlib.suppress(OSError):
                attempt_record.write_record(str(self._home.path), WARNINGS, {"warnings": list(warnings)})
                self._warned = warnings

    def _sharing_folder(self) -> Path:
        """Return the folder of the GPU sharing service: a short path, for its sockets.

        Another user may have taken the first choice.
        """
        name = f"fairway-mps-{self._home.name[:12]}"
        first = Path(tempfile.gettempdir()) / name
        try:
            taken = first.lstat().st_uid != os.getuid()
        except FileNotFoundError:
            taken = False
        return self._machine.own() / name if taken else first

    def _refresh_locks(self) -> None:
        self._machine.refresh()
        self._refreshing = asyncio.get_running_loop().call_later(REFRESH_EVERY, self._refresh_locks)

    def _run_is_over(self, job: JobState) -> bool:
        if job.phase.over or self.is_over is None:
            return job.phase.over or not self._evictor.anything_runs(job.key)
        return self.is_over(job.key)

    def _masked(self, job: JobState) -> tuple[bytes, ...]:
        token = self._tracks(job).get(TOKEN, "").encode()
        return (*self._secret_values(job), token) if token else self._secret_values(job)

    def _secret_values(self, job: JobState) -> tuple[bytes, ...]:
        if not job.spec.secrets:
            return ()
        try:
            return tuple(value.encode() for value in self._reveal(job.spec.secrets).values())
        except FairwayError:
            # A deleted secret cannot be masked; the others still are.
            values: list[bytes] = []
            for name in job.spec.secrets:
                with contextlib.suppress(FairwayError):
                    values += [value.encode() for value in self._reveal([name]).values()]
            return tuple(values)


def _words(problem: BaseException) -> str:
    if isinstance(problem, FairwayError):
        return f"{problem.message}; {problem.fix}" if problem.fix else problem.message
    return str(problem) or type(problem).__name__
