"""Why a task ended, and what follows: one table for every engine.

| seen                                         | reason        | what follows                                   |
|----------------------------------------------|---------------|------------------------------------------------|
| somebody outside ended it (node lost, refused)| Disrupted    | started again, not counted                     |
| exit 75                                      | Requeue       | started again, not counted                     |
| killed for memory (by us or by the kernel)   | OutOfMemory   | counted; once with half as much memory again   |
| "CUDA out of memory" in the last lines       | GpuOutOfMemory| counted; a smaller batch is the fix            |
| a peer broke the connection                  | PeerFailed    | counted, but another task is the cause         |
| same traceback at the same step as last time | SameError     | final: a mistake of the program                |
| exit 2, 126, 127, or could not be started    | CannotRun     | final                                          |
| nobody knows (supervisor killed)             | Lost          | counted                                        |
| any other exit or signal                     | Error, Signal | counted                                        |
"""

from __future__ import annotations

import re
import signal as signals
from collections.abc import Sequence
from dataclasses import dataclass

from fairway.runtime import contract
from fairway.state.phase import TaskPhase
from fairway.state.task import Task

_NEVER_STARTED = frozenset({2, 126, 127})
_PEER = re.compile(
    r"Connection (reset|closed) by peer|Connection (refused|timed out)|No route to host|Socket closed|Broken pipe"
    r"|NCCL.*(abort|remote)|connectFullMesh|heartbeat timeout|failed to connect to all addresses|lost communication with",
    re.I,
)
_GPU_MEMORY = re.compile(r"CUDA out of memory|RESOURCE_EXHAUSTED|CUDA_ERROR_OUT_OF_MEMORY", re.I)


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
    """Names the mistake; the same twice in a row is final."""


def cause(failed: Sequence[Task]) -> Task:
    """The task to blame: the first that ended; survivors of a broken collective only when there is nobody else."""
    return min(primary(failed) or failed, key=lambda task: (task.finished or 0.0, task.key))


def primary(failed: Sequence[Task]) -> list[Task]:
    """Those whose end is not explained by the end of another."""
    return [task for task in failed if not _lost_its_peers(task)]


def judge(task: Task, last_failure: str, step: int | None) -> Verdict:
    """What this end means. `last_failure` is the signature of the failure before; `step` the last step reported."""
    exit_ = task.exit
    name = task.key.task
    if exit_ is not None and exit_.disrupted:
        return Verdict("Disrupted", f"{name}: {exit_.disrupted}", counted=False)
    if task.phase is TaskPhase.LOST or exit_ is None:
        return Verdict("Lost", task.message or f"{name} vanished: nobody knows how it ended")
    if exit_.code == contract.EXIT_REQUEUE:
        return Verdict("Requeue", f"{name} saved its state and asked to be started again (exit 75)", counted=False)
    if exit_.out_of_memory:
        more = f"raise roles.{task.key.role}.resources.memory"
        return Verdict("OutOfMemory", f"{name} was killed for using too much memory; {more}")
    if exit_.code in _NEVER_STARTED:
        return Verdict("CannotRun", _words(task), final=True)
    if _GPU_MEMORY.search(exit_.tail):
        return Verdict("GpuOutOfMemory", f"{name} ran out of GPU memory; use a smaller batch", signature=f"gpu-memory@{step}")
    if exit_.signal is not None and not _lost_its_peers(task):
        return Verdict("Signal", f"{name} was ended by {_signal_name(exit_.signal)}")
    signature = f"{exit_.traceback_digest}@{step}" if exit_.traceback_digest else ""
    if signature and signature == last_failure:
        return Verdict("SameError", f"{_words(task)}; the same error as the time before, so it is not tried again", final=True)
    reason = "PeerFailed" if _lost_its_peers(task) else "Error"
    return Verdict(reason, _words(task), signature=signature)


def _words(task: Task) -> str:
    exit_ = task.exit
    if task.message:
        return task.message
    code = exit_.code if exit_ else None
    last = next((line for line in reversed(exit_.tail.splitlines()) if line.strip()), "") if exit_ else ""
    return f"{task.key.task} exited with {code}" + (f": {last.strip()[:200]}" if last else "")


def _lost_its_peers(task: Task) -> bool:
    # Watchdogs of collectives abort.
    ended = task.exit
    return ended is not None and ended.signal in (None, signals.SIGABRT) and bool(_PEER.search(ended.tail))


def _signal_name(number: int) -> str:
    try:
        return signals.Signals(number).name
    except ValueError:
        return f"signal {number}"
