"""Locks on devices, across all homes and users of the machine.

A task that holds a device holds a claim: a file of its own in its user's folder, locked exclusively before others can open it. A
claim counts while its lock lives, and its file's owner is the user who holds the device.

Promises:

1. Two claims that exclude each other are never both granted: each is published first and compares itself with all
   others after that, so that of two at the same time at least one sees the other and is withdrawn.
2. A claim excludes all others, except shares of the same device by the same home.
3. Tasks of earlier versions, which locked one file for all users, are excluded and exclude in the same way.
4. Every user can hold a device, as every user can run a task on it; the holder is named.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from fairway.engines.local.file_lock import is_locked, try_lock
from fairway.engines.local.machine_folder import MachineFolder, name_of

_TRIES = 6
_LONGEST_PAUSE_MS = 8
_MARK = 256
"""Limit of the text of a claim, in bytes."""


@dataclass(frozen=True, slots=True)
class DeviceClaim:
    """A claim that is held now."""

    user: int
    home: str
    shared: bool
    file: tuple[int, int]
    """Device and inode of its file."""


class DeviceLocks:
    """The claims of one home, compared with those of all others."""

    def __init__(self, folder: MachineFolder, home: str) -> None:
        self._folder = folder
        self._home = home

    def take(self, uuid: str, *, shared: bool) -> tuple[int, ...] | None:
        """Lock a device, exclusively or shared with other tasks of this home; return None when it is taken.

        The device is held until all copies of all descriptors are closed.
        """
        for _ in range(_TRIES):
            if self._excluded(uuid, shared) or self._excluded_earlier(uuid, shared):
                return None
            descriptors = self._claimed(uuid, shared)
            if descriptors is not None:
                return descriptors
            # Another claim was published at the same time, and both are withdrawn.
            time.sleep(secrets.randbelow(_LONGEST_PAUSE_MS + 1) / 1000)
        return None

    def is_shared(self, uuid: str) -> bool:
        """Return whether tasks of this home share the device."""
        if any(claim.shared and self._is_ours(claim) for claim in self._claims([uuid]).get(uuid, ())):
            return True
        with self._earlier(uuid) as descriptor:
            return descriptor is not None and is_locked(descriptor) and not is_locked(descriptor, exclusively=True)

    def foreign_holder(self, uuid: str) -> str:
        """Return a description of the other home that holds the device; empty when there is none."""
        return self.foreign_holders([uuid]).get(uuid, "")

    def foreign_holders(self, uuids: Sequence[str]) -> dict[str, str]:
        """Return descriptions of the other homes that hold devices, by device."""
        holders: dict[str, str] = {}
        for uuid, claims in self._claims(uuids).items():
            for claim in claims:
                if not self._is_ours(claim):
                    holders[uuid] = f"another fairway home of user {name_of(claim.user)}"
        for uuid in uuids:
            if uuid not in holders and (words := self._earlier_holder(uuid)):
                holders[uuid] = words
        return holders

    def _is_ours(self, claim: DeviceClaim) -> bool:
        return claim.user == os.getuid() and claim.home == self._home

    def _excluded(self, uuid: str, shared: bool, but: tuple[int, int] | None = None) -> bool:
        claims = self._claims([uuid]).get(uuid, ())
        return any(claim.file != but and not (shared and claim.shared and self._is_ours(claim)) for claim in claims)

    def _claimed(self, uuid: str, shared: bool) -> tuple[int, ...] | None:
        descriptor, path = self._folder.create()
        try:
            os.write(descriptor, json.dumps({"home": self._home, "shared": shared}).encode())
            locked = try_lock(descriptor)
            path = self._folder.publish(descriptor, path, f"{_name(uuid)}@{secrets.token_hex(8)}")
            granted = locked and not self._excluded(uuid, shared, _file(descriptor))
            earlier = self._taken_earlier(uuid, shared) if granted else None
        except BaseException:
            path.unlink(missing_ok=True)
            os.close(descriptor)
            raise
        if earlier is None:
            path.unlink(missing_ok=True)
            os.close(descriptor)
            return None
        return (descriptor, *earlier)

    def _claims(self, uuids: Sequence[str]) -> dict[str, list[DeviceClaim]]:
        """Return the claims held now on these devices. Files of this user whose lock is gone are removed."""
        if not uuids:
            return {}
        by_name = {_name(uuid): uuid for uuid in uuids}
        claims: dict[str, list[DeviceClaim]] = {}
        with self._folder.folders() as folders:
            for folder in folders:
                for name in folder.names("device-"):
                    uuid = by_name.get(name.rpartition("@")[0])
                    descriptor = self._folder.open_in(folder, name) if uuid is not None else None
                    if uuid is None or descriptor is None:
                        continue
                    claim = _read(descriptor, folder.user)
                    os.close(descriptor)
                    if claim is not None:
                        claims.setdefault(uuid, []).append(claim)
                    elif folder.user == os.getuid():
                        with contextlib.suppress(OSError):
                            os.unlink(name, dir_fd=folder.descriptor)
        return claims

    def _taken_earlier(self, uuid: str, shared: bool) -> tuple[int, ...] | None:
        """Take the lock file of earlier versions, too, where it exists; return None when one of their tasks excludes this one."""
        descriptor = self._folder.open_earlier(_name(uuid))
        if descriptor is None:
            return ()
        if try_lock(descriptor):
            os.pwrite(descriptor, json.dumps({"home": self._home, "user": name_of(os.getuid())}).encode().ljust(_MARK), 0)
            if not shared or try_lock(descriptor, shared=True):
                return (descriptor,)
        elif shared and try_lock(descriptor, shared=True) and _mark(descriptor).get("home") == self._home:
            return (descriptor,)
        os.close(descriptor)
        return None

    def _excluded_earlier(self, uuid: str, shared: bool) -> bool:
        with self._earlier(uuid) as descriptor:
            if descriptor is None or not is_locked(descriptor):
                return False
            if not shared or is_locked(descriptor, exclusively=True):
                return True
            return _mark(descriptor).get("home") != self._home

    def _earlier_holder(self, uuid: str) -> str:
        """Return the holder of a lock file of an earlier version. A task of this version locks both that file and a claim."""
        with self._earlier(uuid) as descriptor:
            if descriptor is None or not is_locked(descriptor) or _mark(descriptor).get("home") == self._home:
                return ""
            user = name_of(os.fstat(descriptor).st_uid)
            return f"another fairway home (lock file {self._folder.path / _name(uuid)} of user {user})"

    @contextlib.contextmanager
    def _earlier(self, uuid: str) -> Iterator[int | None]:
        descriptor = self._folder.open_earlier(_name(uuid))
        try:
            yield descriptor
        finally:
            if descriptor is not None:
                os.close(descriptor)


def _read(descriptor: int, user: int) -> DeviceClaim | None:
    """Return the claim in a file; None when its lock is gone."""
    if not is_locked(descriptor, exclusively=True):
        return None
    mark = _mark(descriptor)
    # A claim that cannot be decoded excludes all others: its owner does hold the lock.
    return DeviceClaim(user, str(mark.get("home", "")), mark.get("shared") is True, _file(descriptor))


def _mark(descriptor: int) -> dict[str, object]:
    try:
        mark = json.loads(os.pread(descriptor, _MARK, 0) or b"{}")
    except (ValueError, RecursionError):
        return {}
    return mark if isinstance(mark, dict) else {}


def _file(descriptor: int) -> tuple[int, int]:
    state = os.fstat(descriptor)
    return state.st_dev, state.st_ino


def _name(uuid: str) -> str:
    return "device-" + "".join(letter if letter.isalnum() or letter in "-_." else "_" for letter in uuid)[:100]
