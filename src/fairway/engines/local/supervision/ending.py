"""How a task ended, gathered from what is left of it. Standard library only."""

from __future__ import annotations

import json
import os
import signal

from fairway.engines.local.supervision.cgroup import Cgroup
from fairway.engines.local.supervision.memory import OomEvidence
from fairway.engines.local.supervision.order import Order
from fairway.engines.local.supervision.outputs import Output
from fairway.engines.local.supervision.ranks import Ranks
from fairway.engines.local.supervision.record import step_of
from fairway.engines.local.supervision.traceback_digest import digest

TAIL = 4096
"""Bytes of output kept in the record."""
_TRACEBACK_REACH = 64 * 1024
"""Bytes of output in which a traceback is looked for."""
_METRICS_REACH = 64 * 1024


def describe_end(
    order: Order, ranks: Ranks, outputs: list[Output], evidence: OomEvidence, cgroup: Cgroup | None, said: str
) -> dict[str, object]:
    """The record of the end, but for its times and for what only the supervisor knows."""
    decisive = ranks.decisive
    end = outputs[decisive.number].end(_TRACEBACK_REACH)
    covered = _cover(end, order)
    killed = decisive.signal == signal.SIGKILL
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
        "traceback_digest": digest(end.decode(errors="replace")) if decisive.failed else "",
        "reached_step": _last_step(order.folder, decisive.number),
        "processes": [rank.as_dict() for rank in ranks.everyone],
    }


def _cover(text: bytes, order: Order) -> bytes:
    """The text without the values of secrets."""
    for name in order.secrets:
        value = order.env.get(name, "").encode(errors="surrogateescape")
        if value:
            text = text.replace(value, b"***")
    return text


def _last_step(folder: str, rank: int) -> int | None:
    """The last step that the process reported; None when it reported none."""
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
        found = step_of(step)
        if found is not None:
            return found
    return None
