"""Experiments of MLflow clients. Every series of jobs is one; clients create others."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from fairway.app.port.port import ChangeSet, Store
from fairway.errors import ConflictError, DeniedError, NotFoundError, RefusedError, UsageError
from fairway.state.job import JobState
from fairway.state.mlflow_record import Experiment, TrackedRun
from fairway.units.names import check_name

DEFAULT_EXPERIMENT = "0"
"""The experiment of clients that specify none."""
MOST_TAGS = 2000
"""Maximum number of parameters, and of tags, of one record."""


@dataclass(frozen=True, slots=True)
class TokenCaller:
    """The caller: a run of Fairway, or the owner of the home."""

    namespace: str
    run: str = ""
    """`mnist-7`; empty: the owner."""

    def made(self, maker: str) -> bool:
        """Return whether the caller may change what the run `maker` created: a run only its own objects, the owner all."""
        return self.run in ("", maker)


class ExperimentUseCases:
    """Reads and changes experiments. An experiment keeps its id when it is renamed."""

    def __init__(self, store: Store, now: Callable[[], float], job: Callable[[str, str], JobState | None]) -> None:
        self._store = store
        self._now = now
        self._job = job

    def get(self, namespace: str, name: str) -> Experiment:
        """Return the experiment of that id; series and the default experiment need no record."""
        experiment = self._store.tracked(Experiment, namespace, name)
        if experiment is not None:
            return experiment
        if name == DEFAULT_EXPERIMENT:
            return Experiment(namespace, name, title="Default")
        if name in self._store.series_names(namespace):
            return Experiment(namespace, name, title=name)
        message = f"No Experiment with id={name} exists"
        raise NotFoundError(message, fix="make it with mlflow.create_experiment, or submit a job of that name")

    def titled(self, namespace: str, title: str) -> Experiment:
        """Return the experiment with that title."""
        experiment = self._titled(namespace, title)
        if experiment is None:
            message = f"there is no experiment {title!r}"
            raise NotFoundError(message, fix="make it with mlflow.create_experiment, or submit a job of that name")
        return experiment

    def all(self, namespace: str) -> list[Experiment]:
        """Return experiments with a record, newest first, then series without one, then the default experiment."""
        recorded = self._store.all_tracked(Experiment, namespace)
        recorded_names = {experiment.name for experiment in recorded}
        others = [name for name in [*self._store.series_names(namespace), DEFAULT_EXPERIMENT] if name not in recorded_names]
        return [*recorded, *(self.get(namespace, name) for name in others)]

    def create(self, speaker: TokenCaller, title: str, tags: Mapping[str, str], location: str = "") -> Experiment:
        """Create an experiment. `location` is where clients store the files of its runs, instead of in Fairway."""
        namespace = speaker.namespace
        self._check_free(namespace, title)
        if location.partition(":")[0] in ("runs", "models", "mlflow-artifacts"):
            message = f"Invalid value {location[:80]!r} for parameter 'artifact_location' supplied: its scheme is reserved"
            raise UsageError(message, fix="leave it out; then Fairway stores the files")
        name = experiment_name(title)
        if self._store.tracked(Experiment, namespace, name) is not None:
            # A renamed experiment keeps its id, so the id may be taken.
            taken = {item.name for item in self._store.all_tracked(Experiment, namespace)}
            name = next(
                item for item in (hashed_name(f"{title}\n{count}") for count in range(len(taken) + 1)) if item not in taken
            )
        now = self._now()
        experiment = Experiment(namespace, name, title=title, created=now, tags=dict(tags), maker=speaker.run, location=location)
        return self._put(experiment)

    def rename(self, speaker: TokenCaller, name: str, title: str) -> Experiment:
        """Rename an experiment. The title of a series' experiment is the name of its jobs and cannot change."""
        experiment = self._to_change(speaker, name, "rename")
        self._check_own(experiment, "renamed")
        if experiment.title != title:
            self._check_free(experiment.namespace, title)
        return self._put(replace(experiment, title=title))

    def delete(self, speaker: TokenCaller, name: str) -> Experiment:
        """Hide an experiment and its runs until it is restored."""
        experiment = self._to_change(speaker, name, "delete")
        self._check_own(experiment, "deleted")
        runs = [run for run in self._store.all_tracked(TrackedRun, experiment.namespace, name) if not speaker.made(run.job)]
        if runs:
            message = f"{speaker.run} may not delete the experiment {experiment.title!r}: it holds {runs[0].name} of another job"
            raise DeniedError(message, fix="delete it from outside of a job")
        return self._put(replace(experiment, deleted=True))

    def restore(self, speaker: TokenCaller, name: str) -> Experiment:
        """Restore an experiment and its runs."""
        experiment = self._owned(speaker, name, "restore")
        if not experiment.deleted:
            message = f"No Experiment with id={name} exists among the deleted ones"
            raise NotFoundError(message, fix="it is active: nothing needs to be restored")
        return self._put(replace(experiment, deleted=False))

    def tag(self, speaker: TokenCaller, name: str, tags: Mapping[str, str]) -> Experiment:
        """Set tags on an experiment. A run's token may tag the experiment of its own series, and those it created."""
        experiment = self._to_change(speaker, name, "tag")
        return self._put(replace(experiment, tags=grown(experiment.tags, tags, "tags")))

    def drop_tag(self, speaker: TokenCaller, name: str, key: str) -> Experiment:
        """Remove a tag from an experiment."""
        experiment = self._to_change(speaker, name, "untag")
        if key not in experiment.tags:
            message = f"No tag with name: {key} in experiment with id {name}"
            raise NotFoundError(message, fix=f"it has {', '.join(experiment.tags) or 'none'}")
        return self._put(
            replace(experiment, tags={tag_name: value for tag_name, value in experiment.tags.items() if tag_name != key})
        )

    def check_active(self, found: Experiment) -> None:
        """Raise for a deleted experiment."""
        if found.deleted:
            message = f"The experiment {found.name} must be in the 'active' state. Current state is deleted."
            raise UsageError(message, fix="restore it first")

    # Helpers

    def _titled(self, namespace: str, title: str) -> Experiment | None:
        matches = [experiment for experiment in self.all(namespace) if experiment.title == title]
        if matches:
            # An experiment deleted under the rules of an older Fairway must never take precedence over an active one.
            return min(matches, key=lambda experiment: experiment.deleted)
        # A renamed record is still the experiment of its series.
        is_series = title in self._store.series_names(namespace)
        return self._store.tracked(Experiment, namespace, title) if is_series else None

    def _owned(self, speaker: TokenCaller, name: str, verb: str) -> Experiment:
        experiment = self.get(speaker.namespace, name)
        job = self._job(speaker.namespace, speaker.run) if speaker.run else None
        if not speaker.made(experiment.maker) and (job is None or job.series != experiment.name):
            message = f"{speaker.run} may not {verb} the experiment {experiment.title or experiment.name!r}: it did not create it"
            raise DeniedError(message, fix=f"{verb} it from outside of a job, or make an experiment in the run")
        return experiment

    def _to_change(self, speaker: TokenCaller, name: str, verb: str) -> Experiment:
        experiment = self._owned(speaker, name, verb)
        self.check_active(experiment)
        return experiment

    def _check_own(self, found: Experiment, done: str) -> None:
        """Raise for the default experiment and those of series, which belong to Fairway."""
        if found.name == DEFAULT_EXPERIMENT:
            message = f"the experiment Default cannot be {done}"
            raise RefusedError(message, fix="use another experiment")
        if found.name in self._store.series_names(found.namespace):
            message = f"the experiment {found.title or found.name!r} cannot be {done}: it is the series of jobs {found.name}"
            raise RefusedError(message, fix=f"`fairway list {found.name}` shows its jobs, `fairway delete` removes one")

    def _check_free(self, namespace: str, title: str) -> None:
        standing = self._titled(namespace, title)
        if standing is not None:
            state = " in deleted state" if standing.deleted else ""
            message = f"Experiment {title!r} already exists{state}"
            raise ConflictError(message, fix="restore it, or choose another name" if state else "use it, or choose another name")

    def _put(self, experiment: Experiment) -> Experiment:
        changed = replace(experiment, updated=self._now())
        self._store.commit(ChangeSet(tracked=(changed,)))
        return changed


def experiment_name(title: str) -> str:
    """Return the id of a new experiment with that title; for a series, the name of the series."""
    if title == "Default":
        return DEFAULT_EXPERIMENT
    try:
        return check_name(title)
    except ValueError:
        return hashed_name(title)


def hashed_name(title: str) -> str:
    """Return an id for a title that is not a valid name."""
    return f"e{hashlib.sha256(title.encode('utf-8', 'surrogatepass')).hexdigest()[:24]}"


def grown(known: Mapping[str, str], more: Mapping[str, str], what: str) -> dict[str, str]:
    """Merge both mappings; raise if the result exceeds the limit of one record."""
    merged = {**known, **more}
    if len(merged) > MOST_TAGS:
        message = f"one run or experiment has at most {MOST_TAGS} {what}"
        raise UsageError(message, fix="log fewer, or keep them in a file as an artifact")
    return merged
