"""Who has which piece of work: the disk side of `shards.py`.

A folder with `terms.json` (what is shared out), `states` (one byte a piece: free, held or done), `lock`
(held for microseconds around every change) and one `lease-...` file for each iterating process: it says
which piece that process holds, its lock says that the process lives, its time says when it last moved on.
A piece that is marked held without a live lease is free. Nothing is ever waited for under the lock.
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


class Lease:
    """This iterating process's own lease file, locked until it closes or dies."""

    def __init__(self, folder: str, timeout: float) -> None:
        self._path = os.path.join(folder, f"lease-{os.getpid()}-{secrets.token_hex(6)}")
        self._file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
        fcntl.flock(self._file, fcntl.LOCK_EX)
        self._rest = min(1.0, timeout / 8)
        self._renewed = 0.0
        self._process = os.getpid()

    def hold(self, piece: int | None) -> None:
        """Write down which piece this is."""
        text = b"" if piece is None else b"%d\n" % piece
        os.pwrite(self._file, text, 0)
        os.ftruncate(self._file, len(text))
        self._renewed = 0.0
        self.renew()

    def renew(self) -> None:
        """Say that the holder moves on; a disk access at most once a second."""
        now = time.monotonic()
        if now - self._renewed >= self._rest:
            os.utime(self._file)
            self._renewed = now

    def close(self) -> None:
        """End the lease. In a forked child only the copy is closed: the lease is still its parent's."""
        if os.getpid() == self._process:
            with suppress(FileNotFoundError):
                os.unlink(self._path)
        os.close(self._file)


class Ledger:
    """The pieces of one pass and their states, shared by all processes that open the same folder."""

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
    def lease(self) -> Iterator[Lease]:
        """A lease of our own; a piece that it still holds at the end will be found free."""
        with self._locked():
            lease = Lease(self._folder, self._timeout)
        try:
            yield lease
        finally:
            lease.close()

    def take(self, lease: Lease) -> int | None:
        """The next piece for this lease, or None when none is free now."""
        with self._locked() as states:
            piece = self._find_free(states)
            if piece is None and self._reclaim(states):
                piece = self._find_free(states)
            if piece is not None:
                lease.hold(piece)  # first the lease, then the mark: a crash between the two leaves a free piece
                self._write(states, piece, HELD)
                self._next = piece + 1
            return piece

    def finish(self, lease: Lease, piece: int) -> None:
        """The piece is done, also when somebody else has been given it meanwhile."""
        with self._locked() as states:
            self._write(states, piece, DONE)
            lease.hold(None)

    def done(self) -> list[int]:
        """Every finished piece."""
        with self._locked() as states:
            return [piece for piece, state in enumerate(self._read(states, 0, self._count)) if state == DONE]

    def complete(self) -> bool:
        """Whether every piece is done."""
        with self._locked() as states:
            return self._read(states, 0, self._count).count(DONE) == self._count

    def begin_with(self, done: list[int], token: str) -> None:
        """Set what is done, unless that was done before under the same token: all processes of a start may call it."""
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
        there = self._terms()
        if there is None:
            self._write_terms(terms)
            return
        told = {name: there.get(name) for name in terms}
        if told != terms:
            differ = f"here {terms}, before {told}"
            message = f"the processes of this run do not agree on the shards: {differ}; give another `name` or `epoch`"
            raise ValueError(message)

    def _terms(self) -> dict[str, Any] | None:
        try:
            with open(self._path("terms.json"), encoding="utf-8") as file:
                found = json.load(file)
        except (FileNotFoundError, ValueError):
            return None
        return found if isinstance(found, dict) else None

    def _write_terms(self, terms: dict[str, Any]) -> None:
        aside = self._path("terms.new")
        with open(aside, "w", encoding="utf-8") as file:
            json.dump(terms, file)
        os.replace(aside, self._path("terms.json"))

    def _find_free(self, states: int) -> int | None:
        """The first free piece from where we were, then from the beginning (given-back ones lie behind us)."""
        for start, end in ((self._next, self._count), (0, self._next)):
            for place in range(start, end, _BLOCK):
                found = self._read(states, place, min(_BLOCK, end - place)).find(FREE)
                if found >= 0:
                    return place + found
        return None

    def _reclaim(self, states: int) -> bool:
        """Free the pieces that are marked held and that no live lease holds; whether there were any."""
        held = {piece for piece in self._live_leases() if piece is not None}
        marks = self._read(states, 0, self._count)
        lost, place = [], marks.find(HELD)
        while place >= 0:
            if place not in held:
                lost.append(place)
            place = marks.find(HELD, place + 1)
        for piece in lost:
            self._write(states, piece, FREE)
        return bool(lost)

    def _live_leases(self) -> Iterator[int | None]:
        for name in os.listdir(self._folder):
            if name.startswith("lease-"):
                with suppress(FileNotFoundError):
                    yield self._piece_of(self._path(name))

    def _piece_of(self, path: str) -> int | None:
        """What a lease holds; None when its process is dead (the file goes then) or has not moved on for too long."""
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
        """The lock, and the open states file."""
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
