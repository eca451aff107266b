"""The rendered page of a run."""

from __future__ import annotations

from dataclasses import replace
from textwrap import dedent

from fairway.state.job import JobState, ResumePoint, RunOutcome
from fairway.state.mlflow_record import TrackedRun
from fairway.state.phase import JobPhase, TaskPhase
from fairway.state.task import Task
from fairway.testing.builder.job_builder import a_job
from fairway.views.diagnosis.run_explanation import why_view
from fairway.views.job import job_view
from fairway.views.job_page import detail_text, main_metric, why_text
from fairway.views.metric import MetricPointView
from fairway.views.text.table import TextPage, display_width


def test_a_run_that_runs(running: JobState, running_tasks: list[Task], points: list[MetricPointView], now: float) -> None:
    view = job_view(running, running_tasks, now, folder="/state/jobs/default/mnist-7")
    assert detail_text(view, points, now) == dedent("""\
        mnist-7  Running for 5m
          2 workers: python train.py --epochs 3
          pytorch, queue research, priority 10, by ana

        Progress
          step 1,200 of 2,000  ████████████░░░░░░░░ 60%, 4.1 steps/s, about 3m13s left
          loss      0.3142   █▇▆▆▅▅▄▄▃▃▃▂▂▂▂▂▂▁▁▁▁▁▁▁   from 2.3
          accuracy   0.923   ▁▂▃▃▄▄▅▅▆▆▆▇▇▇▇▇▇███████   from 0

        Tasks
          TASK      PHASE    NODE  GPUS          TIME
          worker-0  Running  here  GPU-0a2b3c4d    5m
          worker-1  Running  here  GPU-1a2b3c4d    5m

        Checkpoint
          newest: step 1,100, saved 20s ago

        folder: /state/jobs/default/mnist-7
        outputs: model as mnist

        next: fairway logs -f mnist-7, fairway stop mnist-7
        """)


def test_a_terminal_gets_the_loss_curve(
    running: JobState, running_tasks: list[Task], points: list[MetricPointView], now: float
) -> None:
    text = detail_text(job_view(running, running_tasks, now), points, now, TextPage(60))
    assert text.split("\n\n")[2] == "\n".join(
        [
            "     2.3 ┤⠑⠦⣀",
            "         ┤⠀⠀⠀⠑⠢⣄",
            "         ┤⠀⠀⠀⠀⠀⠀⠉⠓⠤⣄⡀",
            "         ┤⠀⠀⠀⠀⠀⠀⠀⠀⠀⠀⠈⠉⠒⠦⠤⣀⡀",
            "         ┤⠀⠀⠀⠀⠀⠀⠀⠀⠀⠀⠀⠀⠀⠀⠀⠀⠈⠉⠑⠒⠒⠤⠤⣄⣀⣀⡀",
            "  0.1174 ┤⠀⠀⠀⠀⠀⠀⠀⠀⠀⠀⠀⠀⠀⠀⠀⠀⠀⠀⠀⠀⠀⠀⠀⠀⠀⠀⠈⠉⠉⠉⠒⠒⠒⠒⠒⠤⠤⠤⠤⠤⠤⠤⢄⣀⣀⣀⣀⣀",
            "          loss",
        ]
    )
    assert max(display_width(line) for line in text.split("\n")[6:16]) <= 60


def test_a_run_that_waits(pending: JobState, now: float) -> None:
    assert detail_text(job_view(pending, [], now, position=2), [], now) == dedent("""\
        big-1  Pending for 1m1s
          4 workers: python big.py

        Why it waits
          needs 4 GPUs, 2 are free
          place in the queue: 2
          what would help: wait for mnist-7 to end, or ask for 2

        next: fairway why big-1, fairway stop big-1
        """)


def test_a_run_that_failed(failed: JobState, failed_tasks: list[Task], now: float) -> None:
    assert detail_text(job_view(failed, failed_tasks, now), [], now) == dedent("""\
        mnist-7  Failed 30s ago, ran for 4m30s, 1 restart of at most 3
          2 workers: python train.py --epochs 3
          pytorch, queue research, priority 10, by ana

        Why it failed
          worker-1 exited with 1: ValueError: bad batch (Error)
          last lines of worker-1, attempt 1:
          │ Traceback (most recent call last):
          │   File "train.py", line 7
          │ 100%|###|
          │ ValueError: bad batch

        Progress
          step 1,200 of 2,000  ████████████░░░░░░░░ 60%
          loss      0.3142
          accuracy   0.923

        Tasks
          TASK      ATTEMPT  PHASE    NODE  GPUS           TIME  END
          worker-0        1  Stopped  here  GPU-0a2b3c4d  2m40s  SIGTERM
          worker-1        1  Failed   here  GPU-1a2b3c4d  2m40s  exit 1

        Checkpoint
          resumed from step 1,100, lost 1m30s of work
          newest: step 1,100, saved 20s ago

        outputs: model as mnist

        next: fairway logs mnist-7, fairway resume mnist-7
        """)


def test_wide_shows_the_attempts_before(failed: JobState, failed_tasks: list[Task], now: float) -> None:
    text = detail_text(job_view(failed, failed_tasks, now), [], now, TextPage(wide=True))
    assert dedent("""\
          TASK      ATTEMPT  PHASE    NODE  GPUS          CPU  MEMORY   TIME  END
          worker-0        0  Stopped  here  GPU-0a2b3c4d    1   2 GiB  1m40s  SIGTERM
          worker-1        0  Failed   here  GPU-1a2b3c4d    1   2 GiB  1m40s  exit 1
          worker-0        1  Stopped  here  GPU-0a2b3c4d    1   2 GiB  2m40s  SIGTERM
          worker-1        1  Failed   here  GPU-1a2b3c4d    1   2 GiB  2m40s  exit 1
        """) in dedent(text.partition("Tasks\n")[2].partition("\n\n")[0] + "\n")


def test_a_run_that_is_done(running: JobState, now: float) -> None:
    done = replace(
        running,
        phase=JobPhase.SUCCEEDED,
        started=now - 9 * 3600,
        finished=now - 5 * 3600,
        outcome=RunOutcome("Completed", "completed"),
    )
    text = detail_text(job_view(done, [], now), [], now)
    assert text.startswith("mnist-7  Succeeded 5h ago, ran for 4h\n")
    assert "Why" not in text
    assert text.endswith("next: fairway logs mnist-7, fairway delete mnist-7\n")


def test_a_stop_condition_is_told(running: JobState, now: float) -> None:
    done = replace(running, phase=JobPhase.SUCCEEDED, finished=now - 1, outcome=RunOutcome("StopCondition", "accuracy >= 0.9"))
    assert "Why it ended\n  accuracy >= 0.9 (StopCondition)\n" in detail_text(job_view(done, [], now), [], now)


def test_a_run_stopped_by_hand(running: JobState, now: float) -> None:
    stopped = replace(
        running, phase=JobPhase.STOPPED, finished=now - 50, outcome=RunOutcome("StoppedByUser", "stopped on request")
    )
    text = detail_text(job_view(stopped, [], now), [], now)
    assert "Why it stopped\n  stopped on request (StoppedByUser)\n" in text
    assert "fairway resume mnist-7" in text


def test_a_run_that_never_ran(now: float) -> None:
    stopped = replace(a_job(), phase=JobPhase.STOPPED, finished=now - 50)
    assert detail_text(job_view(stopped, [], now), [], now).startswith("mnist-1  Stopped 50s ago, never ran\n  true\n")


def test_a_run_that_started_again(running: JobState, running_tasks: list[Task], now: float) -> None:
    again = replace(
        running, restarts=1, outcome=RunOutcome("Error", "worker-1 exited with 1", "worker-1", 1), resume=ResumePoint(None, 45.2)
    )
    text = detail_text(job_view(again, running_tasks, now), [], now)
    assert "Why it started again\n  worker-1 exited with 1 (Error)\n" in text
    assert "from which step is not known, since no checkpoint is known; at most 45s of work lost\n" in text


def test_another_namespace_is_named(pending: JobState, now: float) -> None:
    far = replace(pending, key=replace(pending.key, namespace="team"))
    assert detail_text(job_view(far, [], now), [], now).startswith("team/big-1  Pending")


def test_silence_is_told(running: JobState, running_tasks: list[Task], now: float) -> None:
    silent = replace(running, progress=replace(running.progress, time=now - 600))
    assert "last report 10m ago" in detail_text(job_view(silent, running_tasks, now), [], now)


def test_warnings_come_early(running: JobState, running_tasks: list[Task], now: float) -> None:
    view = job_view(running, running_tasks, now, warnings=["2 GPUs are idle; ask for them with --gpus"])
    assert "\nwarning: 2 GPUs are idle; ask for them with --gpus\n" in detail_text(view, [], now)


def test_colour_only_when_asked(failed: JobState, failed_tasks: list[Task], now: float) -> None:
    view = job_view(failed, failed_tasks, now)
    assert "\x1b" not in detail_text(view, [], now)
    assert "\x1b[31mFailed\x1b[0m" in detail_text(view, [], now, TextPage(colour=True))


def test_the_loss_is_drawn_large() -> None:
    assert main_metric(["accuracy", "val_loss", "lr"]) == "val_loss"
    assert main_metric(["reward"]) == "reward"
    assert main_metric([]) == ""


def test_why_it_waits(pending: JobState, now: float) -> None:
    assert why_text(why_view(pending, [], now), now) == dedent("""\
        big-1 is Pending for 1m: needs 4 GPUs, 2 are free
          what would help: wait for mnist-7 to end, or ask for 2
        """)


def test_why_it_failed(failed: JobState, failed_tasks: list[Task], now: float) -> None:
    assert why_text(why_view(failed, failed_tasks, now), now) == dedent("""\
        mnist-7 is Failed: worker-1 exited with 1: ValueError: bad batch
          what would help: look at the log (fairway logs mnist-7), correct the program, then: fairway resume mnist-7
          │ Traceback (most recent call last):
          │   File "train.py", line 7
          │ 100%|###|
          │ ValueError: bad batch
        """)


def test_why_it_starts_again(running: JobState, running_tasks: list[Task], now: float) -> None:
    resting = replace(
        running, phase=JobPhase.RESTARTING, not_before=now + 8, restarts=2, outcome=RunOutcome("Error", "worker-1 exited with 1")
    )
    assert why_text(why_view(resting, running_tasks, now), now) == dedent("""\
        mnist-7 is Restarting: worker-1 exited with 1; starts again in 8s (2 of 3 restarts used)
          what would help: nothing to do; it continues by itself
        """)


def test_why_in_every_other_phase(running: JobState, running_tasks: list[Task], now: float) -> None:
    def why(phase: JobPhase, tasks: list[Task] = running_tasks, **more: object) -> str:
        return why_view(replace(running, phase=phase, **more), tasks, now).message  # type: ignore[arg-type]

    starting = [replace(running_tasks[0], phase=TaskPhase.STARTING), running_tasks[1]]
    assert why(JobPhase.RUNNING) == "nothing blocks it; 2 of 2 tasks running"
    assert why(JobPhase.STARTING, starting) == "its resources are assigned; worker-0 starts now"
    assert why(JobPhase.PENDING, []) == "it was just submitted and is not scheduled yet"
    assert why(JobPhase.RESTARTING) == "a task ended; the gang starts again"
    assert why(JobPhase.STOPPING) == "asked to stop; waiting for worker-0 and worker-1 to end"
    assert why(JobPhase.SUCCEEDED) == "succeeded"


def test_what_the_program_logged_is_shown() -> None:
    """Parameters and tags; neither those that a client adds by itself, nor a value that looks secret."""
    tracked = TrackedRun(
        "default",
        "mnist-1",
        params={"lr": "0.1", "learning_schedule": "cosine\x1b[31m", "api_key": "beef"},
        tags={"team": "nlp", "mlflow.source.name": "train.py"},
    )
    view = job_view(a_job(), [], 10.0, tracked=tracked)
    text = detail_text(view, [], 10.0)
    assert "Parameters\n  lr                 0.1\n  learning_schedule  cosine\n" in text
    assert "Tags\n  team  nlp\n" in text
    assert "beef" not in text
    assert "train.py" not in text.partition("Tags")[2]
    assert view.tags == {"team": "nlp", "mlflow.source.name": "train.py"}
    assert "Parameters" not in detail_text(job_view(a_job(), [], 10.0), [], 10.0)
