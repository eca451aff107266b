"""`report()`: append numbers at a step to a file of the attempt. There is no receiver, so nothing can block or fail.

Each report is one line, and each line one `write`. The engine reads the file with `parse`.
"""

from __future__ import annotations

import json
import math
import os
import threading
import time
from typing import Any

from fairway.runtime import number, task_context, task_contract

LINE_LIMIT = 1 << 20
"""Maximum size of one report in bytes."""
_SPELT = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


def report(step: Any = None, **metrics: Any) -> None:
    """Record numbers, such as `report(step=100, loss=0.3, accuracy=0.9)`.

    A report is one append to a local file and never waits. A full disk loses the report (see `dropped`), but does not affect the
    training. Outside of a job the function does nothing.

    Values may be anything that `float()` accepts: numpy scalars, one-element tensors. Turning a tensor on a GPU into a number
    waits for that GPU, as usual. None leaves a metric out. A report that cannot be stored (a step beyond 64 bits, a metric's name
    of 1,000 characters) is rejected by the engine, which reports it in the events of the run; the training continues.

    Raises:
        TypeError: a value is not a number. This is an error in the program, so it is raised outside of a job too.
    """
    count = None if step is None else _as_step(step)
    numbers = {name: _as_float(name, value) for name, value in metrics.items() if value is not None}
    folder = task_context.attempt_dir()
    if folder is None:
        return
    path = os.path.join(folder, task_contract.METRICS_FILE.format(local_rank=task_context.local_rank()))
    _writer.append(path, _line(time.time(), count, numbers))


def dropped() -> int:
    """Return the number of reports of this process that were lost because the file could not be written."""
    return _writer.dropped


def parse(line: bytes | str, refuse: number.Refuse = number.ignore) -> number.Point | None:
    """Return a line of the file as (time, step, metrics); None if it is rejected, and `refuse` is called with the reason."""
    if len(line) > LINE_LIMIT:
        refuse("line", f"a line of {len(line):,} bytes is left out; a report has at most {LINE_LIMIT:,}")
        return None
    if not line.strip():
        return None
    try:
        entry = json.loads(line)
    except (ValueError, RecursionError):
        entry = None
    values = entry.get("metrics") if isinstance(entry, dict) else None
    if not isinstance(values, dict):
        refuse("line", f"a line is not a report: {number.shown(line)}")
        return None
    converted = {name: _SPELT.get(value, value) if isinstance(value, str) else value for name, value in values.items()}
    return number.point(entry.get("time"), entry.get("step"), converted, refuse)


def _line(now: float, step: float | None, numbers: dict[str, float]) -> bytes:
    metrics = {name: _as_json(value) for name, value in numbers.items()}
    entry = {"time": round(now, 6), "step": _step_as_json(step), "metrics": metrics}
    return json.dumps(entry, allow_nan=False, separators=(",", ":")).encode() + b"\n"


def _step_as_json(step: float | None) -> int | str | None:
    """Return the step for JSON.

    Unsupported steps become text, since JSON has no infinity and Python writes no integer of 5,000 digits.
    """
    if step is None or (isinstance(step, int) and step.bit_length() <= 128):
        return step
    return number.shown(step)


def _as_json(value: float) -> float | str:
    # JSON has no numbers for these, and a loss that became NaN is exactly what users need to see.
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    return value


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


def _as_step(value: Any) -> float:
    """Return the step as an integer; NaN and infinity are returned unchanged, for the engine to reject."""
    if not isinstance(value, (str, bytes)):
        try:
            return int(value)
        except (TypeError, ValueError, RuntimeError, OverflowError):
            if isinstance(value, float):
                return value
    message = f"report(): step={str(value)[:60]!r} ({type(value).__name__}) is not a whole number"
    raise TypeError(message)


class _MetricsFile:
    """The open file. Lines are complete or, if the disk is full, cut off and then ended by the next one."""

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
        data = b"\n" + line if self._torn else line
        written = os.write(self._file, data)
        self._torn = written < len(data)
        self.dropped += self._torn

    def _open(self, path: str) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file, self._path = -1, ""
        # O_NONBLOCK matters only if the path is a pipe: then opening fails instead of waiting for a reader.
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK, 0o644)
        self._path, self._torn = path, False


_writer = _MetricsFile()


def _start_afresh() -> None:
    # A lock that another thread held at the fork would stay locked in the child for ever.
    global _writer  # the one place that replaces it
    _writer = _MetricsFile()


os.register_at_fork(after_in_child=_start_afresh)
