"""Experiments of MLflow clients. Every series of jobs is one; clients make others."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from fairway.app.ports import Changes, Store
from fairway.errors import ConflictError, DeniedError, NotFoundError, RefusedError, UsageError
from fairway.state.job import Job
from fairway.state.tracking import Experiment, TrackedRun
from fairway.units.names import check_name

DEFAULT_EXPERIMENT = "0"
"""The experiment of clients that name none."""
MOST_TAGS = 2000
"""Parameters, and tags, of one record."""


@dataclass(frozen=True, slots=True)
class Speaker:
    """Who asks: a run of ours, or the owner of the home."""

    namespace: str
    run: str = ""
    """`mnist-7`; empty: the owner."""

    def made(self, maker: str) -> bool:
        """Whether it may change what the run `maker` made: a run changes what it made itself, the owner changes everything."""
        return self.run in ("", maker)


class TrackedExperiments:
    """Reads and changes experiments. An experiment keeps its id when it gets another name."""

    def __init__(self, store: Store, now: Callable[[], float], job: Callable[[str, str], Job | None]) -> None:
        self._store = store
        self._now = now
        self._job = job

    def get(self, namespace: str, name: str) -> Experiment:
        """The experiment of that id; series and the default experiment need no record."""
        found = self._store.tracked(Experiment, namespace, name)
        if found is not None:
            return found
        if name == DEFAULT_EXPERIMENT:
            return Experiment(namespace, name, title="Default")
        if name in self._store.series_names(namespace):
            return Experiment(namespace, name, title=name)
        message = f"No Experiment with id={name} exists"
        raise NotFoundError(message, fix="make it with mlflow.create_experiment, or submit a job of that name")

    def titled(self, namespace: str, title: str) -> Experiment:
        """The experiment with that title."""
        found = self._titled(namespace, title)
        if found is None:
            message = f"there is no experiment {title!r}"
            raise NotFoundError(message, fix="make it with mlflow.create_experiment, or submit a job of that name")
        return found

    def all(self, namespace: str) -> list[Experiment]:
        """Those with a record, the newest first, then the series without one, then the default experiment."""
        made = self._store.all_tracked(Experiment, namespace)
        known = {experiment.name for experiment in made}
        others = [name for name in [*self._store.series_names(namespace), DEFAULT_EXPERIMENT] if name not in known]
        return [*made, *(self.get(namespace, name) for name in others)]

    def create(self, speaker: Speaker, title: str, tags: Mapping[str, str], location: str = "") -> Experiment:
        """Make an experiment. `location` is where clients put the files of its runs instead of here."""
        namespace = speaker.namespace
        self._check_free(namespace, title)
        if location.partition(":")[0] in ("runs", "models", "mlflow-artifacts"):
            message = f"Invalid value {location[:80]!r} for parameter 'artifact_location' supplied: it is no place of its own"
            raise UsageError(message, fix="leave it out, and the files are kept by Fairway")
        name = experiment_name(title)
        if self._store.tracked(Experiment, namespace, name) is not None:
            # An experiment that has another title now keeps the id.
            taken = {each.name for each in self._store.all_tracked(Experiment, namespace)}
            name = next(
                each for each in (hashed_name(f"{title}\n{count}") for count in range(len(taken) + 1)) if each not in taken
            )
        now = self._now()
        made = Experiment(namespace, name, title=title, created=now, tags=dict(tags), maker=speaker.run, location=location)
        return self._put(made)

    def rename(self, speaker: Speaker, name: str, title: str) -> Experiment:
        """Give an experiment another title. That of a series is the name of its jobs and stays."""
        found = self._to_change(speaker, name, "rename")
        self._check_own(found, "renamed")
        if found.title != title:
            self._check_free(found.namespace, title)
        return self._put(replace(found, title=title))

    def delete(self, speaker: Speaker, name: str) -> Experiment:
        """Hide an experiment and its runs until it is restored."""
        found = self._to_change(speaker, name, "delete")
        self._check_own(found, "deleted")
        others = [run for run in self._store.all_tracked(TrackedRun, found.namespace, name) if not speaker.made(run.job)]
        if others:
            message = f"{speaker.run} may not delete the experiment {found.title!r}: it holds {others[0].name} of another job"
            raise DeniedError(message, fix="delete it from outside of a job")
        return self._put(replace(found, deleted=True))

    def restore(self, speaker: Speaker, name: str) -> Experiment:
        """Show an experiment and its runs again."""
        found = self._owned(speaker, name, "restore")
        if not found.deleted:
            message = f"No Experiment with id={name} exists among the deleted ones"
            raise NotFoundError(message, fix="it is active: nothing needs to be restored")
        return self._put(replace(found, deleted=False))

    def tag(self, speaker: Speaker, name: str, tags: Mapping[str, str]) -> Experiment:
        """Put tags on an experiment. A run's token may tag the experiment of its own series, and those that it made."""
        found = self._to_change(speaker, name, "tag")
        return self._put(replace(found, tags=grown(found.tags, tags, "tags")))

    def drop_tag(self, speaker: Speaker, name: str, key: str) -> Experiment:
        """Take a tag off an experiment."""
        found = self._to_change(speaker, name, "untag")
        if key not in found.tags:
            message = f"No tag with name: {key} in experiment with id {name}"
            raise NotFoundError(message, fix=f"it has {', '.join(found.tags) or 'none'}")
        return self._put(replace(found, tags={each: value for each, value in found.tags.items() if each != key}))

    def check_active(self, found: Experiment) -> None:
        """Raises for an experiment that was deleted."""
        if found.deleted:
            message = f"The experiment {found.name} must be in the 'active' state. Current state is deleted."
            raise UsageError(message, fix="restore it first")

    # Parts

    def _titled(self, namespace: str, title: str) -> Experiment | None:
        known = [each for each in self.all(namespace) if each.title == title]
        if known:
            # One that was deleted under an older Fairway rule never stands before an active one.
            return min(known, key=lambda each: each.deleted)
        # A record that was renamed still is the experiment of its series.
        is_series = title in self._store.series_names(namespace)
        return self._store.tracked(Experiment, namespace, title) if is_series else None

    def _owned(self, speaker: Speaker, name: str, verb: str) -> Experiment:
        found = self.get(speaker.namespace, name)
        job = self._job(speaker.namespace, speaker.run) if speaker.run else None
        if not speaker.made(found.maker) and (job is None or job.series != found.name):
            message = f"{speaker.run} may not {verb} the experiment {found.title or found.name!r}: it did not make it"
            raise DeniedError(message, fix=f"{verb} it from outside of a job, or make an experiment in the run")
        return found

    def _to_change(self, speaker: Speaker, name: str, verb: str) -> Experiment:
        found = self._owned(speaker, name, verb)
        self.check_active(found)
        return found

    def _check_own(self, found: Experiment, done: str) -> None:
        """The default experiment and those of series belong to Fairway."""
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
        self._store.commit(Changes(tracked=(changed,)))
        return changed


def experiment_name(title: str) -> str:
    """The id of a new experiment with that title; that of a series is the series itself."""
    if title == "Default":
        return DEFAULT_EXPERIMENT
    try:
        return check_name(title)
    except ValueError:
        return hashed_name(title)


def hashed_name(title: str) -> str:
    """An id for a title that is no legal name."""
    return f"e{hashlib.sha256(title.encode('utf-8', 'surrogatepass')).hexdigest()[:24]}"


def grown(known: Mapping[str, str], more: Mapping[str, str], what: str) -> dict[str, str]:
    """Both; raises for more than one record may have."""
    found = {**known, **more}
    if len(found) > MOST_TAGS:
        message = f"one run or experiment has {MOST_TAGS} {what} at the most"
        raise UsageError(message, fix="log fewer, or keep them in a file as an artifact")
    return found
