"""Describes how a task ended, from its outputs and exit codes. Standard library only."""

from __future__ import annotations

import json
import os
import signal

from fairway.engines.local.supervision.attempt_record import InvalidRecordError, bounded_text, step_of
from fairway.engines.local.supervision.log_output import ProcessLog
from fairway.engines.local.supervision.memory_watch import OomKillEvidence
from fairway.engines.local.supervision.order import TaskOrder
from fairway.engines.local.supervision.process.cgroup import Cgroup
from fairway.engines.local.supervision.task_process import TaskProcess, TaskProcesses

TAIL = 4096
"""Bytes of output kept in the record."""
_REACH = 64 * 1024
"""Bytes of output in which the error is searched for."""
_ERROR_FILE_REACH = 1 << 20
_METRICS_REACH = 64 * 1024
_MOST_RANKS = 1 << 31
_LAUNCHING = frozenset(
    {"torch.distributed.run", "torch.distributed.launch", "accelerate.commands.launch", "deepspeed.launcher.runner"}
)


def describe_end(
    order: TaskOrder, ranks: TaskProcesses, outputs: list[ProcessLog], evidence: OomKillEvidence, cgroup: Cgroup | None, said: str
) -> dict[str, object]:
    """Return the end record, without its times and the facts that only the supervisor has."""
    decisive = ranks.decisive
    end = outputs[decisive.number].end(_REACH)
    covered = _cover(end, order)
    error = _error(order, decisive, covered) if decisive.failed else {}
    killed = signal.SIGKILL in (decisive.signal, error.get("error_signal"))
    for_memory = decisive.failed and (
        cgroup.killed_for_memory() if cgroup is not None else evidence.blames({rank.pid for rank in ranks.everyone}, killed, end)
    )
    return {
        "code": decisive.code,
        "signal": decisive.signal,
        "rank": decisive.number,
        "words": decisive.words,
        "said": said,
        "out_of_memory": for_memory,
        "tail": covered[-TAIL:].decode(errors="replace"),
        **error,
        "reached_step": _last_step(order.folder, decisive.number),
        "processes": [rank.as_dict() for rank in ranks.everyone],
    }


def _error(order: TaskOrder, decisive: TaskProcess, end: bytes) -> dict[str, object]:
    """Return the fields of the record about the error that the failed rank raised."""
    # Imported only here: most tasks end well.
    from fairway.runtime.failure.cause import find  # noqa: PLC0415

    filed = _cover(_error_file(order, decisive.number), order)
    cause = find(end.decode(errors="replace"), filed.decode(errors="replace"))
    rank = cause.rank if cause.rank is not None else _own_rank(order, decisive.number)
    return {
        "error": cause.error,
        "error_rank": rank if rank is not None and 0 <= rank < _MOST_RANKS else None,
        "error_code": cause.code,
        "error_signal": cause.signal,
        "traceback_digest": cause.digest,
    }


def _error_file(order: TaskOrder, number: int) -> bytes:
    """Return what torchrun, or a program that it records, wrote about the rank that failed first; empty when nothing."""
    path = {**order.env, **order.commands[number].env}.get("TORCHELASTIC_ERROR_FILE", "")
    try:
        # A file elsewhere may belong to another attempt.
        return bounded_text(path)[:_ERROR_FILE_REACH] if os.path.dirname(path) == order.folder else b""
    except (OSError, InvalidRecordError):
        return b""


def _own_rank(order: TaskOrder, number: int) -> int | None:
    """Return the rank of a process that is itself a rank; None for a launcher or a shell, whose variable is not its own rank."""
    command = order.commands[number]
    program = os.path.basename(command.argv[0]) if command.argv else ""
    rank_text = {**order.env, **command.env}.get("FAIRWAY_RANK", "")
    launches = any(word in _LAUNCHING for word in command.argv[1:4])
    return int(rank_text) if program.startswith("python") and not launches and rank_text.isdecimal() else None


def _cover(text: bytes, order: TaskOrder) -> bytes:
    """Return the text without the values of secrets."""
    for name in order.secrets:
        value = order.env.get(name, "").encode(errors="surrogateescape")
        if value:
            text = text.replace(value, b"***")
    return text


def _last_step(folder: str, rank: int) -> int | None:
    """Return the last step that the process reported; None when it reported none."""
    try:
        with open(os.path.join(folder, f"metrics-{rank}.jsonl"), "rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - _METRICS_REACH))
            lines = file.read().splitlines()
    except OSError:
        return None
    for line in reversed(lines):
        try:
            step = json.loads(line)["step"]
        except (ValueError, KeyError, TypeError, RecursionError):
            continue
        valid_step = step_of(step)
        if valid_step is not None:
            return valid_step
    return None
