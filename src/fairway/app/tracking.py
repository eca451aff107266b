"""What MLflow clients may tell and ask: experiments and runs. A run of ours is a run of theirs; a series is an experiment."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from fairway.app.loop import Loop
from fairway.app.ports import Changes, JobFilter, MetricPoint, Observation
from fairway.app.tracking_experiments import DEFAULT_EXPERIMENT, MOST_TAGS, Speaker, TrackedExperiments, grown
from fairway.app.tracking_ports import Shelf
from fairway.errors import DeniedError, NotFoundError, RefusedError, UsageError
from fairway.state.job import Job, JobKey
from fairway.state.metric import Summary, best_values, summarise
from fairway.state.phase import JobPhase
from fairway.state.tracking import Experiment, TrackedRun

__all__ = ["Measured", "RunFacts", "Speaker", "Tracking", "location_of", "points_from"]
SOURCE = "mlflow"
PARENT = "mlflow.parentRunId"
RUN_NAME = "mlflow.runName"
"""The tag that is the title of a run."""
MOST = MOST_TAGS
"""Parameters, and tags, of one run."""
MOST_LISTED = 1000
"""Runs of one series that a search looks at."""
_HISTORY = 25_000
_NEWEST = 200
"""Points that are read to find the newest of each curve."""
_STATUS = {
    JobPhase.RUNNING: "RUNNING",
    JobPhase.STOPPING: "RUNNING",
    JobPhase.SUCCEEDED: "FINISHED",
    JobPhase.FAILED: "FAILED",
    JobPhase.STOPPED: "KILLED",
}


@dataclass(frozen=True, slots=True)
class Measured:
    """One value of one metric."""

    name: str
    value: float
    time: float
    step: int = 0


@dataclass(frozen=True, slots=True)
class RunFacts:
    """A run with what its job tells of it."""

    run: TrackedRun
    status: str
    started: float
    ended: float | None
    user: str
    metrics: tuple[Measured, ...]
    """The last of each, by step and then by time."""
    best: Mapping[str, float]
    """The best of each whose direction is known."""
    deleted: bool = False
    """Whether it is hidden, or its experiment is."""

    @property
    def shelf(self) -> Shelf:
        """Where its files lie."""
        return Shelf(self.run.namespace, self.run.name, self.run.job)


class Tracking:
    """Experiments and runs."""

    def __init__(self, loop: Loop, new_id: Callable[[], str] = lambda: secrets.token_hex(16)) -> None:
        self.loop = loop
        self.store = loop.store
        self.clock = loop.clock
        self._new_id = new_id
        self.experiments = TrackedExperiments(self.store, self.clock.now, self._job)

    # Runs

    def run(self, namespace: str, name: str) -> TrackedRun:
        """A run of ours, or one that a client made."""
        found = self.store.tracked(TrackedRun, namespace, name)
        if found is not None:
            return found
        job = self._job(namespace, name)
        if job is None:
            message = f"Run with id={name} not found"
            raise NotFoundError(message, fix="`fairway list` shows the runs of jobs")
        return _run_of(job)

    def is_deleted(self, run: TrackedRun) -> bool:
        """Whether a run is hidden, by itself or with its experiment."""
        group = None if run.deleted else self.store.tracked(Experiment, run.namespace, run.experiment)
        return run.deleted or (group is not None and group.deleted)

    def facts(self, run: TrackedRun) -> RunFacts:
        """The run with what its job tells of it."""
        job = self._job(run.namespace, run.job) if run.job else None
        own = job if run.of_job else None
        summaries = self._summaries(run, own)
        metrics = tuple(Measured(name, each.last, each.time, each.step or 0) for name, each in summaries.items())
        best = best_values(summaries, own.spec.stop.goals if own is not None else {})
        user = job.origin.user if job is not None else run.tags.get("mlflow.user", "unknown")
        deleted = self.is_deleted(run)
        if job is None or not run.of_job:
            return RunFacts(run, run.status, run.created, run.ended, user, metrics, best, deleted)
        started = job.started if job.started is not None else job.created
        return RunFacts(run, _STATUS.get(job.phase, "SCHEDULED"), started, job.finished, user, metrics, best, deleted)

    def history(self, run: TrackedRun, metric: str) -> list[Measured]:
        """Every value of one metric that is kept, in order of time."""
        points = self.store.points_of(_key(run), metric, _HISTORY)
        return [Measured(metric, point.metrics[metric], point.time, point.step or 0) for point in points]

    def runs(self, namespace: str, experiments: Iterable[str]) -> list[TrackedRun]:
        """The runs of these experiments, newest first; those of jobs also when they never said anything."""
        found: dict[str, TrackedRun] = {}
        for experiment in dict.fromkeys(experiments):
            found.update((run.name, run) for run in self.store.all_tracked(TrackedRun, namespace, experiment))
            jobs = self.store.list_jobs(JobFilter(namespace=namespace, series=experiment, limit=MOST_LISTED)).jobs
            for job in jobs:
                if job.key.name not in found and self.store.tracked(TrackedRun, namespace, job.key.name) is None:
                    found[job.key.name] = _run_of(job)
        return sorted(found.values(), key=lambda run: (-run.created, run.name))

    def create_run(self, speaker: Speaker, experiment: str, title: str, started: float, tags: Mapping[str, str]) -> TrackedRun:
        """A new run. The first that an attempt of a job asks for is the job's own; its next ones, and nested ones, are others."""
        job = self._job(speaker.namespace, speaker.run) if speaker.run else None
        if job is not None and experiment == DEFAULT_EXPERIMENT:
            experiment = job.series
        group = self.experiments.get(speaker.namespace, experiment)
        self.experiments.check_active(group)
        title, tags = _titled(title, tags)
        now = self.clock.now()
        if job is not None and PARENT not in tags:
            own = self.run(speaker.namespace, speaker.run)
            if own.attempt < job.attempt:
                own = replace(own, attempt=job.attempt, experiment=experiment, title=title or own.title)
                own = replace(own, location=location_of(group.location, own.name))
                return self._put(replace(own, tags=grown(own.tags, tags, "tags")))
        name = self._new_id()
        made = TrackedRun(
            speaker.namespace,
            name,
            experiment=experiment,
            job=speaker.run if job is not None else "",
            title=title,
            created=started or now,
            tags=grown({}, tags, "tags"),
            location=location_of(group.location, name),
        )
        return self._put(made)

    def update_run(self, speaker: Speaker, run: TrackedRun, status: str, ended: float | None, title: str) -> TrackedRun:
        """How it stands and what it is called. How a job's own run stands, the job says."""
        self.check_may_write(speaker, run)
        changed = replace(run, title=title or run.title)
        if not run.of_job and status:
            over = status not in ("RUNNING", "SCHEDULED")
            changed = replace(changed, status=status, ended=(ended or self.clock.now()) if over else None)
        elif run.of_job and status == "RUNNING" and (job := self._job(run.namespace, run.job)) is not None:
            # Somebody who knew its name took it up: whoever asks for a new run now gets another.
            changed = replace(changed, attempt=job.attempt)
        return self._put(changed)

    def delete_run(self, speaker: Speaker, run: TrackedRun) -> None:
        """Hide a run."""
        self.check_may_write(speaker, run)
        if run.of_job:
            message = f"{run.name} is the run of a job"
            raise RefusedError(message, fix=f"fairway delete {run.name}")
        self._put(replace(run, deleted=True))

    def restore_run(self, speaker: Speaker, run: TrackedRun) -> None:
        """Show a run again."""
        shown = replace(run, deleted=False)
        self.check_owns(speaker, run)
        self._put(shown)

    async def log(
        self,
        speaker: Speaker,
        run: TrackedRun,
        metrics: Sequence[Measured] = (),
        params: Mapping[str, str] | None = None,
        tags: Mapping[str, str] | None = None,
    ) -> None:
        """Remember what was said of a run. All of it is checked before any of it is kept."""
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
            known = self._summaries(run, None)
            told = [(point.time, point.step, point.metrics) for point in points]
            changed = replace(changed, summaries=summarise(known, 0, told))
        if changed != run or (points and not run.of_job):
            self._put(changed)
        if points and run.of_job:
            await self.loop.report(Observation(_key(run), points))
        elif points:
            self.store.commit(Changes(points=tuple((_key(run), point) for point in points)))

    def drop_tag(self, speaker: Speaker, run: TrackedRun, tag: str) -> None:
        """Take a tag off a run."""
        self.check_may_write(speaker, run)
        if tag not in run.tags:
            message = f"No tag with name: {tag} in run with id {run.name}"
            raise NotFoundError(message, fix=f"it has {', '.join(run.tags) or 'none'}")
        self._put(replace(run, tags={name: value for name, value in run.tags.items() if name != tag}))

    def note(
        self,
        speaker: Speaker,
        run: TrackedRun,
        outputs: Mapping[str, int],
        inputs: Sequence[str],
        model_inputs: Sequence[str] = (),
    ) -> None:
        """Which models a run logged, and which datasets and models it read."""
        self.check_may_write(speaker, run)
        known = tuple(dict.fromkeys([*run.inputs, *inputs]))
        read = tuple(dict.fromkeys([*run.model_inputs, *model_inputs]))
        if max(len(known), len(read), len({*run.outputs, *outputs})) > MOST:
            message = f"a run has {MOST} inputs and outputs at the most"
            raise UsageError(message, fix="log fewer of them")
        self._put(replace(run, outputs={**run.outputs, **outputs}, inputs=known, model_inputs=read))

    def note_version(self, speaker: Speaker, run: TrackedRun, version: str) -> None:
        """What was registered from a run; that of a run within a job is the job's too.

        A run that registers what another run logged notes it in its own record: it may not write to the other's.
        """
        names = (run.name, run.job or run.name) if speaker.made(run.job) else (speaker.run,)
        for name in dict.fromkeys(names):
            known = self.run(run.namespace, name)
            self._put(replace(known, versions=tuple(dict.fromkeys([*known.versions, version]))))

    def check_may_write(self, speaker: Speaker, run: TrackedRun) -> None:
        """A run's token may write to the job's own run, and to the runs that were made within it."""
        self.check_owns(speaker, run)
        if self.is_deleted(run):
            message = f"The run {run.name} must be in the 'active' state. Current state is deleted."
            raise UsageError(message, fix="restore the run, or its experiment, first")

    def check_owns(self, speaker: Speaker, run: TrackedRun) -> None:
        """Raises `DeniedError` where a run's token asks for a run of another job."""
        if not speaker.made(run.job):
            whose = f"a run of {run.job}" if run.job else "which was made outside of jobs"
            message = f"{speaker.run} may not write to {run.name}, {whose}"
            raise DeniedError(message, fix="log to a run of its own, or from outside of a job")

    def job_of(self, run: TrackedRun) -> Job | None:
        """The run of ours that it is, or within which it was made."""
        return self._job(run.namespace, run.job) if run.job else None

    # Parts

    def _job(self, namespace: str, name: str) -> Job | None:
        key = JobKey(namespace, name)
        return self.loop.snapshot.jobs.get(key) or self.store.get_job(key)

    def _put(self, run: TrackedRun) -> TrackedRun:
        self.store.commit(Changes(tracked=(run,)))
        return run

    def _summaries(self, run: TrackedRun, job: Job | None) -> Mapping[str, Summary]:
        """The run's metrics: of its record, and of the points that are kept where the record has none of a metric."""
        known = run.summaries if job is None else job.progress.summaries
        if job is None and known:
            return known
        kept = self.store.points_of(_key(run), limit=_NEWEST)
        return {**summarise({}, 0, [(point.time, point.step, point.metrics) for point in kept]), **known}


def _titled(title: str, tags: Mapping[str, str]) -> tuple[str, Mapping[str, str]]:
    """The title of a run and its other tags: a client may send the title in either way."""
    tagged = tags.get(RUN_NAME, "")
    if title and tagged and title != tagged:
        message = f"the run is named {title!r} by run_name and {tagged!r} by the tag {RUN_NAME}"
        raise UsageError(message, fix="send one of them")
    return title or tagged, {name: value for name, value in tags.items() if name != RUN_NAME}


def location_of(root: str, name: str) -> str:
    """Where the files of a run or a logged model are, in the place that its experiment names."""
    return f"{root.rstrip('/')}/{name}/artifacts" if root else ""


def points_from(metrics: Sequence[Measured]) -> tuple[MetricPoint, ...]:
    """Values that were measured together make one point, in the order in which they came."""
    found: list[tuple[float, int, dict[str, float]]] = []
    for each in metrics:
        if not found or found[-1][:2] != (each.time, each.step) or each.name in found[-1][2]:
            found.append((each.time, each.step, {}))
        found[-1][2][each.name] = each.value
    return tuple(MetricPoint(time, step, values, source=SOURCE) for time, step, values in found)


def _run_of(job: Job) -> TrackedRun:
    """A job's own run, of which nothing was said yet."""
    name = job.key.name
    return TrackedRun(job.key.namespace, name, experiment=job.series, job=name, title=name, created=job.created)


def _key(run: TrackedRun) -> JobKey:
    return JobKey(run.namespace, run.name)


def _agreed(run: TrackedRun, params: Mapping[str, str]) -> Mapping[str, str]:
    """The parameters; a parameter keeps its first value, save that a job that started again may say it anew."""
    for name, value in params.items():
        if run.params.get(name, value) != value and not (run.of_job and run.attempt > 0):
            message = f"parameter {name!r} of {run.name} is {run.params[name]!r} and cannot become {value!r}"
            raise UsageError(message, fix="log it once, or under another name; what changes over time is a metric")
    return params
