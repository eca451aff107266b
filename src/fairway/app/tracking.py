"""What MLflow clients may tell and ask: experiments and runs. A run of ours is a run of theirs; a series is an experiment."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from fairway.app.loop import Loop
from fairway.app.ports import Changes, JobFilter, MetricPoint, Observation
from fairway.app.tracking_ports import Shelf
from fairway.errors import ConflictError, DeniedError, NotFoundError, RefusedError, UsageError
from fairway.state.job import Job, JobKey
from fairway.state.metric import Summary, best_values, summarise
from fairway.state.phase import JobPhase
from fairway.state.tracking import Experiment, TrackedRun
from fairway.units.names import check_name

SOURCE = "mlflow"
DEFAULT_EXPERIMENT = "0"
"""What clients ask for when nobody named an experiment."""
PARENT = "mlflow.parentRunId"
MOST = 2000
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
class Speaker:
    """Who asks: a run of ours, or the owner of the home."""

    namespace: str
    run: str = ""
    """`mnist-7`; empty: the owner."""

    def made(self, maker: str) -> bool:
        """Whether it may change what the run `maker` made: a run changes what it made itself, the owner changes everything."""
        return self.run in ("", maker)


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

    # Experiments

    def experiment(self, namespace: str, name: str) -> Experiment:
        """The experiment of that name; series and the default one are always there."""
        found = self.store.tracked(Experiment, namespace, name)
        if found is not None:
            return found
        if name == DEFAULT_EXPERIMENT:
            return Experiment(namespace, name, title="Default")
        if name in self.store.series_names(namespace):
            return Experiment(namespace, name, title=name)
        message = f"there is no experiment {name!r}"
        raise NotFoundError(message, fix="make it with mlflow.create_experiment, or submit a job of that name")

    def experiment_titled(self, namespace: str, title: str) -> Experiment:
        """The experiment that people call so."""
        try:
            return self.experiment(namespace, experiment_name(title))
        except NotFoundError:
            message = f"there is no experiment {title!r}"
            raise NotFoundError(message, fix="make it with mlflow.create_experiment, or submit a job of that name") from None

    def experiments(self, namespace: str) -> list[Experiment]:
        """All of them: those that were made, newest first, then the series without a record, then the default one."""
        made = self.store.all_tracked(Experiment, namespace)
        known = {experiment.name for experiment in made}
        others = [name for name in [*self.store.series_names(namespace), DEFAULT_EXPERIMENT] if name not in known]
        return [*made, *(self.experiment(namespace, name) for name in others)]

    def create_experiment(self, speaker: Speaker, title: str, tags: Mapping[str, str]) -> Experiment:
        """A new one."""
        namespace, name = speaker.namespace, experiment_name(title)
        try:
            self.experiment(namespace, name)
        except NotFoundError:
            now = self.clock.now()
            made = Experiment(namespace, name, title=title, created=now, tags=dict(tags), maker=speaker.run)
            self.store.commit(Changes(tracked=(made,)))
            return made
        message = f"there is an experiment {title!r} already"
        raise ConflictError(message, fix="use it, or choose another name")

    def tag_experiment(self, speaker: Speaker, name: str, tags: Mapping[str, str]) -> None:
        """Put tags on an experiment. A run's token may do so on the experiment of its own series, and on those that it made."""
        found = self.experiment(speaker.namespace, name)
        job = self._job(speaker.namespace, speaker.run) if speaker.run else None
        if not speaker.made(found.maker) and (job is None or job.series != found.name):
            message = f"{speaker.run} may not tag the experiment {found.title or found.name!r}: it did not make it"
            raise DeniedError(message, fix="tag it from outside of a job, or make an experiment in the run")
        self.store.commit(Changes(tracked=(replace(found, tags=_grown(found.tags, tags, "tags")),)))

    # Runs

    def run(self, namespace: str, name: str) -> TrackedRun:
        """A run of ours, or one that a client made."""
        found = self.store.tracked(TrackedRun, namespace, name)
        if found is not None:
            return found
        job = self._job(namespace, name)
        if job is None:
            message = f"there is no run {name!r}"
            raise NotFoundError(message, fix="`fairway list` shows the runs of jobs")
        return _run_of(job)

    def facts(self, run: TrackedRun) -> RunFacts:
        """The run with what its job tells of it."""
        job = self._job(run.namespace, run.job) if run.job else None
        own = job if run.of_job else None
        summaries = self._summaries(run, own)
        metrics = tuple(Measured(name, each.last, each.time, each.step or 0) for name, each in summaries.items())
        best = best_values(summaries, own.spec.stop.goals if own is not None else {})
        user = job.origin.user if job is not None else run.tags.get("mlflow.user", "")
        if job is None or not run.of_job:
            return RunFacts(run, run.status, run.created, run.ended, user, metrics, best)
        started = job.started if job.started is not None else job.created
        return RunFacts(run, _STATUS.get(job.phase, "SCHEDULED"), started, job.finished, user, metrics, best)

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
        return sorted(found.values(), key=lambda run: run.created, reverse=True)

    def create_run(self, speaker: Speaker, experiment: str, title: str, started: float, tags: Mapping[str, str]) -> TrackedRun:
        """A new run. The first that an attempt of a job asks for is the job's own; its next ones, and nested ones, are others."""
        job = self._job(speaker.namespace, speaker.run) if speaker.run else None
        if job is not None and experiment == DEFAULT_EXPERIMENT:
            experiment = job.series
        self.experiment(speaker.namespace, experiment)
        now = self.clock.now()
        if job is not None and PARENT not in tags:
            own = self.run(speaker.namespace, speaker.run)
            if own.attempt < job.attempt:
                own = replace(own, attempt=job.attempt, experiment=experiment, title=title or own.title)
                return self._put(replace(own, tags=_grown(own.tags, tags, "tags")))
        made = TrackedRun(
            speaker.namespace,
            self._new_id(),
            experiment=experiment,
            job=speaker.run if job is not None else "",
            title=title,
            created=started or now,
            tags=_grown({}, tags, "tags"),
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
        self.check_may_write(speaker, shown)
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
        changed = replace(
            run, params=_grown(run.params, _agreed(run, params or {}), "parameters"), tags=_grown(run.tags, tags or {}, "tags")
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
            message = f"{run.name} has no tag {tag!r}"
            raise NotFoundError(message, fix=f"it has {', '.join(run.tags) or 'none'}")
        self._put(replace(run, tags={name: value for name, value in run.tags.items() if name != tag}))

    def note(self, speaker: Speaker, run: TrackedRun, outputs: Mapping[str, int], inputs: Sequence[str]) -> None:
        """Which models a run logged, and which datasets it read."""
        self.check_may_write(speaker, run)
        known = tuple(dict.fromkeys([*run.inputs, *inputs]))
        if len(known) > MOST or len({*run.outputs, *outputs}) > MOST:
            message = f"a run has {MOST} inputs and outputs at the most"
            raise UsageError(message, fix="log fewer of them")
        self._put(replace(run, outputs={**run.outputs, **outputs}, inputs=known))

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
        if not speaker.made(run.job):
            whose = f"a run of {run.job}" if run.job else "which was made outside of jobs"
            message = f"{speaker.run} may not write to {run.name}, {whose}"
            raise DeniedError(message, fix="log to a run of its own, or from outside of a job")
        if run.deleted:
            message = f"the run {run.name} is deleted"
            raise RefusedError(message, fix="restore it first")

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


def experiment_name(title: str) -> str:
    """What clients know the experiment of that title by; that of a series is the series itself."""
    if title == "Default":
        return DEFAULT_EXPERIMENT
    try:
        return check_name(title)
    except ValueError:
        return f"e{hashlib.sha256(title.encode()).hexdigest()[:24]}"


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


def _grown(known: Mapping[str, str], more: Mapping[str, str], what: str) -> dict[str, str]:
    found = {**known, **more}
    if len(found) > MOST:
        message = f"a run has {MOST} {what} at the most"
        raise UsageError(message, fix="log fewer, or keep them in a file as an artifact")
    return found
