"""The journal beside the database: data that neither a backup nor the folders of runs could restore.

One entry for each run that was created, changed its phase or was deleted, for each change of a queue, a service or a tracked
record, and for each run number. Entries are numbered; the database stores the number of its last one. A database that is older
than the journal is detected in this way, and updated from it.

An entry is `length, checksum, MessagePack`. Reading ends at the first incomplete entry; the remainder is moved to a file beside
the journal, never dropped.
"""

from __future__ import annotations

import logging
import os
import struct
import zlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import msgspec

from fairway.app.system import crash_point

JOB, QUEUE, SERVICE, TRACKED, NUMBER, FLOOR = "job", "queue", "service", "tracked", "number", "floor"
LARGE = 8 << 20
"""Size in bytes from which the journal requests a backup, after which it can be shortened."""

_HEADER = struct.Struct("<II")
_LARGEST = 64 << 20
log = logging.getLogger("fairway.store")


class JournalEntry(msgspec.Struct, frozen=True, array_like=True):
    """One change. Without a body, the object of that key was deleted."""

    number: int
    kind: str
    key: tuple[str, ...]
    body: bytes | None

    @property
    def deleted(self) -> bool:
        """Whether the entry is a deletion."""
        return self.body is None


Note = tuple[str, tuple[str, ...], bytes | None]
"""The content of an entry: kind, key, body."""

_decoder = msgspec.msgpack.Decoder(JournalEntry)
_encoder = msgspec.msgpack.Encoder()


class StoreJournal:
    """An append-only file of entries. A failed write is reported in `fault` and loses no earlier entry."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._size = 0
        self._shortened = 0
        """Its size when it was last shortened."""
        self.last = 0
        """The number of the newest entry."""
        self.floor = 0
        """Entries up to this number have been removed."""
        self.fault = ""
        """Why the last entry could not be written; empty if it was."""
        self._descriptor = -1
        self._deleted: set[tuple[str, tuple[str, ...]]] = set()
        self._open()

    @property
    def path(self) -> Path:
        """The file."""
        return self._path

    @property
    def large(self) -> bool:
        """Whether it should be shortened soon: its size has doubled since the last time."""
        return self._size > max(LARGE, 2 * self._shortened)

    def was_deleted(self, kind: str, key: tuple[str, ...]) -> bool:
        """Return whether the newest entry of the key is a deletion."""
        return (kind, key) in self._deleted

    def deleted(self, kind: str) -> list[tuple[str, ...]]:
        """Return the keys of a kind whose newest entry is a deletion."""
        return sorted(key for entry_kind, key in self._deleted if entry_kind == kind)

    def append(self, notes: Sequence[Note], *, sync: bool = False) -> None:
        """Append entries with the next numbers. `sync`: they are durable when this returns."""
        entries = [JournalEntry(self.last + offset, *note) for offset, note in enumerate(notes, start=1)]
        self.last += len(entries)
        try:
            self._write(b"".join(map(_framed, entries)), sync=sync)
            self.fault = ""
        except OSError as error:
            self.fault = f"{self._path} cannot be written: {error.strerror or error}"
            log.warning("%s", self.fault)
        for entry in entries:
            self._mark(entry)

    def since(self, number: int) -> list[JournalEntry]:
        """Return the entries after a number, oldest first."""
        return [entry for entry in self._entries() if entry.number > number and entry.kind != FLOOR]

    def begin_after(self, number: int) -> None:
        """Start again after this number: the database contains entries up to it that are missing here."""
        self.last = number
        self._replace([], number)

    def shorten(self, floor: int) -> None:
        """Drop the entries up to `floor`, which every kept backup contains, and those that a later entry replaces."""
        newest = {(entry.kind, entry.key): entry for entry in self._entries() if entry.number > floor and entry.kind != FLOOR}
        self._replace(sorted(newest.values(), key=lambda entry: entry.number), floor)
        self._shortened = self._size

    def close(self) -> None:
        """Close the file. Harmless when repeated."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _open(self) -> None:
        self._descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._deleted.clear()
        for entry in self._entries():
            self._mark(entry)
            self.last = max(self.last, entry.number)
            if entry.kind == FLOOR:
                self.floor = entry.number
        if os.fstat(self._descriptor).st_size > self._size:
            self._move_rest_aside()

    def _mark(self, entry: JournalEntry) -> None:
        if entry.deleted and entry.kind != FLOOR:
            self._deleted.add((entry.kind, entry.key))
        else:
            self._deleted.discard((entry.kind, entry.key))

    def _entries(self) -> Iterator[JournalEntry]:
        """Yield all complete entries, from the start; sets `_size` to their end."""
        with open(os.dup(self._descriptor), "rb") as file:
            file.seek(0)
            end = 0
            while True:
                head = file.read(_HEADER.size)
                if len(head) < _HEADER.size:
                    break
                length, checksum = _HEADER.unpack(head)
                data = file.read(length) if length <= _LARGEST else b""
                if len(data) < length or zlib.crc32(data) != checksum or not length:
                    break
                try:
                    entry = _decoder.decode(data)
                except msgspec.MsgspecError:
                    break
                end += _HEADER.size + length
                yield entry
            self._size = end

    def _move_rest_aside(self) -> None:
        rest = os.pread(self._descriptor, os.fstat(self._descriptor).st_size - self._size, self._size)
        count = sum(1 for _ in self._path.parent.glob(f"{self._path.name}.damaged-*"))
        aside = self._path.with_name(f"{self._path.name}.damaged-{count + 1}")
        descriptor = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(rest)
        os.ftruncate(self._descriptor, self._size)
        log.warning("the end of %s is incomplete (%d bytes); it was moved to %s", self._path, len(rest), aside.name)

    def _write(self, data: bytes, *, sync: bool) -> None:
        written = 0
        try:
            while written < len(data):
                written += os.pwrite(self._descriptor, data[written:], self._size + written)
            if sync:
                os.fsync(self._descriptor)
        except OSError:
            # A partial entry would hide those that follow it.
            os.ftruncate(self._descriptor, self._size)
            raise
        self._size += len(data)

    def _replace(self, entries: Iterable[JournalEntry], floor: int) -> None:
        """Write a new file and atomically replace the old one."""
        aside = self._path.with_name(f".{self._path.name}")
        descriptor = os.open(aside, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            with os.fdopen(os.dup(descriptor), "wb") as file:
                file.write(_framed(JournalEntry(floor, FLOOR, (), None)))
                for entry in entries:
                    file.write(_framed(entry))
                size = file.tell()
            os.fsync(descriptor)
            with crash_point.reach("backup.rename"):
                os.replace(aside, self._path)
        except OSError:
            os.close(descriptor)
            raise
        self.close()
        self._descriptor, self._size, self.floor = descriptor, size, floor
        self._deleted.clear()
        for entry in self._entries():
            self._mark(entry)


def _framed(entry: JournalEntry) -> bytes:
    data = _encoder.encode(entry)
    return _HEADER.pack(len(data), zlib.crc32(data)) + data
