"""Rendered lists."""

from __future__ import annotations

from dataclasses import replace
from textwrap import dedent

from fairway.state.event import RunEvent
from fairway.state.job import JobState, RunOutcome, RunProgress
from fairway.state.metric import summarise
from fairway.state.node import ClusterNode, NodeDevice
from fairway.state.phase import JobPhase
from fairway.state.task import Task, TaskNeed
from fairway.views.event import event_list
from fairway.views.job import JobList, JobView, job_view
from fairway.views.list_table import events_text, jobs_text, metrics_text, nodes_text, secrets_text, top_text
from fairway.views.metric import MetricPointView, metric_list
from fairway.views.node import node_view
from fairway.views.secret import SecretView
from fairway.views.text.table import TextPage, display_width


def _listed(running: JobState, tasks: list[Task], pending: JobState, failed: JobState, now: float) -> list[JobView]:
    done = replace(running, phase=JobPhase.SUCCEEDED, finished=now - 100, outcome=RunOutcome("Completed"))
    names = {"mnist-7": (running, tasks), "big-1": (pending, []), "mnist-6": (failed, []), "mnist-5": (done, [])}
    return [
        job_view(replace(job, key=replace(job.key, name=name)), tasks, now, tasks_too=False, spec_too=False)
        for name, (job, tasks) in names.items()
    ]


def test_runs(running: JobState, running_tasks: list[Task], pending: JobState, failed: JobState, now: float) -> None:
    jobs = _listed(running, running_tasks, pending, failed, now)
    assert jobs_text(JobList(tuple(jobs), "", 4), now) == dedent("""\
        NAME     PHASE      READY  GPUS  AGE   TIME  RESTARTS  DETAIL
        mnist-7  Running      2/2     2   6m     5m            step 1,200 of 2,000, loss 0.3142, accuracy 0.923
        big-1    Pending        -     -  61s      -            needs 4 GPUs, 2 are free
        mnist-6  Failed         -     -   6m  4m30s       1/3  worker-1 exited with 1: ValueError: bad batch
        mnist-5  Succeeded      -     -   6m  3m20s            step 1,200, loss 0.3142, accuracy 0.923
        """)


def test_runs_on_a_small_screen(
    running: JobState, running_tasks: list[Task], pending: JobState, failed: JobState, now: float
) -> None:
    jobs = _listed(running, running_tasks, pending, failed, now)
    text = jobs_text(JobList(tuple(jobs), "4", 40), now, TextPage(80))
    assert max(display_width(line) for line in text.splitlines()) == 80
    assert text.endswith("... 36 more; see them with: fairway list --limit 40\n")


def test_runs_in_full(running: JobState, running_tasks: list[Task], now: float) -> None:
    short = replace(running, progress=RunProgress(7))
    assert jobs_text(JobList((job_view(short, running_tasks, now),)), now, TextPage(wide=True)) == dedent("""\
        NAME     PHASE    READY  GPUS  AGE  TIME  QUEUE     PRIORITY  USER  NODES  COMMAND                     DETAIL
        mnist-7  Running    2/2     2   6m    5m  research        10  ana   here   python train.py --epochs 3  step 7 of 2,000
        """)


def test_namespaces_are_shown_when_there_are_several(pending: JobState, now: float) -> None:
    far = replace(pending, key=replace(pending.key, namespace="team"))
    text = jobs_text(JobList((job_view(pending, [], now), job_view(far, [], now))), now)
    assert [line.split()[0] for line in text.splitlines()] == ["NAMESPACE", "default", "team"]


def test_no_runs_says_what_to_do() -> None:
    assert jobs_text(JobList(()), 0.0) == "No runs yet. Start one with: fairway run -- python train.py\n"
    assert jobs_text(JobList(()), 0.0, filtered=True) == "No runs match. See all of them with: fairway list\n"


def test_the_place_in_line_is_told(pending: JobState, now: float) -> None:
    assert "2 are free (number 3 in line)" in jobs_text(JobList((job_view(pending, [], now, position=3),)), now)


def _node() -> ClusterNode:
    devices = tuple(NodeDevice(f"GPU-{index}a2b3c4d-1111", index, "H100", 80 << 30) for index in range(4))
    taken = (devices[0], devices[1], replace(devices[2], busy_with="pid 4711 (python)"), replace(devices[3], healthy=False))
    return ClusterNode("box", 8.0, 32 << 30, taken, {"rdma/hca": 2}, {"rack": "a"})


def test_nodes(running_tasks: list[Task]) -> None:
    view = node_view(_node(), [replace(running_tasks[0], node="box")])
    assert nodes_text([view]) == dedent("""\
        NODE  CPU FREE       MEMORY FREE  GPUS FREE  GPU TYPE  OTHER FREE       TASKS
        box     7 of 8  30 GiB of 32 GiB     1 of 4  H100      rdma/hca 2 of 2  mnist-7/worker-0
        """)
    assert nodes_text([view], TextPage(wide=True)).partition("\n\n")[2] == dedent("""\
        NODE  GPU  TYPE  MEMORY  FREE  STATE  USED BY            UUID
        box     0  H100  80 GiB    0%  used   mnist-7/worker-0   GPU-0a2b3c4d-1111
        box     1  H100  80 GiB  100%  free                      GPU-1a2b3c4d-1111
        box     2  H100  80 GiB    0%  busy   pid 4711 (python)  GPU-2a2b3c4d-1111
        box     3  H100  80 GiB    0%  sick                      GPU-3a2b3c4d-1111
        """)
    assert nodes_text([]) == "No nodes. The daemon found no machine to run on; `fairway daemon status` shows where its log is\n"


def test_shares_of_a_device_add_up(running_tasks: list[Task]) -> None:
    halves = [
        replace(task, node="box", devices=("GPU-1a2b3c4d-1111",), need=TaskNeed(gpus=1, gpu_milli=250)) for task in running_tasks
    ]
    device = node_view(_node(), halves).devices[1]
    assert (device.used, device.free, device.used_by) == (0.5, 0.5, ("mnist-7/worker-0", "mnist-7/worker-1"))


def test_what_is_over_holds_nothing(failed_tasks: list[Task]) -> None:
    view = node_view(_node(), [replace(task, node="box") for task in failed_tasks])
    assert (view.cpu_free, view.memory_free, view.tasks) == (8.0, 32 << 30, ())


def test_top(running: JobState, running_tasks: list[Task], pending: JobState, now: float) -> None:
    views = [job_view(running, running_tasks, now), job_view(pending, [], now)]
    assert top_text(views) == dedent("""\
        NAME     PHASE    READY  CPU  MEMORY  GPUS   STEP  STEPS/S   LEFT  METRICS
        mnist-7  Running    2/2    2   4 GiB     2  1,200      4.1  3m13s  loss 0.3142, accuracy 0.923
        big-1    Pending    0/4    -       -     -      -        -      -
        """)
    assert top_text([]).startswith("Nothing runs.")


def test_events(now: float) -> None:
    events = [
        RunEvent(now - 300, "default/m-1", "Submitted", "by ana"),
        RunEvent(now - 5, "default/m-1/worker-0#0", "Placed", "on box"),
    ]
    view = event_list(events)
    assert events_text(view.events, now, run="default/m-1") == dedent("""\
        AGE  REASON     SUBJECT     MESSAGE
         5m  Submitted              by ana
         5s  Placed     worker-0#0  on box
        """)
    assert "default/m-1/worker-0#0" in events_text(view.events, now)
    assert events_text([], now) == "No events.\n"


def test_metrics() -> None:
    view = metric_list(
        [MetricPointView(1.0, 1000, {"loss": 0.5}, "worker-0"), MetricPointView(2.0, None, {"accuracy": 0.25}, "worker-0")]
    )
    assert metrics_text(view) == dedent("""\
         STEP  loss  accuracy
        1,000   0.5
            -            0.25
         last   0.5      0.25
         best   0.5      0.25
        """)
    assert metrics_text(metric_list([])).startswith("No metrics yet.")


def test_secrets() -> None:
    assert secrets_text([SecretView("HF_TOKEN")]) == "NAME\nHF_TOKEN\n"
    assert secrets_text([]).startswith("No secrets.")


def test_metrics_end_with_the_last_and_the_best_values() -> None:
    values = [(1, 0.9), (2, 0.3), (3, 0.5), (0, float("nan"))]
    points = [MetricPointView(float(time), step, {"acc": y, "gap": y}) for time, (step, y) in enumerate(values)]
    view = metric_list(points, wanted={})
    assert metrics_text(view) == dedent("""\
        STEP  acc  gap
           1  0.9  0.9
           2  0.3  0.3
           3  0.5  0.5
           0  nan  nan
        last  0.5  0.5
        best  0.9
         min       0.3
         max       0.9
        """)
    summaries = summarise({}, 0, [(9.0, 9, {"acc": 0.95, "other": 1.0})])
    found = metric_list(points, "acc", summaries).summary
    assert list(found) == ["acc"], "those of all points count, also where fewer are shown"
    assert (found["acc"].last, found["acc"].best, found["acc"].best_step) == (0.95, 0.95, 9)
    assert metric_list(points, wanted={"gap": "min"}).summary["gap"].best == 0.3
