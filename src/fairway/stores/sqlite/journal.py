"""The journal beside the database: what neither a backup nor the folders of runs would bring back.

One entry for each run that was made, changed its phase or was deleted, for each change of a queue, a service or a tracked
record, and for each run number. Entries are numbered; the database holds the number of its last one. So a database that
is older than the journal is recognised, and made up to date from it.

An entry is `length, checksum, MessagePack`. Reading ends at the first entry that is not whole; what follows is moved to a
file beside the journal, never dropped.
"""

from __future__ import annotations

import logging
import os
import struct
import zlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import msgspec

from fairway.app import crash

JOB, QUEUE, SERVICE, TRACKED, NUMBER, FLOOR = "job", "queue", "service", "tracked", "number", "floor"
LARGE = 8 << 20
"""Bytes from which the journal asks for a backup, after which it can be made shorter."""

_HEADER = struct.Struct("<II")
_LARGEST = 64 << 20
log = logging.getLogger("fairway.store")


class Entry(msgspec.Struct, frozen=True, array_like=True):
    """One change. Without a body, what the key names was deleted."""

    number: int
    kind: str
    key: tuple[str, ...]
    body: bytes | None

    @property
    def deleted(self) -> bool:
        """Whether the entry is a deletion."""
        return self.body is None


Note = tuple[str, tuple[str, ...], bytes | None]
"""What an entry is made of: kind, key, body."""

_decoder = msgspec.msgpack.Decoder(Entry)
_encoder = msgspec.msgpack.Encoder()


class Journal:
    """An append-only file of entries. A write that fails is reported in `fault` and loses no entry before it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._size = 0
        self._shortened = 0
        """Its size when it was made shorter last."""
        self.last = 0
        """The number of the newest entry."""
        self.floor = 0
        """Entries up to this number are not here any more."""
        self.fault = ""
        """Why the last entry could not be written; empty when it was."""
        self._descriptor = -1
        self._deleted: set[tuple[str, tuple[str, ...]]] = set()
        self._open()

    @property
    def path(self) -> Path:
        """The file."""
        return self._path

    @property
    def large(self) -> bool:
        """Whether it should be made shorter soon: it has doubled since that was done last."""
        return self._size > max(LARGE, 2 * self._shortened)

    def was_deleted(self, kind: str, key: tuple[str, ...]) -> bool:
        """Whether the newest entry of the key is a deletion."""
        return (kind, key) in self._deleted

    def deleted(self, kind: str) -> list[tuple[str, ...]]:
        """The keys of a kind whose newest entry is a deletion."""
        return sorted(key for found, key in self._deleted if found == kind)

    def append(self, notes: Sequence[Note], *, sync: bool = False) -> None:
        """Add entries with the next numbers. `sync`: they are on the disk when this returns."""
        entries = [Entry(self.last + place, *note) for place, note in enumerate(notes, start=1)]
        self.last += len(entries)
        try:
            self._write(b"".join(map(_framed, entries)), sync=sync)
            self.fault = ""
        except OSError as error:
            self.fault = f"{self._path} cannot be written: {error.strerror or error}"
            log.warning("%s", self.fault)
        for entry in entries:
            self._mark(entry)

    def since(self, number: int) -> list[Entry]:
        """The entries after a number, oldest first."""
        return [entry for entry in self._entries() if entry.number > number and entry.kind != FLOOR]

    def begin_after(self, number: int) -> None:
        """Start anew: the database has had entries that are not here, up to this number."""
        self.last = number
        self._replace([], number)

    def shorten(self, floor: int) -> None:
        """Drop the entries up to a number, which every backup that is kept has, and those that a later one replaces."""
        newest = {(entry.kind, entry.key): entry for entry in self._entries() if entry.number > floor and entry.kind != FLOOR}
        self._replace(sorted(newest.values(), key=lambda entry: entry.number), floor)
        self._shortened = self._size

    def close(self) -> None:
        """Let go of the file. Harmless when done twice."""
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

    def _mark(self, entry: Entry) -> None:
        if entry.deleted and entry.kind != FLOOR:
            self._deleted.add((entry.kind, entry.key))
        else:
            self._deleted.discard((entry.kind, entry.key))

    def _entries(self) -> Iterator[Entry]:
        """All that are whole, from the start; `_size` is where they end."""
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
        log.warning("the end of %s is not whole (%d bytes); it was moved to %s", self._path, len(rest), aside.name)

    def _write(self, data: bytes, *, sync: bool) -> None:
        done = 0
        try:
            while done < len(data):
                done += os.pwrite(self._descriptor, data[done:], self._size + done)
            if sync:
                os.fsync(self._descriptor)
        except OSError:
            # Half an entry would hide those that follow it.
            os.ftruncate(self._descriptor, self._size)
            raise
        self._size += len(data)

    def _replace(self, entries: Iterable[Entry], floor: int) -> None:
        """Write the file anew, aside; it takes the place of the old one in one step."""
        aside = self._path.with_name(f".{self._path.name}")
        descriptor = os.open(aside, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            with os.fdopen(os.dup(descriptor), "wb") as file:
                file.write(_framed(Entry(floor, FLOOR, (), None)))
                for entry in entries:
                    file.write(_framed(entry))
                size = file.tell()
            os.fsync(descriptor)
            with crash.reach("backup.rename"):
                os.replace(aside, self._path)
        except OSError:
            os.close(descriptor)
            raise
        self.close()
        self._descriptor, self._size, self.floor = descriptor, size, floor
        self._deleted.clear()
        for entry in self._entries():
            self._mark(entry)


def _framed(entry: Entry) -> bytes:
    data = _encoder.encode(entry)
    return _HEADER.pack(len(data), zlib.crc32(data)) + data
