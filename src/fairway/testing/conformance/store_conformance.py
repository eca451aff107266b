"""Conformance suite of the `Store` port. Subclass it in a test module, with a fixture `store` that returns an empty store."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise

from fairway.app.port.port import ChangeSet, JobFilter, MetricPoint, Store
from fairway.errors import UsageError
from fairway.spec.job import CodeSource, GitSource, JobSpec, RetentionPolicy, RoleReplicas, TaskRole
from fairway.spec.resource import ResourceAmounts
from fairway.state.event import RunEvent
from fairway.state.job import JobKey, JobState, ResumePoint, RunOutcome, RunProgress, SubmissionOrigin, WaitReason
from fairway.state.metric import MetricSummary
from fairway.state.phase import JobPhase, RunIntent, TaskPhase
from fairway.state.task import Task, TaskExit, TaskKey, TaskNeed
from fairway.testing.conformance.queue_conformance import QueueConformance
from fairway.testing.conformance.receipt_conformance import ReceiptConformance
from fairway.testing.conformance.service_conformance import ServiceConformance
from fairway.testing.conformance.tracking_conformance import TrackingConformance

SPEC = JobSpec(roles={"worker": TaskRole(command=("python", "train.py"), replicas=RoleReplicas(min=2, max=4))})

RICH_SPEC = JobSpec(
    code=CodeSource(git=GitSource(url="https://example.org/code.git", ref="main")),
    env={"BATCH": "64", "GREETING": 'says "hi" \u00e9\u4f60\U0001f600\n'},
    secrets=("HF_TOKEN",),
    data={"train": "mnist@3"},
    roles={
        "worker": TaskRole(
            script="echo one\necho two", resources=ResourceAmounts(cpu="500m", gpu="1", gpu_type=("A100",), other={"rdma/hca": 1})
        ),
        "ps": TaskRole(command=("python", "ps.py")),
    },
    timeout="48h",
    priority=-5,
)


def make_job(number: int = 1, series: str = "mnist", namespace: str = "default", phase: JobPhase = JobPhase.PENDING) -> JobState:
    """Return a small run."""
    return JobState(JobKey(namespace, f"{series}-{number}"), series, number, SPEC, phase=phase, created=1000.0 + number)


def make_task(job: JobState, index: int = 0, attempt: int = 0, phase: TaskPhase = TaskPhase.RUNNING) -> Task:
    """Return a small task."""
    return Task(TaskKey(job.key.namespace, job.key.name, "worker", index, attempt), phase, TaskNeed(1.0, 1 << 30), created=5.0)


def pages(store: Store, wanted: JobFilter) -> Iterator[list[str]]:
    """Yield the names on each page until the last one."""
    while True:
        page = store.list_jobs(wanted)
        yield [job.key.name for job in page.jobs]
        if not page.next:
            return
        wanted = replace(wanted, before=page.next)


def _refusal(store: Store, wanted: JobFilter) -> str:
    try:
        store.list_jobs(wanted)
    except UsageError as problem:
        return problem.message
    return ""


class StoreConformance(QueueConformance, ServiceConformance, TrackingConformance, ReceiptConformance):
    """The suite."""

    def test_an_empty_store_holds_nothing(self, store: Store) -> None:
        key = JobKey("default", "mnist-1")
        assert store.get_job(key) is None
        assert store.newest("default", "mnist") is None
        assert store.active_jobs() == []
        assert store.tasks_of(key) == []
        assert store.events_of("") == []
        assert store.points_of(key) == []
        assert store.series_names("default") == []
        assert store.queues() == []
        assert store.memory() is None
        page = store.list_jobs(JobFilter())
        assert (page.jobs, page.next, page.total) == ((), "", 0)

    def test_a_run_comes_back_as_it_went_in(self, store: Store) -> None:
        job = JobState(
            JobKey("team-nlp", "mnist-7"),
            "mnist",
            7,
            RICH_SPEC,
            SubmissionOrigin("ana", "/home/ana/\u00fc", "/usr/bin/python", "sha256:ab", terminal=True, keeps_environment=True),
            {"team": "nlp", "odd": "\"' \\ \u4f60"},
            RunIntent.STOP,
            JobPhase.STOPPING,
            attempt=3,
            restarts=2,
            sizes={"worker": 2, "ps": 1},
            not_before=12.5,
            created=1.25,
            started=2.5,
            finished=3.75,
            hold=WaitReason("gpu", "waits for 1 GPU", "free one", 9.0),
            outcome=RunOutcome("Error", "worker-1 failed", "worker-1", 1),
            resume=ResumePoint(4200, 90.0),
            progress=RunProgress(
                12,
                {"loss": 0.1, "big": 1e300},
                5.0,
                4.5,
                10,
                4.0,
                summaries={"loss": MetricSummary(0.1, 5.0, 12, 3, 0.05, 7, 2.0, None)},
            ),
            last_failure="abc@12",
            memory_factor=1.5,
            ending=JobPhase.FAILED,
            nudged=8.0,
            deleting=True,
        )
        store.commit(ChangeSet(jobs=(job,)))
        assert store.get_job(job.key) == job
        assert store.active_jobs() == [job]
        assert store.newest("team-nlp", "mnist") == job
        assert store.list_jobs(JobFilter()).jobs == (job,)

    def test_numbers_that_are_none_come_back(self, store: Store) -> None:
        progress = RunProgress(1, {"loss": math.inf, "low": -math.inf, "accuracy": math.nan})
        job = replace(make_job(), progress=progress)
        point = MetricPoint(1.0, 1, {"loss": math.inf, "accuracy": math.nan})
        store.commit(ChangeSet(jobs=(job,), points=((job.key, point),)))
        stored = store.get_job(job.key)
        assert stored is not None
        assert stored.progress.metrics["loss"] == math.inf
        assert stored.progress.metrics["low"] == -math.inf
        assert math.isnan(stored.progress.metrics["accuracy"])
        stored_metrics = store.points_of(job.key)[0].metrics
        assert stored_metrics["loss"] == math.inf
        assert math.isnan(stored_metrics["accuracy"])

    def test_a_task_comes_back_as_it_went_in(self, store: Store) -> None:
        job = make_job()
        task = Task(
            TaskKey("default", "mnist-1", "worker", 1, 2),
            TaskPhase.FAILED,
            TaskNeed(0.5, 1 << 40, 1, 250, 1 << 30, ("A100", "H100"), {"rdma/hca": 2}),
            processes=4,
            slots=8,
            ready=True,
            node="here",
            devices=("GPU-1", "GPU-2"),
            address="127.0.0.1:20000",
            created=1.0,
            started=2.0,
            finished=3.0,
            exit=TaskExit(
                None, 9, 3, out_of_memory=True, by_us=True, tail="last\nlines \u00e9", traceback_digest="ab", reached_step=7
            ),
            message="killed",
            evicting_since=2.5,
        )
        store.commit(ChangeSet(jobs=(job,), tasks=(task,)))
        assert store.tasks_of(job.key) == [task]

    def test_what_was_committed_last_is_read(self, store: Store) -> None:
        job, task = make_job(), make_task(make_job())
        store.commit(ChangeSet(jobs=(job,), tasks=(task,)))
        later = replace(job, phase=JobPhase.SUCCEEDED, finished=9.0, labels={"a": "b"})
        ended = replace(task, phase=TaskPhase.SUCCEEDED)
        store.commit(ChangeSet(jobs=(later,), tasks=(ended,)))
        assert store.get_job(job.key) == later
        assert store.tasks_of(job.key) == [ended]
        assert store.active_jobs() == []
        assert store.list_jobs(JobFilter(phases=("Pending",))).jobs == ()
        assert store.list_jobs(JobFilter(phases=("Succeeded",))).jobs == (later,)

    def test_a_commit_takes_many_kinds_at_once(self, store: Store) -> None:
        first_job, second_job = make_job(1), make_job(2)
        event = RunEvent(1.0, str(first_job.key), "Submitted", "by ana")
        point = MetricPoint(2.0, 3, {"loss": 0.5}, "worker-0")
        changes = ChangeSet(
            (first_job, second_job), (make_task(first_job), make_task(second_job)), (event,), ((second_job.key, point),)
        )
        store.commit(changes)
        assert store.active_jobs() == [first_job, second_job]
        assert store.tasks_of(second_job.key) == [make_task(second_job)]
        assert store.events_of("") == [event]
        assert store.points_of(second_job.key) == [point]
        assert store.points_of(first_job.key) == []

    def test_numbers_rise_by_one_in_each_series(self, store: Store) -> None:
        assert [store.next_number("default", "mnist") for _ in range(3)] == [1, 2, 3]
        assert store.next_number("default", "other") == 1
        assert store.next_number("team", "mnist") == 1
        assert store.next_number("default", "mnist") == 4

    def test_numbers_are_not_used_again_after_a_delete(self, store: Store) -> None:
        job = make_job(store.next_number("default", "mnist"))
        store.commit(ChangeSet(jobs=(job,)))
        store.commit(ChangeSet(deleted=(job.key,)))
        assert store.next_number("default", "mnist") == 2

    def test_the_newest_run_has_the_highest_number(self, store: Store) -> None:
        store.commit(ChangeSet(jobs=(make_job(9), make_job(10), make_job(2), make_job(11, series="other"))))
        newest_run = store.newest("default", "mnist")
        assert newest_run is not None
        assert newest_run.number == 10
        assert store.newest("team", "mnist") is None

    def test_active_runs_come_oldest_first(self, store: Store) -> None:
        phases = list(JobPhase)
        jobs = [make_job(number, phase=phases[-number % len(phases)]) for number in range(1, 17)]
        store.commit(ChangeSet(jobs=tuple(jobs)))
        assert store.active_jobs() == [job for job in jobs if not job.phase.over]

    def test_tasks_come_in_order_of_role_index_and_attempt(self, store: Store) -> None:
        job = make_job()
        tasks = [make_task(job, index, attempt) for index in (10, 2, 0) for attempt in (1, 0)]
        ps = replace(tasks[0], key=replace(tasks[0].key, role="ps"))
        store.commit(ChangeSet(jobs=(job,), tasks=(*tasks, ps)))
        assert [task.key for task in store.tasks_of(job.key)] == sorted(task.key for task in (*tasks, ps))

    def test_pages_hold_every_run_once_newest_first(self, store: Store) -> None:
        phases = list(JobPhase)
        for number in range(1, 24):
            store.commit(ChangeSet(jobs=(make_job(number, phase=phases[number % len(phases)]),)))
        expected = [f"mnist-{number}" for number in range(23, 0, -1)]
        for job_filter in (
            JobFilter(),
            JobFilter(namespace="default"),
            JobFilter(namespace="default", series="mnist"),
            JobFilter(series="mnist"),
        ):
            page_names = list(pages(store, replace(job_filter, limit=5)))
            assert [name for page in page_names for name in page] == expected
            assert [len(page) for page in page_names] == [5, 5, 5, 5, 3]
            assert store.list_jobs(replace(job_filter, limit=5)).total == 23

    def test_a_full_last_page_has_no_successor(self, store: Store) -> None:
        store.commit(ChangeSet(jobs=tuple(make_job(number) for number in range(1, 5))))
        assert list(pages(store, JobFilter(limit=2))) == [["mnist-4", "mnist-3"], ["mnist-2", "mnist-1"]]

    def test_pages_stay_true_while_runs_come_and_go(self, store: Store) -> None:
        store.commit(ChangeSet(jobs=tuple(make_job(number) for number in range(1, 7))))
        first = store.list_jobs(JobFilter(limit=2))
        store.commit(ChangeSet(jobs=(make_job(7),), deleted=(make_job(5).key, make_job(3).key)))
        second = store.list_jobs(JobFilter(limit=2, before=first.next))
        assert [job.key.name for job in second.jobs] == ["mnist-4", "mnist-2"]

    def test_a_wrong_cursor_is_refused(self, store: Store) -> None:
        assert "cursor" in _refusal(store, JobFilter(before="'; DROP TABLE job"))

    def test_lists_are_filtered(self, store: Store) -> None:
        in_default = replace(make_job(1, phase=JobPhase.RUNNING), labels={"team": "nlp", "kind": "a"})
        in_team = replace(make_job(1, namespace="team", phase=JobPhase.FAILED), labels={"team": "nlp", "kind": "b"})
        other = make_job(1, series="other", phase=JobPhase.FAILED)
        store.commit(ChangeSet(jobs=(in_default, in_team, other)))
        cases = [
            (JobFilter(), (other, in_team, in_default)),
            (JobFilter(namespace="default"), (other, in_default)),
            (JobFilter(series="mnist"), (in_team, in_default)),
            (JobFilter(namespace="team", series="mnist"), (in_team,)),
            (JobFilter(phases=("Failed",)), (other, in_team)),
            (JobFilter(phases=("Failed", "Running")), (other, in_team, in_default)),
            (JobFilter(namespace="default", phases=("Failed",)), (other,)),
            (JobFilter(namespace="default", series="mnist", phases=("Failed",)), ()),
            (JobFilter(labels={"team": "nlp"}), (in_team, in_default)),
            (JobFilter(labels={"team": "nlp", "kind": "b"}), (in_team,)),
            (JobFilter(labels={"team": "nlp"}, phases=("Running",)), (in_default,)),
            (JobFilter(labels={"team": "nlp"}, namespace="team", series="mnist"), (in_team,)),
            (JobFilter(labels={"team": "x"}), ()),
        ]
        for job_filter, expected in cases:
            page = store.list_jobs(job_filter)
            assert (page.jobs, page.total) == (expected, len(expected)), job_filter

    def test_labels_change_with_the_run(self, store: Store) -> None:
        job = replace(make_job(), labels={"a": "1", "b": "2"})
        store.commit(ChangeSet(jobs=(job,)))
        store.commit(ChangeSet(jobs=(replace(job, labels={"b": "3"}),)))
        assert store.list_jobs(JobFilter(labels={"a": "1"})).total == 0
        assert store.list_jobs(JobFilter(labels={"b": "3"})).total == 1

    def test_totals_follow_every_move(self, store: Store) -> None:
        jobs = [make_job(number) for number in range(1, 6)]
        store.commit(ChangeSet(jobs=tuple(jobs)))
        store.commit(ChangeSet(jobs=tuple(replace(job, phase=JobPhase.RUNNING) for job in jobs[:3])))
        store.commit(ChangeSet(jobs=(replace(jobs[0], phase=JobPhase.FAILED),), deleted=(jobs[4].key,)))

        def total(**wanted: object) -> int:
            return store.list_jobs(replace(JobFilter(limit=1), **wanted)).total  # type: ignore[arg-type]

        assert total() == total(namespace="default") == total(namespace="default", series="mnist") == 4
        assert total(phases=("Running",)) == 2
        assert total(phases=("Pending", "Failed")) == 2
        assert total(namespace="team") == 0

    def test_a_deleted_run_leaves_nothing(self, store: Store) -> None:
        job, other = replace(make_job(1), labels={"a": "b"}), make_job(2)
        point = MetricPoint(1.0, 1, {"loss": 1.0})
        events = (
            RunEvent(1.0, str(job.key), "Submitted", ""),
            RunEvent(2.0, str(make_task(job).key), "Placed", ""),
            RunEvent(3.0, str(other.key), "x", ""),
        )
        store.commit(ChangeSet((job, other), (make_task(job), make_task(other)), events, ((job.key, point), (other.key, point))))
        store.commit(ChangeSet(deleted=(job.key,)))
        assert store.get_job(job.key) is None
        assert store.tasks_of(job.key) == []
        assert store.points_of(job.key) == []
        assert store.events_of(str(job.key)) == []
        assert store.list_jobs(JobFilter(labels={"a": "b"})).total == 0
        assert store.active_jobs() == [other]
        assert store.tasks_of(other.key) == [make_task(other)]
        assert store.events_of("") == [events[2]]
        assert store.points_of(other.key) == [point]

    def test_a_delete_wins_and_its_event_stays(self, store: Store) -> None:
        job = make_job()
        store.commit(ChangeSet(jobs=(job,)))
        deleted_event = RunEvent(5.0, str(job.key), "Deleted", "by ana")
        store.commit(ChangeSet(jobs=(job,), tasks=(make_task(job),), events=(deleted_event,), deleted=(job.key,)))
        assert store.get_job(job.key) is None
        assert store.tasks_of(job.key) == []
        assert store.events_of(str(job.key)) == [deleted_event]

    def test_deleting_what_is_not_there_is_harmless(self, store: Store) -> None:
        store.commit(ChangeSet(deleted=(JobKey("default", "nothing-1"),)))
        assert store.list_jobs(JobFilter()).total == 0

    def test_tasks_and_points_of_unknown_runs_are_dropped(self, store: Store) -> None:
        job = make_job()
        store.commit(ChangeSet(tasks=(make_task(job),), points=((job.key, MetricPoint(1.0, 1, {"loss": 1.0})),)))
        store.commit(ChangeSet(jobs=(job,)))
        assert store.tasks_of(job.key) == []
        assert store.points_of(job.key) == []

    def test_events_of_a_run_hold_those_of_its_tasks(self, store: Store) -> None:
        run = [
            RunEvent(float(time), subject, "x", str(time))
            for time, subject in enumerate(["a/m-1", "a/m-1/worker-0#0", "a/m-1", "a/m-1/worker-0#1"])
        ]
        others = [RunEvent(9.0, subject, "y", "") for subject in ("a/m-10", "a/m-10/worker-0#0", "b/m-1", "a/m-1/worker-01#0")]
        store.commit(ChangeSet(events=(*run, *others)))
        assert store.events_of("a/m-1") == [*run, others[3]]
        assert store.events_of("a/m-1/worker-0#1") == [run[3]]
        assert store.events_of("a/m-1/worker-0") == [run[1], run[3]]
        assert store.events_of("") == [*run, *others]

    def test_events_are_the_newest_oldest_first(self, store: Store) -> None:
        events = [RunEvent(float(time), "a/m-1", "x", str(time)) for time in range(10)]
        for event in events:
            store.commit(ChangeSet(events=(event,)))
        assert store.events_of("a/m-1", limit=3) == events[-3:]
        assert store.events_of("", limit=4) == events[-4:]
        assert store.events_of("", limit=0) == []

    def test_events_of_a_namespace_are_limited_among_themselves(self, store: Store) -> None:
        own = [
            RunEvent(float(time), subject, "x", str(time)) for time, subject in enumerate(["a/m-1", "service:a/s", "a/m-1/w-0#1"])
        ]
        others = [RunEvent(9.0, subject, "y", "") for subject in ("a0/m-1", "b/a", "service:b/s", "queue:a", "a")]
        store.commit(ChangeSet(events=(*own, *others * 200)))
        assert store.events_in("a", 100) == own
        assert store.events_in("a", 2) == own[1:]
        assert store.events_in("a", 0) == []
        assert store.events_in("c", 100) == []
        store.commit(ChangeSet(events=(*own, *own)))
        assert store.events_in("a", 4) == [own[2], *own]

    def test_points_come_in_order_of_time(self, store: Store) -> None:
        job = make_job()
        points = [MetricPoint(float(time), time * 10, {"loss": 1.0 / (time + 1), "lr": 0.1}, "worker-0") for time in range(50)]
        odd = MetricPoint(7.5, None, {"accuracy": 0.5}, "worker-1", "tensorboard")
        store.commit(ChangeSet(jobs=(job,)))
        for begin in range(0, 50, 10):
            store.commit(ChangeSet(points=tuple((job.key, point) for point in points[begin : begin + 10])))
        store.commit(ChangeSet(points=((job.key, odd),)))
        assert store.points_of(job.key) == sorted([*points, odd], key=lambda point: point.time)
        assert store.points_of(job.key, "accuracy") == [odd]
        assert store.points_of(job.key, "lr") == points
        assert store.points_of(job.key, "nothing") == []

    def test_points_are_thinned_evenly_from_first_to_last(self, store: Store) -> None:
        job = make_job()
        points = [MetricPoint(float(step), step, {"loss": float(step)}, "worker-0") for step in range(1000)]
        store.commit(ChangeSet(jobs=(job,), points=tuple((job.key, point) for point in points)))
        thinned = store.points_of(job.key, limit=100)
        steps = [point.step or 0 for point in thinned]
        assert len(thinned) == 100
        assert (steps[0], steps[-1]) == (0, 999)
        assert {later - earlier for earlier, later in pairwise(steps)} <= {10, 11}
        assert all(points[step] == point for step, point in zip(steps, thinned, strict=True))
        assert store.points_of(job.key, limit=1000) == points
        assert len(store.points_of(job.key, limit=1)) == 1
        assert store.points_of(job.key, limit=0) == []

    def test_series_with_runs_have_names(self, store: Store) -> None:
        store.next_number("default", "empty")
        store.commit(ChangeSet(jobs=(make_job(1), make_job(2), make_job(1, series="alpha"), make_job(1, "far", "team"))))
        assert store.series_names("default") == ["alpha", "mnist"]
        store.commit(ChangeSet(deleted=(make_job(1, series="alpha").key,)))
        assert store.series_names("default") == ["mnist"]
        assert store.series_names("team") == ["far"]

    def test_nothing_to_remember_is_remembered(self, store: Store) -> None:
        store.commit(ChangeSet())
        assert store.list_jobs(JobFilter()).total == 0

    def test_what_has_stayed_its_time_is_found(self, store: Store) -> None:
        """Logs and records expire separately; those of unfinished runs, and those kept for ever, never expire."""
        spec = SPEC.model_copy(update={"keep": RetentionPolicy(logs="1m", record="1h")})
        ended = replace(make_job(1, phase=JobPhase.SUCCEEDED), spec=spec, finished=1000.0)
        store.commit(ChangeSet(jobs=(ended, replace(make_job(2), spec=spec))))
        assert store.expired(1059.0, 10) == ([], [])
        assert store.expired(1060.0, 10) == ([ended], [])
        store.commit(ChangeSet(jobs=(replace(ended, logs_gone=True),)))
        assert store.expired(4599.0, 10) == ([], [])
        assert [job.key for job in store.expired(4600.0, 10)[1]] == [ended.key]
        assert store.expired(4600.0, 0) == ([], [])
