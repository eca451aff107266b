"""Network ports for tasks: held machine-wide, free when handed out, and never in the kernel's own range."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from fairway.engines.local.locks import MachineFolder, try_lock, unlock

LOWEST = 10_000
HIGHEST = 65_535
_FILE = "ports"
_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
_DEFAULT_RANGE = (32_768, 60_999)


@dataclass(frozen=True, slots=True)
class Lease:
    """Ports that are ours as long as the descriptor is open anywhere."""

    descriptor: int
    ports: tuple[int, ...]


class Ports:
    """Hands out ports. One file for the machine; byte N of it is port N."""

    def __init__(self, folder: MachineFolder) -> None:
        self._folder = folder

    def take(self, count: int, preferred: Sequence[int] = ()) -> Lease | None:
        """So many ports, the preferred ones if they are all free; None when there are not enough."""
        descriptor = self._folder.open(_FILE)
        found: list[int] = []
        if len(preferred) >= count:
            found = _take_from(descriptor, preferred[:count], count)
        if len(found) < count:
            for port in found:
                unlock(descriptor, port)
            found = _take_from(descriptor, _candidates(), count)
        if len(found) == count:
            return Lease(descriptor, tuple(found))
        os.close(descriptor)
        return None


def _take_from(descriptor: int, candidates: Iterable[int], count: int) -> list[int]:
    found: list[int] = []
    for port in candidates:
        if len(found) == count:
            break
        if not try_lock(descriptor, port):
            continue
        if can_bind(port):
            found.append(port)
        else:
            unlock(descriptor, port)
    return found


def can_bind(port: int) -> bool:
    """Whether a program could listen there now, on every address."""
    try:
        both = socket.socket(socket.AF_INET6, socket.SOCK_STREAM)
    except OSError:
        # No such network here.
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
    """Every port outside the range from which the kernel takes them for connections, from a random one on."""
    low, high = ephemeral_range()
    below, above = range(LOWEST, min(low, HIGHEST + 1)), range(max(high + 1, LOWEST), HIGHEST + 1)
    if not below and not above:
        below = range(LOWEST, HIGHEST + 1)
    total = len(below) + len(above)
    # Two engines that begin at different places stay out of each other's way.
    start = int.from_bytes(os.urandom(4)) % total
    for step in range(total):
        place = (start + step) % total
        yield below[place] if place < len(below) else above[place - len(below)]


def ephemeral_range() -> tuple[int, int]:
    """The ports that the kernel gives to outgoing connections."""
    try:
        low, high = _RANGE.read_text(encoding="ascii").split()
        return int(low), int(high)
    except (OSError, ValueError):
        return _DEFAULT_RANGE
