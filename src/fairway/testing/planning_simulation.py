"""A simulated engine that carries out plans at once: for tests of planning without processes, files or time.

Created tasks are ready, bound gangs run, evicted tasks stop. A test triggers events (`finish`, `lose`, `report`, `pass_time`)
and checks the resulting plans.
"""

from __future__ import annotations

from dataclasses import replace

from fairway.plan.action import Action, BindGang, CreateTask, EvictTask, ForgetJob, ForgetLogs, NudgeTask
from fairway.plan.planning_cycle import RunPlanCache, plan
from fairway.spec.job import JobSpec
from fairway.state.event import RunEvent
from fairway.state.job import JobKey, JobState
from fairway.state.node import ClusterNode
from fairway.state.observation import fold_checkpoint, fold_progress, fold_report
from fairway.state.phase import JOB_OVER, RunIntent, TaskPhase
from fairway.state.snapshot import PlannerSnapshot
from fairway.state.task import Task, TaskExit, TaskKey, TaskReport

ROUNDS = 50


class PlanningSimulation:
    """A snapshot, a clock, and an engine that always succeeds."""

    def __init__(self, *nodes: ClusterNode, now: float = 1000.0, places: bool = True) -> None:
        self.places = places
        """False: an external scheduler places; bound gangs wait until the test reports their nodes (`see`)."""
        self.now = now
        self.snapshot = PlannerSnapshot(nodes=nodes or (ClusterNode("here", cpu=4.0, memory=8 << 30),))
        self.actions: list[Action] = []
        self.events: list[RunEvent] = []
        self.stubborn: set[str] = set()
        """Tasks (`worker-0`) that ignore an eviction with a grace period."""
        self.refusal = ""
        """When set, binding fails with this reason."""
        self.started: list[TaskKey] = []
        self.wake_at: float | None = None
        self.outlooks = RunPlanCache()

    def submit(self, name: str, spec: JobSpec | dict[str, object]) -> JobKey:
        """Submit a run."""
        series, _, number = name.rpartition("-")
        key = JobKey("default", name)
        job_spec = spec if isinstance(spec, JobSpec) else JobSpec.model_validate(spec)
        self.snapshot.put_job(JobState(key, series, int(number), job_spec, created=self.now))
        self.turn()
        return key

    def turn(self) -> None:
        """Plan and perform actions until there is nothing more to do now."""
        for _ in range(ROUNDS):
            fresh = plan(self.snapshot, self.now, places=self.places)
            result = plan(self.snapshot, self.now, self.outlooks, places=self.places)
            if result != fresh:
                message = f"the planner with remembered state and a new one differ: {result} instead of {fresh}"
                raise AssertionError(message)
            self.wake_at = result.wake_at
            if result.empty:
                return
            if result.memory is not None:
                self.snapshot.memory = result.memory
            for job in result.jobs:
                self.snapshot.put_job(job)
            for task in result.tasks:
                self.snapshot.put_task(task)
            self.events.extend(result.events)
            for action in result.actions:
                self.actions.append(action)
                self._perform(action)
            for key in result.deleted:
                self.snapshot.forget(key)
        message = f"the plan does not settle: {result}"
        raise AssertionError(message)

    def job(self, key: JobKey) -> JobState:
        """Return the current value of the run."""
        return self.snapshot.jobs[key]

    def tasks(self, key: JobKey, *, alive: bool = False) -> list[Task]:
        """Return the run's tasks; with `alive` only those that hold resources."""
        return [task for task in self.snapshot.tasks_of(key) if not alive or task.phase.holds_resources]

    def finish(
        self, key: JobKey, name: str, code: int = 0, *, signal: int | None = None, tail: str = "", traceback: str = ""
    ) -> None:
        """Let a running task end by itself."""
        phase = TaskPhase.SUCCEEDED if code == 0 and signal is None else TaskPhase.FAILED
        ending = TaskExit(None if signal else code, signal, tail=tail, traceback_digest=traceback)
        self.end(self._running(key, name), phase, ending)
        self.turn()

    def lose(self, key: JobKey, name: str) -> None:
        """Let a running task be lost."""
        self.end(self._running(key, name), TaskPhase.LOST, None)
        self.turn()

    def report(self, key: JobKey, step: int, **metrics: float) -> None:
        """Let the leader report a step and metrics."""
        self.snapshot.put_job(fold_progress(self.job(key), "worker-0", [(self.now, step, metrics)]))
        self.turn()

    def checkpoint(self, key: JobKey, step: int) -> None:
        """Let the run save a checkpoint."""
        self.snapshot.put_job(fold_checkpoint(self.job(key), step, self.now))
        self.turn()

    def stop(self, key: JobKey) -> None:
        """Stop the run as its user."""
        self.snapshot.put_job(replace(self.job(key), intent=RunIntent.STOP))
        self.turn()

    def pass_time(self, seconds: float) -> None:
        """Advance the clock, and plan at every requested time."""
        end = self.now + seconds
        while self.wake_at is not None and self.now < self.wake_at <= end:
            self.now = self.wake_at
            self.turn()
        self.now = end
        self.turn()

    def end_stubborn(self, key: JobKey, name: str) -> None:
        """Let the engine kill a task that ignored its eviction."""
        self.end(self._running(key, name), TaskPhase.STOPPED, TaskExit(None, 9, by_us=True))
        self.turn()

    def end(self, task: Task, phase: TaskPhase, ending: TaskExit | None) -> None:
        """Report the end of a task without planning."""
        self._fold(TaskReport(task.key, phase, finished=self.now, exit=ending))

    def see(self, key: JobKey, *reports: TaskReport) -> None:
        """Report the state of the run's tasks, and plan."""
        assert all(report.key.run == key for report in reports)
        for report in reports:
            self._fold(report)
        self.turn()

    def over(self, key: JobKey) -> bool:
        """Return whether the run has ended."""
        return self.job(key).phase in JOB_OVER

    def _running(self, key: JobKey, name: str) -> Task:
        return next(task for task in self.tasks(key, alive=True) if task.key.task == name)

    def _fold(self, report: TaskReport) -> None:
        task = self.snapshot.tasks[report.key.run][report.key]
        self.snapshot.put_task(fold_report(task, report))

    def _perform(self, action: Action) -> None:
        match action:
            case CreateTask(task=task):
                self._fold(TaskReport(task.key, self.snapshot.tasks[task.key.run][task.key].phase, ready=True))
            case BindGang(tasks=tasks):
                for task in tasks:
                    if self.refusal:
                        self._fold(TaskReport(task.key, TaskPhase.PENDING, message=self.refusal))
                        continue
                    self.started.append(task.key)
                    if not self.places:
                        continue
                    self._fold(TaskReport(task.key, TaskPhase.RUNNING, started=self.now, address="127.0.0.1:1"))
            case EvictTask(key=key, grace=grace):
                task = self.snapshot.tasks[key.run][key]
                if not task.phase.over and not (grace and key.task in self.stubborn):
                    self.end(task, TaskPhase.STOPPED, TaskExit(None, 15, by_us=True))
            case NudgeTask() | ForgetJob() | ForgetLogs():
                pass
