"""Use cases of MLflow clients: experiments and runs. A Fairway run is an MLflow run; a series is an experiment."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from fairway.app.loop.loop import ReconcileLoop
from fairway.app.port.port import ChangeSet, JobFilter, MetricPoint, Observation
from fairway.app.port.tracking import ArtifactOwner
from fairway.app.tracking.experiment import DEFAULT_EXPERIMENT, MOST_TAGS, ExperimentUseCases, TokenCaller, grown
from fairway.errors import DeniedError, NotFoundError, RefusedError, UsageError
from fairway.state.job import JobKey, JobState
from fairway.state.metric import MetricSummary, best_values, summarise
from fairway.state.mlflow_record import Experiment, TrackedRun
from fairway.state.phase import JobPhase

__all__ = ["MetricValue", "TokenCaller", "TrackedRunView", "TrackingUseCases", "location_of", "points_from"]
SOURCE = "mlflow"
PARENT = "mlflow.parentRunId"
RUN_NAME = "mlflow.runName"
"""The tag with the title of a run."""
MOST = MOST_TAGS
"""Maximum number of parameters, and of tags, of one run."""
MOST_LISTED = 1000
"""Maximum number of runs of one series that a search reads."""
_HISTORY = 25_000
_NEWEST = 200
"""Number of points read to find the newest of each curve."""
_STATUS = {
    JobPhase.RUNNING: "RUNNING",
    JobPhase.STOPPING: "RUNNING",
    JobPhase.SUCCEEDED: "FINISHED",
    JobPhase.FAILED: "FAILED",
    JobPhase.STOPPED: "KILLED",
}


@dataclass(frozen=True, slots=True)
class MetricValue:
    """One value of one metric."""

    name: str
    value: float
    time: float
    step: int = 0


@dataclass(frozen=True, slots=True)
class TrackedRunView:
    """A run with the data of its job."""

    run: TrackedRun
    status: str
    started: float
    ended: float | None
    user: str
    metrics: tuple[MetricValue, ...]
    """The last value of each metric, by step and then by time."""
    best: Mapping[str, float]
    """The best value of each metric whose direction is known."""
    deleted: bool = False
    """Whether the run, or its experiment, is deleted."""

    @property
    def shelf(self) -> ArtifactOwner:
        """The location of its files."""
        return ArtifactOwner(self.run.namespace, self.run.name, self.run.job)


class TrackingUseCases:
    """Experiments and runs."""

    def __init__(self, loop: ReconcileLoop, new_id: Callable[[], str] = lambda: secrets.token_hex(16)) -> None:
        self.loop = loop
        self.store = loop.store
        self.clock = loop.clock
        self._new_id = new_id
        self.experiments = ExperimentUseCases(self.store, self.clock.now, self._job)

    # Runs

    def run(self, namespace: str, name: str) -> TrackedRun:
        """Return a run of a job, or one that a client created."""
        tracked = self.store.tracked(TrackedRun, namespace, name)
        if tracked is not None:
            return tracked
        job = self._job(namespace, name)
        if job is None:
            message = f"Run with id={name} not found"
            raise NotFoundError(message, fix="`fairway list` shows the runs of jobs")
        return _run_of(job)

    def is_deleted(self, run: TrackedRun) -> bool:
        """Return whether a run is deleted, by itself or with its experiment."""
        group = None if run.deleted else self.store.tracked(Experiment, run.namespace, run.experiment)
        return run.deleted or (group is not None and group.deleted)

    def facts(self, run: TrackedRun) -> TrackedRunView:
        """Return the run with the data of its job."""
        job = self._job(run.namespace, run.job) if run.job else None
        own_job = job if run.of_job else None
        summaries = self._summaries(run, own_job)
        metrics = tuple(MetricValue(name, summary.last, summary.time, summary.step or 0) for name, summary in summaries.items())
        best = best_values(summaries, own_job.spec.stop.goals if own_job is not None else {})
        user = job.origin.user if job is not None else run.tags.get("mlflow.user", "unknown")
        deleted = self.is_deleted(run)
        if job is None or not run.of_job:
            return TrackedRunView(run, run.status, run.created, run.ended, user, metrics, best, deleted)
        started = job.started if job.started is not None else job.created
        return TrackedRunView(run, _STATUS.get(job.phase, "SCHEDULED"), started, job.finished, user, metrics, best, deleted)

    def history(self, run: TrackedRun, metric: str) -> list[MetricValue]:
        """Return every stored value of one metric, in order of time."""
        points = self.store.points_of(_key(run), metric, _HISTORY)
        return [MetricValue(metric, point.metrics[metric], point.time, point.step or 0) for point in points]

    def runs(self, namespace: str, experiments: Iterable[str]) -> list[TrackedRun]:
        """Return the runs of these experiments, newest first, including runs of jobs that reported nothing."""
        by_name: dict[str, TrackedRun] = {}
        for experiment in dict.fromkeys(experiments):
            by_name.update((run.name, run) for run in self.store.all_tracked(TrackedRun, namespace, experiment))
            jobs = self.store.list_jobs(JobFilter(namespace=namespace, series=experiment, limit=MOST_LISTED)).jobs
            for job in jobs:
                if job.key.name not in by_name and self.store.tracked(TrackedRun, namespace, job.key.name) is None:
                    by_name[job.key.name] = _run_of(job)
        return sorted(by_name.values(), key=lambda run: (-run.created, run.name))

    def create_run(
        self, speaker: TokenCaller, experiment: str, title: str, started: float, tags: Mapping[str, str]
    ) -> TrackedRun:
        """Create a run. The first one in an attempt of a job is the job's own run; later and nested ones are new runs."""
        job = self._job(speaker.namespace, speaker.run) if speaker.run else None
        if job is not None and experiment == DEFAULT_EXPERIMENT:
            experiment = job.series
        group = self.experiments.get(speaker.namespace, experiment)
        self.experiments.check_active(group)
        title, tags = _titled(title, tags)
        now = self.clock.now()
        if job is not None and PARENT not in tags:
            own_run = self.run(speaker.namespace, speaker.run)
            if own_run.attempt < job.attempt:
                own_run = replace(own_run, attempt=job.attempt, experiment=experiment, title=title or own_run.title)
                own_run = replace(own_run, location=location_of(group.location, own_run.name))
                return self._put(replace(own_run, tags=grown(own_run.tags, tags, "tags")))
        name = self._new_id()
        run = TrackedRun(
            speaker.namespace,
            name,
            experiment=experiment,
            job=speaker.run if job is not None else "",
            title=title,
            created=started or now,
            tags=grown({}, tags, "tags"),
            location=location_of(group.location, name),
        )
        return self._put(run)

    def update_run(self, speaker: TokenCaller, run: TrackedRun, status: str, ended: float | None, title: str) -> TrackedRun:
        """Change status and title. The status of a job's own run is always that of the job."""
        self.check_may_write(speaker, run)
        changed = replace(run, title=title or run.title)
        if not run.of_job and status:
            over = status not in ("RUNNING", "SCHEDULED")
            changed = replace(changed, status=status, ended=(ended or self.clock.now()) if over else None)
        elif run.of_job and status == "RUNNING" and (job := self._job(run.namespace, run.job)) is not None:
            # A client took the run up by its name: the next request for a new run creates another one.
            changed = replace(changed, attempt=job.attempt)
        return self._put(changed)

    def delete_run(self, speaker: TokenCaller, run: TrackedRun) -> None:
        """Mark a run as deleted."""
        self.check_may_write(speaker, run)
        if run.of_job:
            message = f"{run.name} is the run of a job"
            raise RefusedError(message, fix=f"fairway delete {run.name}")
        self._put(replace(run, deleted=True))

    def restore_run(self, speaker: TokenCaller, run: TrackedRun) -> None:
        """Restore a deleted run."""
        restored = replace(run, deleted=False)
        self.check_owns(speaker, run)
        self._put(restored)

    async def log(
        self,
        speaker: TokenCaller,
        run: TrackedRun,
        metrics: Sequence[MetricValue] = (),
        params: Mapping[str, str] | None = None,
        tags: Mapping[str, str] | None = None,
    ) -> None:
        """Store data about a run. All of it is checked before any of it is stored."""
        self.check_may_write(speaker, run)
        title, tags = _titled("", tags or {})
        changed = replace(
            run,
            title=title or run.title,
            params=grown(run.params, _agreed(run, params or {}), "parameters"),
            tags=grown(run.tags, tags, "tags"),
        )
        points = points_from(metrics)
        if points and not run.of_job:
            summaries = self._summaries(run, None)
            values = [(point.time, point.step, point.metrics) for point in points]
            changed = replace(changed, summaries=summarise(summaries, 0, values))
        if changed != run or (points and not run.of_job):
            self._put(changed)
        if points and run.of_job:
            await self.loop.report(Observation(_key(run), points))
        elif points:
            self.store.commit(ChangeSet(points=tuple((_key(run), point) for point in points)))

    def drop_tag(self, speaker: TokenCaller, run: TrackedRun, tag: str) -> None:
        """Remove a tag from a run."""
        self.check_may_write(speaker, run)
        if tag not in run.tags:
            message = f"No tag with name: {tag} in run with id {run.name}"
            raise NotFoundError(message, fix=f"it has {', '.join(run.tags) or 'none'}")
        self._put(replace(run, tags={name: value for name, value in run.tags.items() if name != tag}))

    def note(
        self,
        speaker: TokenCaller,
        run: TrackedRun,
        outputs: Mapping[str, int],
        inputs: Sequence[str],
        model_inputs: Sequence[str] = (),
    ) -> None:
        """Record the models that a run logged, and the datasets and models that it read."""
        self.check_may_write(speaker, run)
        all_inputs = tuple(dict.fromkeys([*run.inputs, *inputs]))
        all_models = tuple(dict.fromkeys([*run.model_inputs, *model_inputs]))
        if max(len(all_inputs), len(all_models), len({*run.outputs, *outputs})) > MOST:
            message = f"a run has at most {MOST} inputs and outputs"
            raise UsageError(message, fix="log fewer of them")
        self._put(replace(run, outputs={**run.outputs, **outputs}, inputs=all_inputs, model_inputs=all_models))

    def note_version(self, speaker: TokenCaller, run: TrackedRun, version: str) -> None:
        """Record a version registered from a run; for a run within a job, also in the job's own run.

        A run that registers a model logged by another run records it in its own record: it may not write to the other's.
        """
        names = (run.name, run.job or run.name) if speaker.made(run.job) else (speaker.run,)
        for name in dict.fromkeys(names):
            record = self.run(run.namespace, name)
            self._put(replace(record, versions=tuple(dict.fromkeys([*record.versions, version]))))

    def check_may_write(self, speaker: TokenCaller, run: TrackedRun) -> None:
        """Check that a run's token writes only to the job's own run and to runs created within it."""
        self.check_owns(speaker, run)
        if self.is_deleted(run):
            message = f"The run {run.name} must be in the 'active' state. Current state is deleted."
            raise UsageError(message, fix="restore the run, or its experiment, first")

    def check_owns(self, speaker: TokenCaller, run: TrackedRun) -> None:
        """Raise `DeniedError` if a run's token is used for a run of another job."""
        if not speaker.made(run.job):
            whose = f"a run of {run.job}" if run.job else "which was created outside of jobs"
            message = f"{speaker.run} may not write to {run.name}, {whose}"
            raise DeniedError(message, fix="log to a run of its own, or from outside of a job")

    def job_of(self, run: TrackedRun) -> JobState | None:
        """Return the job's run that it is, or within which it was created."""
        return self._job(run.namespace, run.job) if run.job else None

    # Helpers

    def _job(self, namespace: str, name: str) -> JobState | None:
        key = JobKey(namespace, name)
        return self.loop.snapshot.jobs.get(key) or self.store.get_job(key)

    def _put(self, run: TrackedRun) -> TrackedRun:
        self.store.commit(ChangeSet(tracked=(run,)))
        return run

    def _summaries(self, run: TrackedRun, job: JobState | None) -> Mapping[str, MetricSummary]:
        """Return the run's metric summaries: from its record, and from the stored points for metrics that the record lacks."""
        recorded = run.summaries if job is None else job.progress.summaries
        if job is None and recorded:
            return recorded
        points = self.store.points_of(_key(run), limit=_NEWEST)
        return {**summarise({}, 0, [(point.time, point.step, point.metrics) for point in points]), **recorded}


def _titled(title: str, tags: Mapping[str, str]) -> tuple[str, Mapping[str, str]]:
    """Return the title of a run and its other tags: a client may send the title either way."""
    tagged = tags.get(RUN_NAME, "")
    if title and tagged and title != tagged:
        message = f"the run is named {title!r} by run_name and {tagged!r} by the tag {RUN_NAME}"
        raise UsageError(message, fix="send one of them")
    return title or tagged, {name: value for name, value in tags.items() if name != RUN_NAME}


def location_of(root: str, name: str) -> str:
    """Return the location of the files of a run or a logged model, within the artifact location of its experiment."""
    return f"{root.rstrip('/')}/{name}/artifacts" if root else ""


def points_from(metrics: Sequence[MetricValue]) -> tuple[MetricPoint, ...]:
    """Combine values with the same time and step into one point, in order of arrival."""
    groups: list[tuple[float, int, dict[str, float]]] = []
    for value in metrics:
        if not groups or groups[-1][:2] != (value.time, value.step) or value.name in groups[-1][2]:
            groups.append((value.time, value.step, {}))
        groups[-1][2][value.name] = value.value
    return tuple(MetricPoint(time, step, values, source=SOURCE) for time, step, values in groups)


def _run_of(job: JobState) -> TrackedRun:
    """Return a job's own run before any client has written to it."""
    name = job.key.name
    return TrackedRun(job.key.namespace, name, experiment=job.series, job=name, title=name, created=job.created)


def _key(run: TrackedRun) -> JobKey:
    return JobKey(run.namespace, run.name)


def _agreed(run: TrackedRun, params: Mapping[str, str]) -> Mapping[str, str]:
    """Return the parameters. A parameter keeps its first value, except that a restarted job may set it again."""
    for name, value in params.items():
        if run.params.get(name, value) != value and not (run.of_job and run.attempt > 0):
            message = f"parameter {name!r} of {run.name} is {run.params[name]!r} and cannot become {value!r}"
            raise UsageError(message, fix="log it once, or under another name; what changes over time is a metric")
    return params
