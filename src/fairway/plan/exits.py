"""Why a task ended, and what follows: one table for every engine.

| seen                                            | reason         | what follows                                        |
|-------------------------------------------------|----------------|-----------------------------------------------------|
| something outside ended it (node lost, refused) | Disrupted      | started again, not counted                          |
| a person interrupted it (Ctrl-C)                | Interrupted    | the run is stopped                                  |
| exit 75                                         | Requeue        | as above; final after 10 times without progress     |
| killed for memory (by us or by the kernel)      | OutOfMemory    | counted, with more memory; as below                 |
| "CUDA out of memory" in the error               | GpuOutOfMemory | counted; final the second time without progress     |
| a module cannot be imported                     | MissingModule  | counted; final the second time                      |
| the program cannot be read (SyntaxError)        | BadProgram     | counted; final the second time                      |
| exit 2, 126, 127, or could not be started       | CannotRun      | final                                               |
| a peer broke the connection                     | PeerFailed     | counted, but another task is the cause              |
| a signal ended it, or a rank under a launcher   | Signal         | counted                                             |
| its end is not known (supervisor killed)        | Lost           | counted                                             |
| any other exit                                  | Error          | counted; the same without progress: SameError, final |

Progress is a newer checkpoint or a higher step than in any attempt before; where neither is known, an attempt that ran twice as
long as the one before. What it printed never counts.
"""

from __future__ import annotations

import re
import signal as signals
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum

from fairway.runtime import contract
from fairway.runtime.failure.peer import PEER
from fairway.state.job import Job, Trail
from fairway.state.phase import TaskPhase
from fairway.state.task import Exit, Task

INTERRUPTED = "Interrupted"
MOST_REQUEUES = 10
"""Requests for a new start in a row, without progress, that are granted."""
LONG_ENOUGH = 300.0
"""Seconds after which a request for a new start counts as progress where neither steps nor checkpoints are known."""
_LONGER = 2.0
_NOISE = 1.0
"""Seconds by which the length of two equal attempts may differ."""
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


class Again(Enum):
    """When a second failure of the same kind is final."""

    NEVER = "never"
    STANDING = "without progress"
    ALWAYS = "always"


@dataclass(frozen=True, slots=True)
class Rule:
    """What follows from a reason."""

    counted: bool = True
    """Whether it uses up the restart budget."""
    final: bool = False
    """Whether starting again is pointless at once."""
    again: Again = Again.NEVER


RULES = {
    "Disrupted": Rule(counted=False),
    INTERRUPTED: Rule(final=True),
    "Requeue": Rule(counted=False),
    "OutOfMemory": Rule(again=Again.STANDING),
    "GpuOutOfMemory": Rule(again=Again.STANDING),
    "MissingModule": Rule(again=Again.ALWAYS),
    "BadProgram": Rule(again=Again.ALWAYS),
    "CannotRun": Rule(final=True),
    "PeerFailed": Rule(),
    "Signal": Rule(),
    "Lost": Rule(),
    "Error": Rule(again=Again.STANDING),
}


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a failed task means for its run."""

    reason: str
    message: str
    final: bool = False
    """Whether starting again is pointless."""
    counted: bool = True
    """Whether it uses up the restart budget."""
    signature: str = ""
    """Names the mistake."""
    trail: Trail = Trail()
    """What the attempts came to, this one included."""


def cause(failed: Sequence[Task]) -> Task:
    """The task to blame: the first that ended; survivors of a broken collective only when there is no other."""
    return min(primary(failed) or failed, key=lambda task: (task.finished or 0.0, task.key))


def primary(failed: Sequence[Task]) -> list[Task]:
    """Those whose end is not explained by the end of another."""
    return [task for task in failed if not _lost_its_peers(task)]


def judge(task: Task, job: Job) -> Verdict:
    """What this end means, after what the attempts before came to."""
    reason, message, signature = _seen(task)
    rule = RULES[reason]
    moved = _progressed(task, job)
    trail = _after(task, job, requeue=reason == "Requeue", moved=moved)
    if reason == "Requeue" and trail.requeues > MOST_REQUEUES:
        message = f"{message}, {MOST_REQUEUES} times in a row without progress, so it is not started again"
        return Verdict(reason, message, final=True, counted=False, trail=trail)
    stands = rule.again is Again.ALWAYS or (rule.again is Again.STANDING and not moved)
    if signature and signature == job.last_failure and stands:
        message = f"{message}; the same error as the time before, so it is not tried again"
        return Verdict("SameError" if reason == "Error" else reason, message, final=True, signature=signature, trail=trail)
    return Verdict(reason, message, rule.final, rule.counted, signature, trail)


def came_to(job: Job) -> Trail:
    """The trail after an attempt that did not fail and made room."""
    before, now = job.trail, job.progress
    return replace(before, step=_highest(before.step, now.step), checkpoint=_highest(before.checkpoint, now.checkpoint_step))


def _seen(task: Task) -> tuple[str, str, str]:
    """Reason, message and signature of an end."""
    exit_ = task.exit
    name = task.key.task
    if exit_ is not None and exit_.disrupted:
        return "Disrupted", f"{name}: {exit_.disrupted}", ""
    if task.phase is TaskPhase.LOST or exit_ is None:
        return "Lost", task.message or f"{name} vanished: its end is not known", ""
    if exit_.interrupted:
        return INTERRUPTED, f"{name} was interrupted (Ctrl-C)", ""
    if contract.EXIT_REQUEUE in (exit_.code, exit_.error_code):
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


def _never_ran(exit_: Exit) -> bool:
    return exit_.code in _NEVER_STARTED or (exit_.error_code in _NEVER_STARTED and bool(_ARGUMENTS.search(exit_.error)))


def _raised(task: Task, exit_: Exit) -> tuple[str, str, str]:
    for pattern, reason in ((_MODULE, "MissingModule"), (_UNREADABLE, "BadProgram")):
        if pattern.search(exit_.error):
            return reason, _words(task), exit_.traceback_digest or exit_.error
    return "Error", _words(task), exit_.traceback_digest


def _progressed(task: Task, job: Job) -> bool:
    """Whether this attempt came further than all before."""
    step, checkpoint, seconds = _reached(task, job), job.progress.checkpoint_step, _seconds(task)
    before = job.trail
    if step is not None or checkpoint is not None or before.step is not None or before.checkpoint is not None:
        return _higher(step, before.step) or _higher(checkpoint, before.checkpoint)
    if before.seconds is None or seconds is None:
        return False
    return seconds >= _LONGER * before.seconds and seconds - before.seconds >= _NOISE


def _after(task: Task, job: Job, *, requeue: bool, moved: bool) -> Trail:
    before, seconds = job.trail, _seconds(task)
    nothing_known = _reached(task, job) is None and job.progress.checkpoint_step is None
    first = before == Trail()
    worth = moved or (nothing_known and seconds is not None and seconds >= LONG_ENOUGH)
    return Trail(
        step=_highest(before.step, _reached(task, job)),
        checkpoint=_highest(before.checkpoint, job.progress.checkpoint_step),
        seconds=seconds if seconds is not None else before.seconds,
        requeues=0 if not requeue else 1 if worth or first else before.requeues + 1,
    )


def _reached(task: Task, job: Job) -> int | None:
    return _highest(job.progress.step, task.exit.reached_step if task.exit is not None else None)


def _seconds(task: Task) -> float | None:
    return None if task.started is None or task.finished is None else max(0.0, task.finished - task.started)


def _higher(now: int | None, before: int | None) -> bool:
    return now is not None and (before is None or now > before)


def _highest(*numbers: int | None) -> int | None:
    return max((number for number in numbers if number is not None), default=None)


def _memory(task: Task) -> str:
    """What was held, where that is known, and which field to raise."""
    role = task.key.role
    said = task.message or f"{_who(task)} was killed for using too much memory"
    return f"{said}; raise roles.{role}.limits.memory" if task.message else f"{said}; raise roles.{role}.resources.memory"


def _gpu_memory(task: Task, exit_: Exit) -> str:
    """The device's own words where they are known: they name what was asked for and what was free."""
    said = f": {exit_.error}" if _GPU_MEMORY.search(exit_.error) else "; use a smaller batch"
    return f"{_who(task)} ran out of GPU memory{said}"


def _who(task: Task) -> str:
    """`worker-0`, with the rank where the task has several."""
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
    said = exit_.error or _last_line(exit_)
    return f"{_who(task)} exited with {code}" + (f": {said[:300]}" if said and said != f"exit code {code}" else "")


def _last_line(exit_: Exit) -> str:
    lines = (line.strip() for line in reversed(exit_.tail.splitlines()))
    return next((line for line in lines if not set(line) <= _DECORATION), "")[:200]


def _lost_its_peers(task: Task) -> bool:
    # Watchdogs of collectives abort.
    ended = task.exit
    if ended is None or ended.error_signal is not None or ended.signal not in (None, signals.SIGABRT):
        return False
    return bool(PEER.search(ended.error or ended.tail))


def _signal_name(number: int) -> str:
    try:
        return signals.Signals(number).name
    except ValueError:
        return f"signal {number}"
