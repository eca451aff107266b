"""Conformance suite of stores for records from MLflow clients. Part of `store_conformance`."""

from __future__ import annotations

from dataclasses import replace

from fairway.app.port.port import ChangeSet, MetricPoint, Store
from fairway.spec.job import JobSpec, TaskRole
from fairway.state.job import JobKey, JobState
from fairway.state.mlflow_record import Experiment, LoggedModel, RegisteredModelName, TrackedRun


def a_job(number: int = 1) -> JobState:
    """Return a small run."""
    spec = JobSpec(roles={"worker": TaskRole(command=("python", "train.py"))})
    return JobState(JobKey("default", f"mnist-{number}"), "mnist", number, spec, created=1.0)


class TrackingConformance:
    """The part of the suite about tracking records."""

    def test_what_is_tracked_comes_back_as_it_went_in(self, store: Store) -> None:
        run = TrackedRun(
            "default",
            "0123abcd",
            experiment="mnist",
            job="mnist-1",
            title="first try",
            status="FINISHED",
            created=1.5,
            ended=2.5,
            attempt=2,
            params={"lr": "0.1", "müde": "\n"},
            tags={"a": ""},
            outputs={"m-1": 3},
            inputs=("{}",),
            versions=("mnist@3",),
            deleted=True,
        )
        experiment = Experiment("default", "e1", title="Größe?", created=2.0, tags={"x": "y"})
        model = LoggedModel("default", "m-1", title="net", experiment="mnist", run="0123abcd", job="mnist-1", params={"a": "b"})
        name = RegisteredModelName("default", "My Model", model="my-model", created=3.0, description="d", tags={"t": "1"})
        store.commit(ChangeSet(tracked=(run, experiment, model, name)))
        assert store.tracked(TrackedRun, "default", "0123abcd") == run
        assert store.tracked(Experiment, "default", "e1") == experiment
        assert store.tracked(LoggedModel, "default", "m-1") == model
        assert store.tracked(RegisteredModelName, "default", "My Model") == name
        assert store.tracked(TrackedRun, "team", "0123abcd") is None
        assert store.tracked(Experiment, "default", "0123abcd") is None

    def test_the_newest_come_first_and_keep_their_place(self, store: Store) -> None:
        runs = [TrackedRun("default", f"r{number}", experiment="a" if number % 2 else "b") for number in range(5)]
        for run in runs:
            store.commit(ChangeSet(tracked=(run,)))
        changed = replace(runs[1], params={"lr": "1"})
        store.commit(ChangeSet(tracked=(changed,)))
        assert store.all_tracked(TrackedRun, "default") == [runs[4], runs[3], runs[2], changed, runs[0]]
        assert store.all_tracked(TrackedRun, "default", "a") == [runs[3], changed]
        store.commit(ChangeSet(tracked=(replace(runs[0], experiment="a"),)))
        assert [run.name for run in store.all_tracked(TrackedRun, "default", "a")] == ["r3", "r1", "r0"]
        assert store.all_tracked(TrackedRun, "team") == []
        assert store.all_tracked(Experiment, "default") == []

    def test_a_tracked_run_has_points_of_its_own(self, store: Store) -> None:
        point, other = MetricPoint(1.0, 1, {"loss": 1.0}, source="mlflow"), MetricPoint(1.0, 1, {"loss": 2.0}, source="mlflow")
        job, run = a_job(), TrackedRun("default", "0123abcd", experiment="mnist")
        store.commit(ChangeSet(jobs=(job,), tracked=(run,), points=((JobKey("default", run.name), point), (job.key, other))))
        assert store.points_of(JobKey("default", run.name)) == [point]
        assert store.points_of(job.key) == [other]
        assert store.points_of(JobKey("team", run.name)) == []

    def test_what_a_run_of_ours_owns_goes_with_it(self, store: Store) -> None:
        job, point = a_job(), MetricPoint(1.0, 1, {"loss": 1.0}, source="mlflow")
        inside, outside = TrackedRun("default", "inside", job="mnist-1"), TrackedRun("default", "outside")
        own, model = TrackedRun("default", "mnist-1", job="mnist-1"), LoggedModel("default", "m-1", job="mnist-1")
        points = tuple((JobKey("default", name), point) for name in ("inside", "outside", "mnist-1"))
        store.commit(ChangeSet(jobs=(job,), tracked=(inside, outside, own, model), points=points))
        store.commit(ChangeSet(deleted=(job.key,)))
        assert store.all_tracked(TrackedRun, "default") == [outside]
        assert store.all_tracked(LoggedModel, "default") == []
        store.commit(ChangeSet(tracked=(inside,)))
        assert store.points_of(JobKey("default", "inside")) == []
        assert store.points_of(JobKey("default", "outside")) == [point]
