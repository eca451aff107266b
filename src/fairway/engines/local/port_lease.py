"""Leases network ports to tasks: locked machine-wide, free when leased, and outside the kernel's ephemeral range."""

from __future__ import annotations

import contextlib
import itertools
import os
import secrets
import socket
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from fairway.engines.local.file_lock import is_locked, open_regular, try_lock, unlock
from fairway.engines.local.machine_folder import MachineFolder

LOWEST = 10_000
HIGHEST = 65_535
_FILE = "ports"
_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
_DEFAULT_RANGE = (32_768, 60_999)
_COURTESY = 2000
"""Candidates that are tried before ports claimed by other users are leased, too."""


@dataclass(frozen=True, slots=True)
class PortLease:
    """Ports that are held until all copies of all descriptors are closed."""

    descriptors: tuple[int, ...]
    ports: tuple[int, ...]


class PortLeases:
    """Leases ports. Byte N of a file stands for port N; each user has a file that the others read.

    Promises:

    1. No two tasks of a user hold the same port, and none of another user's, as far as enough ports are left without.
       A user who holds all ports delays the others by milliseconds: then what can be bound is handed out.
    2. A user who locks the file of another (every reader can take a shared lock) costs a file of its own for each lease.
    """

    def __init__(self, folder: MachineFolder) -> None:
        self._folder = folder

    def take(self, count: int, preferred: Sequence[int] = ()) -> PortLease | None:
        """Lease that many ports, the preferred ones if they are all free; return None when there are not enough."""
        with contextlib.ExitStack() as opened:
            earlier = self._folder.open_earlier(_FILE)
            if earlier is not None:
                opened.callback(os.close, earlier)
            own = self._own_file()
            opened.callback(os.close, own)
            files = _PortFiles(own, earlier, self._read_files(opened))
            try:
                leased = _search(files, count, preferred)
            except _ForeignLockError:
                self._folder.warn(
                    self._folder.own() / _FILE, "another user holds shared locks on it; leases use files of their own"
                )
                own, locked = self._private_file(files, count)
                opened.callback(os.close, own)
                files = replace(files, own=own)
                leased = _confirmed(files, locked, count)
            if leased is None:
                return None
            return PortLease(tuple(os.dup(file) for file in (own, earlier) if file is not None), leased)

    def _own_file(self) -> int:
        descriptor = open_regular(self._folder.own() / _FILE, os.O_RDWR | os.O_CREAT, owner=os.getuid())
        os.fchmod(descriptor, 0o644)
        return descriptor

    def _private_file(self, files: _PortFiles, count: int) -> tuple[int, list[int]]:
        """Create a file with locks on more ports than needed, taken before other users could open it.

        Return it with the ports.
        """
        descriptor, path = self._folder.create()
        free = (port for port in _candidates() if files.is_ours_free(port))
        held = [port for port in itertools.islice(free, count * 4 + 16) if try_lock(descriptor, port)]
        self._folder.publish(descriptor, path, f"{_FILE}-{secrets.token_hex(8)}")
        return descriptor, held

    def _read_files(self, opened: contextlib.ExitStack) -> tuple[list[int], list[int]]:
        """Open the files of this user and those of others. Files of this user that hold no lock are removed."""
        ours: list[int] = []
        theirs: list[int] = []
        with self._folder.folders() as folders:
            for folder in folders:
                for name in folder.names(_FILE):
                    descriptor = self._folder.open_in(folder, name)
                    if descriptor is None:
                        continue
                    opened.callback(os.close, descriptor)
                    if folder.user != os.getuid():
                        theirs.append(descriptor)
                    elif name == _FILE or is_locked(descriptor, length=0, exclusively=True):
                        ours.append(descriptor)
                    else:
                        with contextlib.suppress(OSError):
                            os.unlink(name, dir_fd=folder.descriptor)
        return ours, theirs


class _ForeignLockError(Exception):
    """Another user holds a shared lock on this user's file."""


@dataclass(frozen=True, slots=True)
class _PortFiles:
    """The files that record which ports are held."""

    own: int
    """The file of this user, open for writing."""
    earlier: int | None
    """The file that earlier versions share, open for writing."""
    read: tuple[list[int], list[int]]
    """The files of this user (`own` among them), and those of others."""

    def is_ours_free(self, port: int) -> bool:
        """Return whether no other task of this user holds the port."""
        return not any(is_locked(file, port, exclusively=True) for file in self.read[0])

    def hold(self, port: int, *, courteous: bool) -> bool:
        """Lock the port in the own file, then check whether it is held in another."""
        if not try_lock(self.own, port):
            if not is_locked(self.own, port, exclusively=True):
                raise _ForeignLockError
            return False
        if self.confirm(port, courteous=courteous):
            return True
        self.drop(port)
        return False

    def confirm(self, port: int, *, courteous: bool) -> bool:
        """Return whether a port that is locked in the own file is held in no other file and can be bound."""
        own_state = os.fstat(self.own)
        for file in self.read[0]:
            state = os.fstat(file)
            # The own lock shows through every other descriptor of the same file.
            if (state.st_dev, state.st_ino) != (own_state.st_dev, own_state.st_ino) and is_locked(file, port, exclusively=True):
                return False
        if courteous and any(is_locked(file, port, exclusively=True) for file in self.read[1]):
            return False
        if self.earlier is not None and not try_lock(self.earlier, port) and courteous:
            return False
        return can_bind(port)

    def drop(self, port: int) -> None:
        """Release a port."""
        unlock(self.own, port)
        if self.earlier is not None:
            unlock(self.earlier, port)


def _found(files: _PortFiles, candidates: Iterable[int], count: int, *, courteous: bool) -> tuple[int, ...] | None:
    """Lock that many of the candidates; return None, with none locked, when there are not enough."""
    leased: list[int] = []
    try:
        for port in candidates:
            if len(leased) == count:
                break
            if files.hold(port, courteous=courteous):
                leased.append(port)
    except _ForeignLockError:
        for port in leased:
            files.drop(port)
        raise
    if len(leased) == count:
        return tuple(leased)
    for port in leased:
        files.drop(port)
    return None


def _search(files: _PortFiles, count: int, preferred: Sequence[int]) -> tuple[int, ...] | None:
    if len(preferred) >= count and (leased := _found(files, preferred[:count], count, courteous=True)):
        return leased
    nearest = itertools.islice(_candidates(), max(_COURTESY, 2 * count))
    return _found(files, nearest, count, courteous=True) or _found(files, _candidates(), count, courteous=False)


def _confirmed(files: _PortFiles, held: Sequence[int], count: int) -> tuple[int, ...] | None:
    """Confirm that many of the ports locked in the own file; release the others."""
    polite = [port for port in held if files.confirm(port, courteous=True)]
    leased = polite + [port for port in held if port not in polite and files.confirm(port, courteous=False)]
    for port in held:
        if port not in leased[:count]:
            files.drop(port)
    return tuple(leased[:count]) if len(leased) >= count else None


def can_bind(port: int) -> bool:
    """Return whether a program could listen on the port now, on every address."""
    try:
        both = socket.socket(socket.AF_INET6, socket.SOCK_STREAM)
    except OSError:
        # IPv6 is not available.
        return _can_bind(socket.socket(socket.AF_INET, socket.SOCK_STREAM), "", port)
    both.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
    return _can_bind(both, "::", port)


def _can_bind(opened: socket.socket, address: str, port: int) -> bool:
    with opened:
        try:
            opened.bind((address, port))
        except OSError:
            return False
    return True


def _candidates() -> Iterable[int]:
    """Yield every port outside the ephemeral range, or every port if that range covers all, starting with a random one."""
    low, high = ephemeral_range()
    below, above = range(LOWEST, min(low, HIGHEST + 1)), range(max(high + 1, LOWEST), HIGHEST + 1)
    if not below and not above:
        below = range(LOWEST, HIGHEST + 1)
    total = len(below) + len(above)
    # Two engines that start at different ports stay out of each other's way.
    start = int.from_bytes(os.urandom(4)) % total
    for step in range(total):
        place = (start + step) % total
        yield below[place] if place < len(below) else above[place - len(below)]


def ephemeral_range() -> tuple[int, int]:
    """Return the kernel's range of ports for outgoing connections."""
    try:
        low, high = _RANGE.read_text(encoding="ascii").split()
        return int(low), int(high)
    except (OSError, ValueError):
        return _DEFAULT_RANGE
