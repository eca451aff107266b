"""Advice: each cause has its own text, and a command that fits the run."""

from __future__ import annotations

import pytest

from fairway.spec.job import JobSpec
from fairway.state.job import JobKey, JobState, RunOutcome, RunProgress, SubmissionOrigin
from fairway.state.phase import JobPhase, TaskPhase
from fairway.state.task import Task, TaskExit, TaskKey, TaskNeed
from fairway.units import quantity
from fairway.views.diagnosis.failure_advice import advice, sensible

KEY = TaskKey("default", "mnist-7", "worker", 0, 0)
SNAPSHOT = "fairway submit --like mnist-7"
IN_PLACE = "fairway resume mnist-7"


def told(reason: str, error: str = "", message: str = "", *, in_place: bool = False, memory: int = 0, **more: object) -> str:
    """Return the advice for a run that failed like this."""
    role = {"command": ["python", "train.py", "--lr", "1"]}
    spec = JobSpec.model_validate({"roles": {"worker": role}, "code": {"path": ".", "in_place": in_place}, **more})
    origin = SubmissionOrigin(folder="/home/ann/mnist", interpreter="/venv/bin/python")
    outcome = RunOutcome(reason, message or f"worker-0 exited with 1: {error}", "worker-0", 1)
    job = JobState(JobKey("default", "mnist-7"), "mnist", 7, spec, origin, phase=JobPhase.FAILED, outcome=outcome)
    return advice(job, [Task(KEY, TaskPhase.FAILED, TaskNeed(memory=memory), exit=TaskExit(1, error=error))])


def test_corrected_code_needs_a_new_snapshot_and_a_folder_does_not() -> None:
    assert told("Error", "ValueError: bad label").endswith(SNAPSHOT)
    assert told("Error", "ValueError: bad label", in_place=True).endswith(IN_PLACE)


def test_a_missing_module_names_the_interpreter_and_both_ways_to_change_it() -> None:
    words = told("MissingModule", "ModuleNotFoundError: No module named 'einops.layers'")
    for part in ("/venv/bin/python -m pip install einops)", "--python PATH", "environment.requirements", f"then: {SNAPSHOT}"):
        assert part in words
    listed = told("MissingModule", "ModuleNotFoundError: No module named 'einops'", environment={"requirements": "needs.txt"})
    assert "einops to needs.txt" in listed


def test_an_exceeded_limit_names_the_field_with_a_value_that_is_accepted_and_enough() -> None:
    words = told("OutOfMemory", message="worker-0 held 1.6 GiB, more than its limit of 1.5 GiB; raise it")
    assert "roles.worker.limits.memory" in words
    assert words.endswith(f"{SNAPSHOT} --memory-limit 3Gi")
    ranked = told("OutOfMemory", message="worker-0 held 1.6 GiB, most of it rank 1, more than its limit of 1.5 GiB; raise it")
    assert ranked == words
    role = {"command": ["x"], "limits": {"memory": "3Gi"}}
    assert quantity.byte_count(JobSpec.model_validate({"roles": {"worker": role}}).roles["worker"].limits.memory) > 1.6 * (
        1 << 30
    )


def test_memory_without_a_limit_asks_for_more_than_before() -> None:
    assert f"{SNAPSHOT} --memory 3Gi" in told("OutOfMemory", memory=2 << 30)
    assert f"{SNAPSHOT} --memory SIZE" in told("OutOfMemory")


@pytest.mark.parametrize(
    ("error", "then"),
    [
        ("ValueError: world size 1 does not match tensor parallel size 4", "--workers 4"),
        ("ValueError: world size 2 does not match pipeline size 3", ""),
        ("ValueError: world size mismatch", ""),
    ],
)
def test_another_number_of_ranks_is_suggested_where_the_error_names_it(error: str, then: str) -> None:
    assert told("Error", error).endswith(f"then: {SNAPSHOT} {then}".rstrip())


@pytest.mark.parametrize(
    ("count", "text"), [(1, "1Mi"), (100 << 20, "128Mi"), (700 << 20, "768Mi"), (769 << 20, "1Gi"), (5 << 30, "6Gi")]
)
def test_a_sensible_quantity_is_the_next_round_one(count: int, text: str) -> None:
    assert sensible(count) == text
    assert quantity.byte_count(text) >= count


def test_a_timeout_says_how_to_change_it() -> None:
    words = told("Timeout", message="ran longer than its timeout of 1h", timeout="1h")
    assert "`timeout:`" in words
    assert words.endswith(f"{SNAPSHOT} --timeout 2h")


def test_a_timeout_with_a_checkpoint_may_go_on() -> None:
    spec = JobSpec.model_validate({"roles": {"worker": {"command": ["x"]}}, "timeout": "1h"})
    job = JobState(
        JobKey("default", "mnist-7"), "mnist", 7, spec, phase=JobPhase.FAILED, outcome=RunOutcome("Timeout", "ran longer")
    )
    assert "fairway resume mnist-7 goes on from step 4,200" in advice(
        JobState(job.key, "mnist", 7, spec, phase=job.phase, outcome=job.outcome, progress=RunProgress(checkpoint_step=4200)), []
    )


@pytest.mark.parametrize(
    ("reason", "error", "parts"),
    [
        ("Error", "ValueError: world size 4 does not match the 2 ranks", ("--workers", "--nproc-per-node", "replicas")),
        ("Error", "torch.distributed.DistStoreError: Timed out waiting for clients. 1/4 clients joined.", ("--nnodes",)),
        ("Error", "ValueError: rank 3 is out of range", ("--processes",)),
        ("Error", "OSError: [Errno 98] Address already in use", ("ss -ltnp", "$MASTER_PORT", SNAPSHOT)),
        ("Error", "RuntimeError: The server socket has failed to bind to [::]:29500 (errno: 98)", ("ss -ltnp",)),
        ("Error", "OSError: [Errno 28] No space left on device: 'x'", ("df -h", "fairway delete", IN_PLACE)),
        ("GpuOutOfMemory", "torch.OutOfMemoryError: CUDA out of memory.", ("smaller batch", SNAPSHOT)),
        ("Error", "ValueError: loss is NaN at step 3", ("learning rate", SNAPSHOT)),
        (
            "CannotRun",
            "train.py: error: unrecognized arguments: --bad",
            ("python train.py --help", f"{SNAPSHOT} -- python train.py --lr 1"),
        ),
        ("Signal", "killed by SIGKILL", ("dmesg", IN_PLACE)),
        ("Signal", "killed by SIGSEGV", ("the stack", "fairway logs", f"then: {SNAPSHOT}")),
        ("Error", "FileNotFoundError: [Errno 2] No such file or directory: 'data/x.csv'", ("data/x.csv", "--data", "--in-place")),
        ("PeerFailed", "RuntimeError: Connection closed by peer", (IN_PLACE,)),
        ("Lost", "", (IN_PLACE,)),
        ("Requeue", "", ("75", "checkpoints")),
        ("SameError", "ValueError: bad label", ("fairway logs mnist-7", SNAPSHOT)),
    ],
)
def test_every_cause_has_its_own_words(reason: str, error: str, parts: tuple[str, ...]) -> None:
    words = told(reason, error)
    for part in parts:
        assert part in words, words


@pytest.mark.parametrize(
    ("given", "corrected"), [(["--learning-rat", "0.1"], "--learning-rate 0.1"), (["--learning-rat=0.1"], "--learning-rate=0.1")]
)
def test_a_misspelt_option_is_corrected_in_the_command(given: list[str], corrected: str) -> None:
    error = "train.py: error: unrecognized arguments: " + " ".join(given)
    spec = JobSpec.model_validate({"roles": {"worker": {"command": ["python", "train.py", *given]}}, "code": {"path": "."}})
    outcome = RunOutcome("CannotRun", error, "worker-0", 2)
    job = JobState(JobKey("default", "mnist-7"), "mnist", 7, spec, SubmissionOrigin(), phase=JobPhase.FAILED, outcome=outcome)
    tail = f"usage: train.py [-h] [--learning-rate LEARNING_RATE]\n                [--epochs EPOCHS]\n{error}\n"
    words = advice(job, [Task(KEY, TaskPhase.FAILED, TaskNeed(), exit=TaskExit(2, error=error, tail=tail))])
    assert words.endswith(f": fairway submit --like mnist-7 -- python train.py {corrected}"), words


def test_a_file_that_a_run_in_place_lacks_is_looked_for_in_its_folder() -> None:
    words = told("Error", "FileNotFoundError: [Errno 2] No such file or directory: 'data/x.csv'", in_place=True)
    assert "data/x.csv does not exist, relative to /home/ann/mnist" in words
    assert words.endswith(IN_PLACE)


def test_a_script_that_is_not_there_is_named_as_in_the_command() -> None:
    error = "/usr/bin/python: can't open file '/home/ann/mnist/train.py': [Errno 2] No such file or directory"
    words = told("Error", error, in_place=True)
    assert words == "the command names train.py, and /home/ann/mnist has no such file: correct it and run the command again"


def test_a_stopped_run_goes_on_and_a_good_one_needs_nothing() -> None:
    spec = JobSpec.model_validate({"roles": {"worker": {"command": ["x"]}}})
    job = JobState(JobKey("default", "mnist-7"), "mnist", 7, spec, phase=JobPhase.STOPPED)
    assert advice(job, []) == IN_PLACE
    assert advice(JobState(job.key, "mnist", 7, spec, phase=JobPhase.SUCCEEDED), []) == ""
