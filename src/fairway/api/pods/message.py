"""Parse a pod's message about its task: every field is typed and every number bounded. Pure.

The message comes from the user's container, so it may contain anything. A message with an unreadable head is refused as a whole;
an invalid point or checkpoint is left out, and the reason is returned with the rest.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field
from typing import Any, TypeGuard

from fairway.app.port.port import MetricPoint
from fairway.runtime.event_folder import SOURCES
from fairway.units.number import finite, int64

MOST_POINTS = 10_000
MOST_METRICS = 1000
"""Maximum number of metrics of one point."""
LONGEST_NAME = 500
LATEST = 1e11
"""Seconds since the epoch (the year 5138): later times cannot be displayed."""
MOST_RANK = 2**31 - 1
_SPELT = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
_SHOWN = 60


class UnreadableMessageError(ValueError):
    """The body is not a valid message of a task."""


@dataclass(slots=True)
class PodMessage:
    """A parsed message of a pod."""

    task: str
    sender: str = ""
    number: int = 0
    """Sequence number among the sender's messages."""
    points: list[tuple[int, MetricPoint]] = field(default_factory=list)
    """Each with the index of its source in `SOURCES`."""
    step: int | None = None
    """The step of the newest checkpoint."""
    saved: float | None = None
    refused: list[str] = field(default_factory=list)
    """Reasons for the parts that were left out."""


def read(body: bytes) -> PodMessage:
    """Parse a message. Raises `UnreadableMessageError` if the body is not one."""
    try:
        plain = json.loads(body)
    except (ValueError, RecursionError) as error:
        message = f"{type(error).__name__}: {str(error)[:200]}"
        raise UnreadableMessageError(message) from None
    if not isinstance(plain, dict):
        message = f"it is {_shown(plain)}, and a mapping was expected"
        raise UnreadableMessageError(message)
    task, sender, number = plain.get("task"), plain.get("sender", ""), int64(plain.get("number", 0))
    if not _is_name(task) or not isinstance(sender, str) or number is None or int64(plain.get("attempt")) is None:
        message = "task and sender are texts, number and attempt are integers of 64 bits"
        raise UnreadableMessageError(message)
    result = PodMessage(_clean(task), _clean(sender[:LONGEST_NAME]), number)
    _read_points(plain.get("points", []), result)
    _read_checkpoint(plain.get("checkpoint"), result)
    return result


def _read_points(points: Any, found: PodMessage) -> None:
    if not isinstance(points, list) or len(points) > MOST_POINTS:
        found.refused.append(f"points is {_shown(points)}, and a list of at most {MOST_POINTS} was expected")
        return
    for point in points:
        reason = _wrong(point)
        if reason:
            found.refused.append(f"a metric point was left out: {reason}")
        else:
            found.points.append(_point(point, found))


def _wrong(plain: Any) -> str:
    """Return why this is not a valid point; empty if it is valid."""
    if not isinstance(plain, dict):
        return f"{_shown(plain)} is not a mapping"
    step, rank, values = plain.get("step"), int64(plain.get("rank", 0)), plain.get("metrics")
    if _moment(plain.get("time")) is None:
        return f"time {_shown(plain.get('time'))} is not a valid time"
    if step is not None and int64(step) is None:
        return f"step is {_shown(step)}, and a signed integer of 64 bits was expected"
    if rank is None or not 0 <= rank <= MOST_RANK:
        return f"rank {_shown(plain['rank'])} is not a number from 0 to {MOST_RANK}"
    if plain.get("source", SOURCES[0]) not in SOURCES:
        return f"source {_shown(plain['source'])} is none of {', '.join(SOURCES)}"
    if not isinstance(values, dict) or len(values) > MOST_METRICS:
        return f"metrics is {_shown(values)}, and a mapping of at most {MOST_METRICS} numbers was expected"
    return ""


def _point(plain: dict[str, Any], found: PodMessage) -> tuple[int, MetricPoint]:
    """Convert a checked point; single metrics that are not numbers are left out."""
    metrics = {}
    for name, value in plain["metrics"].items():
        number = _metric(value)
        if number is None or not _is_name(name):
            found.refused.append(f"metric {_shown(name)} = {_shown(value)} is not a number; it was left out")
        else:
            metrics[_clean(name)] = number
    rank, step, source = int64(plain.get("rank", 0)), plain.get("step"), plain.get("source", SOURCES[0])
    task = f"{found.task}.{rank}" if rank else found.task
    moment = _moment(plain["time"]) or 0.0
    return SOURCES.index(source), MetricPoint(moment, None if step is None else int64(step), metrics, task, source)


def _metric(value: Any) -> float | None:
    """Return a measured number. NaN and infinity are valid: a loss that became NaN must be visible."""
    if isinstance(value, str):
        return _SPELT.get(value)
    return value if isinstance(value, float) else finite(value)


def _read_checkpoint(plain: Any, found: PodMessage) -> None:
    if plain is None:
        return
    fields = plain if isinstance(plain, dict) else {}
    step, moment = int64(fields.get("step")), _moment(fields.get("time"))
    if step is None or step < 0 or moment is None:
        found.refused.append(f"checkpoint {_shown(plain)} has no valid step or time; it was left out")
    else:
        found.step, found.saved = step, moment


def _moment(value: Any) -> float | None:
    moment = finite(value)
    return moment if moment is not None and 0 <= moment <= LATEST else None


def _is_name(value: Any) -> TypeGuard[str]:
    return isinstance(value, str) and 0 < len(value) <= LONGEST_NAME


def _clean(text: str) -> str:
    """Replace lone surrogates, which JSON can contain but the database cannot store."""
    return text.encode(errors="replace").decode()


def _shown(value: Any) -> str:
    """Return a short form of an untrusted value; never raises, however large the value is."""
    if isinstance(value, list | dict):
        return f"a {type(value).__name__} of {len(value)}"
    if isinstance(value, str):
        return _clean(repr(value[:_SHOWN]))
    return repr(value) if int64(value) is not None or not isinstance(value, int) else f"an integer of {value.bit_length()} bits"
