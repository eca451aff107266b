"""The records of an attempt: written atomically, also on a full disk. Standard library only.

A task may write into its own attempt folder, so that a record may contain anything. Reading is bounded: the file must be a
regular file of at most `LARGEST` bytes, and each value must have its type and its range.
"""

from __future__ import annotations

import json
import os
import stat

STARTED = "started.json"
EXIT = "exit.json"
LARGEST = 4 << 20
"""Limit in bytes; a larger file is refused unread. An order with a thousand processes is smaller."""
LONGEST_TEXT = 64 * 1024
"""Limit of characters of one text in an exit record."""
INT64 = 1 << 63
_LATEST = 1e11
"""Limit in seconds since the epoch; later times are mistakes."""
_SHOWN = 80
_RESERVED = 32 * 1024
"""Bytes reserved; more than the largest exit record."""


class InvalidRecordError(ValueError):
    """A record exists and cannot be used. The message names the file and the value."""


class ExitRecord:
    """The record of a task's end. Its disk space is reserved at the start: a disk that fills up cannot lose it."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._aside = os.path.join(folder, ".exit.json")
        self._descriptor = os.open(self._aside, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        os.write(self._descriptor, b" " * _RESERVED)

    def write(self, content: dict[str, object]) -> None:
        """Publish the record. JSON allows the blanks that fill the reserved space."""
        text = json.dumps(content).encode()
        os.pwrite(self._descriptor, text.ljust(_RESERVED), 0)
        try:
            os.fsync(self._descriptor)
        except OSError:
            # The record can still be read; only a power failure could lose it.
            pass
        os.rename(self._aside, os.path.join(self._folder, EXIT))

    def discard(self) -> None:
        """Remove the reserved file: nothing was started."""
        os.close(self._descriptor)
        os.unlink(self._aside)


def write_record(folder: str, name: str, content: dict[str, object]) -> None:
    """Write a small record aside, then rename it to its name."""
    prepare_record(folder, name, content)
    publish_record(folder, name)


def prepare_record(folder: str, name: str, content: dict[str, object]) -> None:
    """Write a small record aside."""
    descriptor = os.open(_aside(folder, name), os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        os.write(descriptor, json.dumps(content).encode())
    finally:
        os.close(descriptor)


def publish_record(folder: str, name: str) -> None:
    """Rename a record that was written aside."""
    os.rename(_aside(folder, name), os.path.join(folder, name))


def discard_record(folder: str, name: str) -> None:
    """Remove a record that was written aside."""
    os.unlink(_aside(folder, name))


def _aside(folder: str, name: str) -> str:
    return os.path.join(folder, f".{name}")


def read_record(folder: str, name: str) -> dict[str, object] | None:
    """Return a record; None when it does not exist or cannot be used."""
    try:
        return load_record(folder, name)
    except InvalidRecordError:
        return None


def load_record(folder: str, name: str) -> dict[str, object] | None:
    """Return a record; None when there is no such file. Raises `InvalidRecordError` for a file that holds no record."""
    path = os.path.join(folder, name)
    try:
        text = bounded_text(path)
    except FileNotFoundError:
        return None
    except OSError as problem:
        raise InvalidRecordError(f"{path} cannot be read: {problem.strerror}") from problem
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as problem:
        raise InvalidRecordError(f"{path} holds no JSON record: {_shown(text)}") from problem
    if not isinstance(content, dict):
        raise InvalidRecordError(f"{path} holds no JSON object: {_shown(text)}")
    return content


def bounded_text(path: str) -> bytes:
    """Return the content of a small regular file. Never blocks: a FIFO or a device in its place is refused."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        state = os.fstat(descriptor)
        if not stat.S_ISREG(state.st_mode):
            raise InvalidRecordError(f"{path} is not a regular file")
        if state.st_size > LARGEST:
            raise InvalidRecordError(f"{path} has {state.st_size} bytes, more than the {LARGEST} that a record may have")
        with os.fdopen(os.dup(descriptor), "rb") as file:
            return file.read(LARGEST)
    finally:
        os.close(descriptor)


def check_exit(path: str, content: dict[str, object]) -> None:
    """Raise `InvalidRecordError` unless every known value of an exit record has its type and its range.

    `reached_step` is an integer of any size: it comes from the task's reports. Read it with `step_of`.
    """
    for name in ("code", "signal", "rank", "held", "memory_limit", "world", "error_rank", "error_code", "error_signal"):
        _check_whole(path, name, content.get(name))
    if content.get("rank", 0) is None:
        raise InvalidRecordError(f"{path}: rank is null; it must be an integer")
    for name in ("started", "finished"):
        _check_time(path, name, content.get(name))
    for name in ("tail", "words", "said", "lost", "traceback_digest", "error"):
        value = content.get(name)
        if value is not None and not (isinstance(value, str) and len(value) <= LONGEST_TEXT):
            raise InvalidRecordError(f"{path}: {name} is {_shown(value)}; it must be a text of at most {LONGEST_TEXT} characters")
    for name in ("out_of_memory", "by_us", "leads", "interrupted"):
        value = content.get(name)
        if value is not None and not isinstance(value, bool):
            raise InvalidRecordError(f"{path}: {name} is {_shown(value)}; it must be true or false")
    step = content.get("reached_step")
    if step is not None and (isinstance(step, bool) or not isinstance(step, int)):
        raise InvalidRecordError(f"{path}: reached_step is {_shown(step)}; it must be an integer")


def step_of(value: object) -> int | None:
    """Return a step that fits into 64 bits; None for anything else."""
    return value if isinstance(value, int) and not isinstance(value, bool) and -INT64 <= value < INT64 else None


def time_of(value: object) -> float | None:
    """Return a finite time in seconds since the epoch; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return float(value) if -_LATEST <= value <= _LATEST else None


def _check_whole(path: str, name: str, value: object) -> None:
    if value is not None and step_of(value) is None:
        raise InvalidRecordError(f"{path}: {name} is {_shown(value)}; it must be an integer of 64 bits")


def _check_time(path: str, name: str, value: object) -> None:
    if value is not None and time_of(value) is None:
        raise InvalidRecordError(f"{path}: {name} is {_shown(value)}; it must be a time in seconds")


def _shown(value: object) -> str:
    """Return the value for a message, shortened."""
    if isinstance(value, int) and abs(value) >= INT64:
        return f"an integer of {value.bit_length()} bits"
    if isinstance(value, bytes):
        value = value[: _SHOWN + 1].decode("utf-8", "replace")
    text = value if isinstance(value, str) else repr(value)
    return repr(text[:_SHOWN] + "...") if len(text) > _SHOWN else repr(value)
