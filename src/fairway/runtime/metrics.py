"""`report()`: numbers at a step, appended to a file of the attempt. Nothing listens, so nothing can block or fail.

One line a report, one `write` a line. The engine reads the file; `parse` is how.
"""

from __future__ import annotations

import json
import math
import os
import threading
import time
from typing import Any

from fairway.runtime import context, contract

_SPELT = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


def report(step: Any = None, **metrics: Any) -> None:
    """Record numbers, such as `report(step=100, loss=0.3, accuracy=0.9)`.

    Promises: one append to a local file and no waiting for anybody; a full disk loses the
    report (see `dropped`) and never the training; outside of a job it does nothing.
    Values may be anything that `float()` takes: numpy scalars, one-element tensors. Turning a tensor on a
    GPU into a number waits for that GPU, as it does everywhere. None leaves a metric out.

    Raises:
        TypeError: a value is not a number. That is a mistake in the program, so it is told outside of a job too.
    """
    count = None if step is None else _as_step(step)
    numbers = {name: _as_float(name, value) for name, value in metrics.items() if value is not None}
    folder = context.attempt_dir()
    if folder is None:
        return
    path = os.path.join(folder, contract.METRICS_FILE.format(local_rank=context.local_rank()))
    _writer.append(path, _line(time.time(), count, numbers))


def dropped() -> int:
    """How many reports of this process were lost because the file could not be written."""
    return _writer.dropped


def parse(line: bytes | str) -> tuple[float, int | None, dict[str, float]] | None:
    """A line of the file as (time, step, metrics); None for a torn or foreign line."""
    try:
        found = json.loads(line)
        step = found.get("step")
        numbers = {str(name): float(_SPELT.get(value, value)) for name, value in found["metrics"].items()}
        return float(found["time"]), None if step is None else int(step), numbers
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError):
        return None


def _line(now: float, step: int | None, numbers: dict[str, float]) -> bytes:
    entry = {"time": round(now, 6), "step": step, "metrics": {name: _as_json(number) for name, number in numbers.items()}}
    return json.dumps(entry, allow_nan=False, separators=(",", ":")).encode() + b"\n"


def _as_json(number: float) -> float | str:
    # JSON has no word for these, and a loss that became NaN is the very thing that people want to see.
    if math.isnan(number):
        return "NaN"
    if math.isinf(number):
        return "Infinity" if number > 0 else "-Infinity"
    return number


def _as_float(name: str, value: Any) -> float:
    if not isinstance(value, (str, bytes)):
        try:
            # `item` gives the one number of an array of any shape; `float` alone warns there.
            return float(value.item() if hasattr(value, "item") else value)
        except (TypeError, ValueError, RuntimeError):  # RuntimeError: what torch raises for more than one element
            pass
        except OverflowError:
            return math.inf if value > 0 else -math.inf
    message = (
        f"report(): {name}={str(value)[:60]!r} ({type(value).__name__}) is not a number; pass a float or a one-element tensor"
    )
    raise TypeError(message)


def _as_step(value: Any) -> int:
    if not isinstance(value, (str, bytes)):
        try:
            return int(value)
        except (TypeError, ValueError, RuntimeError, OverflowError):
            pass
    message = f"report(): step={str(value)[:60]!r} ({type(value).__name__}) is not a whole number"
    raise TypeError(message)


class _Writer:
    """The open file. Lines are whole or, when the disk is full, cut and then closed off by the next one."""

    def __init__(self) -> None:
        # Reentrant, since a signal handler may report while the interrupted code does.
        self._lock = threading.RLock()
        self._path = ""
        self._file = -1
        self._torn = False
        self.dropped = 0

    def append(self, path: str, line: bytes) -> None:
        with self._lock:
            try:
                self._write(path, line)
            except OSError:
                self.dropped += 1

    def _write(self, path: str, line: bytes) -> None:
        if path != self._path:
            self._open(path)
        given = b"\n" + line if self._torn else line
        written = os.write(self._file, given)
        self._torn = written < len(given)
        self.dropped += self._torn

    def _open(self, path: str) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file, self._path = -1, ""
        # O_NONBLOCK matters only if someone put a pipe there: then opening fails instead of waiting for a reader.
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK, 0o644)
        self._path, self._torn = path, False


_writer = _Writer()


def _start_afresh() -> None:
    # A lock that another thread held at the fork would stay locked in the child for ever.
    global _writer  # the one place that replaces it
    _writer = _Writer()


os.register_at_fork(after_in_child=_start_afresh)
