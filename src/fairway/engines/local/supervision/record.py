"""The records of an attempt: written whole or not at all, also on a full disk. Standard library only."""

from __future__ import annotations

import json
import os

STARTED = "started.json"
EXIT = "exit.json"
_RESERVED = 32 * 1024
"""Bytes; more than the largest exit record."""


class ExitRecord:
    """The record of a task's end, with its room on the disk taken at the start: a disk that fills up cannot lose it."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._aside = os.path.join(folder, ".exit.json")
        self._descriptor = os.open(self._aside, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        os.write(self._descriptor, b" " * _RESERVED)

    def write(self, content: dict[str, object]) -> None:
        """Make the record appear. JSON does not mind the blanks that fill the reserved room."""
        text = json.dumps(content).encode()
        os.pwrite(self._descriptor, text.ljust(_RESERVED), 0)
        try:
            os.fsync(self._descriptor)
        except OSError:
            # The record can still be read; only a power cut could lose it.
            pass
        os.rename(self._aside, os.path.join(self._folder, EXIT))

    def discard(self) -> None:
        """Nothing was started: leave no trace."""
        os.close(self._descriptor)
        os.unlink(self._aside)


def write_record(folder: str, name: str, content: dict[str, object]) -> None:
    """Write a small record aside, then give it its name."""
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
    """Give a record that lies aside its name."""
    os.rename(_aside(folder, name), os.path.join(folder, name))


def discard_record(folder: str, name: str) -> None:
    """Remove a record that lies aside."""
    os.unlink(_aside(folder, name))


def _aside(folder: str, name: str) -> str:
    return os.path.join(folder, f".{name}")


def read_record(folder: str, name: str) -> dict[str, object] | None:
    """A record, or None when it is not there or cannot be read."""
    try:
        with open(os.path.join(folder, name), "rb") as file:
            content = json.loads(file.read())
    except (OSError, ValueError):
        return None
    return content if isinstance(content, dict) else None
