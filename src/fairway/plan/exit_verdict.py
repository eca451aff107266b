"""Classify why a task ended and what follows: one table for every engine.

| observation                                     | reason         | consequence                                         |
|-------------------------------------------------|----------------|-----------------------------------------------------|
| something outside ended it (node lost, refused) | Disrupted      | started again, not counted                          |
| a person interrupted it (Ctrl-C)                | Interrupted    | the run is stopped                                  |
| exit 75                                         | Requeue        | not counted; final after 10 times without progress  |
| killed for memory (by Fairway or the kernel)    | OutOfMemory    | counted, with more memory; else as GpuOutOfMemory   |
| "CUDA out of memory" in the error               | GpuOutOfMemory | counted; final the second time without progress     |
| a module cannot be imported                     | MissingModule  | counted; final the second time                      |
| the program cannot be read (SyntaxError)        | BadProgram     | counted; final the second time                      |
| exit 2, 126, 127, or could not be started       | CannotRun      | final                                               |
| a peer broke the connection                     | PeerFailed     | counted, but another task is the cause              |
| a signal ended it, or a rank under a launcher   | Signal         | counted                                             |
| its end is not known (supervisor killed)        | Lost           | counted                                             |
| any other exit                                  | Error          | counted; the same without progress: SameError, final |

Progress is a newer checkpoint or a higher step than in any earlier attempt. Where neither is known, it is an attempt that ran
twice as long as the previous one. Printed output never counts as progress.
"""

from __future__ import annotations

import re
import signal as signals
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum

from fairway.runtime import task_contract
from fairway.runtime.failure.peer import PEER
from fairway.state.job import AttemptHistory, JobState
from fairway.state.phase import TaskPhase
from fairway.state.task import Task, TaskExit

INTERRUPTED = "Interrupted"
MOST_REQUEUES = 10
"""Maximum consecutive restart requests (exit 75) without progress."""
LONG_ENOUGH = 300.0
"""Run time in seconds that counts as progress for a restart request where neither steps nor checkpoints are known."""
_LONGER = 2.0
_NOISE = 1.0
"""Seconds by which the durations of two equal attempts may differ."""
_NEVER_STARTED = frozenset({2, 126, 127})
_GPU_MEMORY = re.compile(
    r"CUDA out of memory|RESOURCE_EXHAUSTED|CUDA_ERROR_OUT_OF_MEMORY|HIP out of memory|cudaErrorMemoryAllocation"
    r"|OutOfMemoryError: .*(CUDA|GPU)",
    re.I,
)
_HOST_MEMORY = re.compile(r"^(MemoryError|std::bad_alloc|numpy\._core\._exceptions\._ArrayMemoryError)\b|Cannot allocate memory")
_MODULE = re.compile(r"^(ModuleNotFoundError|ImportError)\b|: No module named ")
_UNREADABLE = re.compile(r"^(SyntaxError|IndentationError|TabError)\b")
_ARGUMENTS = re.compile(r"^\S+: error: ")
_DECORATION = frozenset("=-*_~ ─━\t")


class RepeatRule(Enum):
    """When a second failure with the same signature is final."""

    NEVER = "never"
    STANDING = "without progress"
    ALWAYS = "always"


@dataclass(frozen=True, slots=True)
class ExitRule:
    """The consequences of a reason."""

    counted: bool = True
    """Whether the failure counts against the restart budget."""
    final: bool = False
    """Whether the first failure is already final."""
    again: RepeatRule = RepeatRule.NEVER


RULES = {
    "Disrupted": ExitRule(counted=False),
    INTERRUPTED: ExitRule(final=True),
    "Requeue": ExitRule(counted=False),
    "OutOfMemory": ExitRule(again=RepeatRule.STANDING),
    "GpuOutOfMemory": ExitRule(again=RepeatRule.STANDING),
    "MissingModule": ExitRule(again=RepeatRule.ALWAYS),
    "BadProgram": ExitRule(again=RepeatRule.ALWAYS),
    "CannotRun": ExitRule(final=True),
    "PeerFailed": ExitRule(),
    "Signal": ExitRule(),
    "Lost": ExitRule(),
    "Error": ExitRule(again=RepeatRule.STANDING),
}


@dataclass(frozen=True, slots=True)
class ExitVerdict:
    """The consequence of a failed task for its run."""

    reason: str
    message: str
    final: bool = False
    """Whether the run must not be restarted."""
    counted: bool = True
    """Whether the failure counts against the restart budget."""
    signature: str = ""
    """Identifies the error, to recognize a repeated failure."""
    trail: AttemptHistory = AttemptHistory()
    """Progress of all attempts, including this one."""


def cause(failed: Sequence[Task]) -> Task:
    """Return the task that caused the failure: the first that ended.

    Tasks that only lost their peers are considered only when there is no other task.
    """
    return min(primary(failed) or failed, key=lambda task: (task.finished or 0.0, task.key))


def primary(failed: Sequence[Task]) -> list[Task]:
    """Return the tasks whose end is not explained by the loss of a peer."""
    return [task for task in failed if not _lost_its_peers(task)]


def judge(task: Task, job: JobState) -> ExitVerdict:
    """Return the verdict for this task, given the progress of earlier attempts."""
    reason, message, signature = _seen(task)
    rule = RULES[reason]
    progressed = _progressed(task, job)
    trail = _after(task, job, requeue=reason == "Requeue", moved=progressed)
    if reason == "Requeue" and trail.requeues > MOST_REQUEUES:
        message = f"{message}, {MOST_REQUEUES} times in a row without progress, so it is not started again"
        return ExitVerdict(reason, message, final=True, counted=False, trail=trail)
    is_final = rule.again is RepeatRule.ALWAYS or (rule.again is RepeatRule.STANDING and not progressed)
    if signature and signature == job.last_failure and is_final:
        message = f"{message}; the same error as before, so it is not started again"
        return ExitVerdict("SameError" if reason == "Error" else reason, message, final=True, signature=signature, trail=trail)
    return ExitVerdict(reason, message, rule.final, rule.counted, signature, trail)


def came_to(job: JobState) -> AttemptHistory:
    """Return the trail after an attempt that did not fail but was evicted."""
    before, now = job.trail, job.progress
    return replace(before, step=_highest(before.step, now.step), checkpoint=_highest(before.checkpoint, now.checkpoint_step))


def _seen(task: Task) -> tuple[str, str, str]:
    """Return reason, message and signature of the task's end."""
    exit_ = task.exit
    name = task.key.task
    if exit_ is not None and exit_.disrupted:
        return "Disrupted", f"{name}: {exit_.disrupted}", ""
    if task.phase is TaskPhase.LOST or exit_ is None:
        return "Lost", task.message or f"{name} disappeared: its exit status is unknown", ""
    if exit_.interrupted:
        return INTERRUPTED, f"{name} was interrupted (Ctrl-C)", ""
    if task_contract.EXIT_REQUEUE in (exit_.code, exit_.error_code):
        return "Requeue", f"{name} saved its state and asked to be started again (exit 75)", ""
    if exit_.out_of_memory or _HOST_MEMORY.search(exit_.error):
        return "OutOfMemory", _memory(task), "memory"
    if _never_ran(exit_):
        return "CannotRun", _words(task), ""
    if _GPU_MEMORY.search(exit_.error or exit_.tail):
        return "GpuOutOfMemory", _gpu_memory(task, exit_), "gpu-memory"
    number = exit_.signal if exit_.signal is not None else exit_.error_signal
    if number is not None and not _lost_its_peers(task):
        why = f": {exit_.error}" if exit_.error and not exit_.error.startswith("killed by ") else ""
        return "Signal", f"{_who(task)} was ended by {_signal_name(number)}{why}", ""
    if _lost_its_peers(task):
        return "PeerFailed", _words(task), ""
    return _raised(task, exit_)


def _never_ran(exit_: TaskExit) -> bool:
    return exit_.code in _NEVER_STARTED or (exit_.error_code in _NEVER_STARTED and bool(_ARGUMENTS.search(exit_.error)))


def _raised(task: Task, exit_: TaskExit) -> tuple[str, str, str]:
    for pattern, reason in ((_MODULE, "MissingModule"), (_UNREADABLE, "BadProgram")):
        if pattern.search(exit_.error):
            return reason, _words(task), exit_.traceback_digest or exit_.error
    return "Error", _words(task), exit_.traceback_digest


def _progressed(task: Task, job: JobState) -> bool:
    """Return whether this attempt progressed further than all earlier ones."""
    step, checkpoint, seconds = _reached(task, job), job.progress.checkpoint_step, _seconds(task)
    before = job.trail
    if step is not None or checkpoint is not None or before.step is not None or before.checkpoint is not None:
        return _higher(step, before.step) or _higher(checkpoint, before.checkpoint)
    if before.seconds is None or seconds is None:
        return False
    return seconds >= _LONGER * before.seconds and seconds - before.seconds >= _NOISE


def _after(task: Task, job: JobState, *, requeue: bool, moved: bool) -> AttemptHistory:
    before, seconds = job.trail, _seconds(task)
    no_progress_data = _reached(task, job) is None and job.progress.checkpoint_step is None
    first = before == AttemptHistory()
    worth = moved or (no_progress_data and seconds is not None and seconds >= LONG_ENOUGH)
    return AttemptHistory(
        step=_highest(before.step, _reached(task, job)),
        checkpoint=_highest(before.checkpoint, job.progress.checkpoint_step),
        seconds=seconds if seconds is not None else before.seconds,
        requeues=0 if not requeue else 1 if worth or first else before.requeues + 1,
    )


def _reached(task: Task, job: JobState) -> int | None:
    return _highest(job.progress.step, task.exit.reached_step if task.exit is not None else None)


def _seconds(task: Task) -> float | None:
    return None if task.started is None or task.finished is None else max(0.0, task.finished - task.started)


def _higher(now: int | None, before: int | None) -> bool:
    return now is not None and (before is None or now > before)


def _highest(*numbers: int | None) -> int | None:
    return max((number for number in numbers if number is not None), default=None)


def _memory(task: Task) -> str:
    """Return the out-of-memory message, with the memory used where known, and the field to raise."""
    role = task.key.role
    text = task.message or f"{_who(task)} was killed for using too much memory"
    return f"{text}; raise roles.{role}.limits.memory" if task.message else f"{text}; raise roles.{role}.resources.memory"


def _gpu_memory(task: Task, exit_: TaskExit) -> str:
    """Return the GPU-memory message; the device's error text, where known, states the requested and free amounts."""
    detail = f": {exit_.error}" if _GPU_MEMORY.search(exit_.error) else "; use a smaller batch"
    return f"{_who(task)} ran out of GPU memory{detail}"


def _who(task: Task) -> str:
    """Return `worker-0`, prefixed with the rank where the task has several processes."""
    exit_ = task.exit
    if exit_ is None or exit_.error_rank is None:
        return task.key.task
    several = task.processes > 1 or task.slots > 1 or exit_.error_code is not None or exit_.error_signal is not None
    return f"rank {exit_.error_rank} ({task.key.task})" if several else task.key.task


def _words(task: Task) -> str:
    exit_ = task.exit
    if task.message:
        return task.message
    if exit_ is None:
        return f"{task.key.task} ended"
    code = exit_.error_code if exit_.error_code is not None else exit_.code
    detail = exit_.error or _last_line(exit_)
    return f"{_who(task)} exited with {code}" + (f": {detail[:300]}" if detail and detail != f"exit code {code}" else "")


def _last_line(exit_: TaskExit) -> str:
    lines = (line.strip() for line in reversed(exit_.tail.splitlines()))
    return next((line for line in lines if not set(line) <= _DECORATION), "")[:200]


def _lost_its_peers(task: Task) -> bool:
    # The watchdog of a collective library ends the process with SIGABRT.
    exit_ = task.exit
    if exit_ is None or exit_.error_signal is not None or exit_.signal not in (None, signals.SIGABRT):
        return False
    return bool(PEER.search(exit_.error or exit_.tail))


def _signal_name(number: int) -> str:
    try:
        return signals.Signals(number).name
    except ValueError:
        return f"signal {number}"
