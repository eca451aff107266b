"""Distribution of pieces of work between processes: the disk side of `shards.py`.

A folder with `terms.json` (the work that is distributed), `states` (one byte per piece: free, held or done), `lock` (held for
microseconds around every change) and one `lease-...` file for each iterating process. The content of a lease is the piece that
its process holds, its lock shows that the process lives, and its modification time is that of the last progress. A piece marked
as held without a live lease is free. No code waits while it holds the lock.
"""

from __future__ import annotations

import fcntl
import json
import os
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

FREE, HELD, DONE = 0, 1, 2
_BLOCK = 1 << 16


class ShardLease:
    """The lease file of this iterating process, locked until it is closed or the process dies."""

    def __init__(self, folder: str, timeout: float) -> None:
        self._path = os.path.join(folder, f"lease-{os.getpid()}-{secrets.token_hex(6)}")
        self._file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
        fcntl.flock(self._file, fcntl.LOCK_EX)
        self._rest = min(1.0, timeout / 8)
        self._renewed = 0.0
        self._process = os.getpid()

    def hold(self, piece: int | None) -> None:
        """Record the held piece."""
        text = b"" if piece is None else b"%d\n" % piece
        os.pwrite(self._file, text, 0)
        os.ftruncate(self._file, len(text))
        self._renewed = 0.0
        self.renew()

    def renew(self) -> None:
        """Record that the holder makes progress; accesses the disk at most once per second."""
        now = time.monotonic()
        if now - self._renewed >= self._rest:
            os.utime(self._file)
            self._renewed = now

    def close(self) -> None:
        """End the lease. In a forked child only the copy of the file is closed: the lease still belongs to its parent."""
        if os.getpid() == self._process:
            with suppress(FileNotFoundError):
                os.unlink(self._path)
        os.close(self._file)


class ShardLedger:
    """The pieces of one pass over the data and their states, shared by all processes that open the same folder."""

    def __init__(self, folder: str, count: int, terms: dict[str, Any], timeout: float) -> None:
        os.makedirs(folder, exist_ok=True)
        self._folder = folder
        self._count = count
        self._timeout = timeout
        self._next = 0
        with self._locked():
            self._agree(terms)
            with open(self._path("states"), "ab") as file:
                file.truncate(count)

    @contextmanager
    def lease(self) -> Iterator[ShardLease]:
        """Create a lease for this process; a piece that it still holds at the end becomes free."""
        with self._locked():
            lease = ShardLease(self._folder, self._timeout)
        try:
            yield lease
        finally:
            lease.close()

    def take(self, lease: ShardLease) -> int | None:
        """Take the next piece for this lease; None if none is free now."""
        with self._locked() as states:
            piece = self._find_free(states)
            if piece is None and self._reclaim(states):
                piece = self._find_free(states)
            if piece is not None:
                lease.hold(piece)  # first the lease, then the mark: after a crash between the two the piece is free
                self._write(states, piece, HELD)
                self._next = piece + 1
            return piece

    def finish(self, lease: ShardLease, piece: int) -> None:
        """Mark the piece as done, even if another process has taken it meanwhile."""
        with self._locked() as states:
            self._write(states, piece, DONE)
            lease.hold(None)

    def done(self) -> list[int]:
        """Return all pieces that are done."""
        with self._locked() as states:
            return [piece for piece, state in enumerate(self._read(states, 0, self._count)) if state == DONE]

    def complete(self) -> bool:
        """Return whether every piece is done."""
        with self._locked() as states:
            return self._read(states, 0, self._count).count(DONE) == self._count

    def begin_with(self, done: list[int], token: str) -> None:
        """Set the pieces that are done, unless this was already set with the same token: every process of a start may call it."""
        with self._locked() as states:
            terms = self._terms() or {}
            if terms.get("token") == token:
                return
            fresh = bytearray(self._count)
            for piece in done:
                fresh[piece] = DONE
            os.pwrite(states, bytes(fresh), 0)
            self._write_terms({**terms, "token": token})

    def _agree(self, terms: dict[str, Any]) -> None:
        existing = self._terms()
        if existing is None:
            self._write_terms(terms)
            return
        recorded = {name: existing.get(name) for name in terms}
        if recorded != terms:
            differ = f"this process has {terms}, an earlier one {recorded}"
            message = f"the processes of this run do not agree on the shards: {differ}; give another `name` or `epoch`"
            raise ValueError(message)

    def _terms(self) -> dict[str, Any] | None:
        try:
            with open(self._path("terms.json"), encoding="utf-8") as file:
                terms = json.load(file)
        except (FileNotFoundError, ValueError):
            return None
        return terms if isinstance(terms, dict) else None

    def _write_terms(self, terms: dict[str, Any]) -> None:
        temporary = self._path("terms.new")
        with open(temporary, "w", encoding="utf-8") as file:
            json.dump(terms, file)
        os.replace(temporary, self._path("terms.json"))

    def _find_free(self, states: int) -> int | None:
        """Return the first free piece after the last one taken, then from the beginning, where returned pieces are."""
        for start, end in ((self._next, self._count), (0, self._next)):
            for offset in range(start, end, _BLOCK):
                index = self._read(states, offset, min(_BLOCK, end - offset)).find(FREE)
                if index >= 0:
                    return offset + index
        return None

    def _reclaim(self, states: int) -> bool:
        """Free the pieces that are marked as held without a live lease; return whether there were any."""
        held = {piece for piece in self._live_leases() if piece is not None}
        marks = self._read(states, 0, self._count)
        lost, piece_index = [], marks.find(HELD)
        while piece_index >= 0:
            if piece_index not in held:
                lost.append(piece_index)
            piece_index = marks.find(HELD, piece_index + 1)
        for piece in lost:
            self._write(states, piece, FREE)
        return bool(lost)

    def _live_leases(self) -> Iterator[int | None]:
        for name in os.listdir(self._folder):
            if name.startswith("lease-"):
                with suppress(FileNotFoundError):
                    yield self._piece_of(self._path(name))

    def _piece_of(self, path: str) -> int | None:
        """Return the piece that a lease holds; None if its process is dead or made no progress for too long.

        The lease of a dead process is deleted.
        """
        file = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        try:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                text = os.read(file, 32)
                fresh = time.time() - os.fstat(file).st_mtime <= self._timeout
                return int(text) if fresh and text.strip().isdigit() else None
            os.unlink(path)
            return None
        finally:
            os.close(file)

    @contextmanager
    def _locked(self) -> Iterator[int]:
        """Hold the lock, and yield the open states file."""
        lock = os.open(self._path("lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            states = os.open(self._path("states"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            try:
                yield states
            finally:
                os.close(states)
        finally:
            os.close(lock)

    def _read(self, states: int, place: int, length: int) -> bytes:
        return os.pread(states, length, place)

    def _write(self, states: int, piece: int, state: int) -> None:
        os.pwrite(states, bytes((state,)), piece)

    def _path(self, name: str) -> str:
        return os.path.join(self._folder, name)
