"""Locks that live as long as somebody holds their descriptor, wherever it was passed to.

Open-file-description locks: they travel through fork and through sockets, the kernel drops them with
the last copy however its holder died, and whether one is held can be asked without taking it.
"""

from __future__ import annotations

import fcntl
import json
import os
import pwd
import struct
from pathlib import Path

from fairway.errors import RefusedError

_FLOCK = struct.Struct("hhqqi4x")
"""Kind, whence, start, length, process."""


def try_lock(descriptor: int, start: int = 0, *, shared: bool = False) -> bool:
    """Take one byte of the file, or not. Taking again what one has changes it between shared and exclusive."""
    try:
        fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, _request(fcntl.F_RDLCK if shared else fcntl.F_WRLCK, start))
    except (BlockingIOError, PermissionError):
        return False
    return True


def unlock(descriptor: int, start: int = 0) -> None:
    """Let go of one byte."""
    fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, _request(fcntl.F_UNLCK, start))


def is_held(path: Path | str, start: int = 0, *, exclusively: bool = False) -> bool:
    """Whether anybody holds that byte of the file, or only whether somebody has it alone. Asking disturbs nobody."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError:
        return False
    try:
        answer = fcntl.fcntl(descriptor, fcntl.F_OFD_GETLK, _request(fcntl.F_RDLCK if exclusively else fcntl.F_WRLCK, start))
    finally:
        os.close(descriptor)
    return bool(_FLOCK.unpack(answer)[0] != fcntl.F_UNLCK)


def take(path: Path) -> int | None:
    """Take a lock of our own; its descriptor, or None when somebody has it."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    if try_lock(descriptor):
        return descriptor
    os.close(descriptor)
    return None


def release(descriptor: int) -> None:
    """Let go of a lock for good."""
    os.close(descriptor)


def _request(kind: int, start: int) -> bytes:
    return _FLOCK.pack(kind, os.SEEK_SET, start, 1, 0)


class MachineFolder:
    """A folder that all homes and users of this machine share. Nobody can remove another's files in it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._there = False
        """Whether it was found to be a folder; nobody but its owner can change that afterwards."""

    def open(self, name: str) -> int:
        """Open a file of the folder for everybody, made where it is missing."""
        if not self._there or not os.path.isdir(self.path):
            self._make()
            self._there = True
        path = self.path / name
        for _ in range(10):
            try:
                # Without O_CREAT: the kernel forbids it for others' files in a shared folder.
                return os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
            except FileNotFoundError:
                pass
            try:
                descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o666)
            except FileExistsError:
                continue
            os.fchmod(descriptor, 0o666)
            return descriptor
        message = f"the lock file {path} comes and goes"
        raise RefusedError(message, fix="look who removes it")

    def refresh(self) -> None:
        """Keep cleaners of old temporary files away: a lock file removed under its holder protects nobody."""
        try:
            for entry in os.scandir(self.path):
                os.utime(entry.path)
        except OSError:
            # Others' files can only be kept fresh by others.
            return

    def _make(self) -> None:
        try:
            self.path.mkdir(mode=0o1777, parents=True)
            self.path.chmod(0o1777)
        except FileExistsError:
            if self.path.is_symlink() or not self.path.is_dir():
                message = f"{self.path} is no folder, and locks that all users share must lie in it"
                raise RefusedError(message, fix="remove it, or set FAIRWAY_MACHINE_DIR") from None


class DeviceLocks:
    """Who holds which device, over all homes and users of the machine."""

    def __init__(self, folder: MachineFolder, home: str) -> None:
        self._folder = folder
        self._home = home

    def take(self, uuid: str, *, shared: bool) -> int | None:
        """Hold a device, whole or shared with other tasks of this home; None when it is held otherwise."""
        descriptor = self._folder.open(_name(uuid))
        if try_lock(descriptor):
            os.pwrite(descriptor, self._mark(), 0)
            if not shared or try_lock(descriptor, shared=True):
                return descriptor
        elif shared and try_lock(descriptor, shared=True) and _read_mark(descriptor).get("home") == self._home:
            return descriptor
        os.close(descriptor)
        return None

    def is_shared(self, uuid: str) -> bool:
        """Whether anybody shares the device."""
        path = self._folder.path / _name(uuid)
        return is_held(path) and not is_held(path, exclusively=True)

    def foreign_holder(self, uuid: str) -> str:
        """Who holds the device besides this home, in words; empty when nobody."""
        path = self._folder.path / _name(uuid)
        try:
            if not is_held(path):
                return ""
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        except OSError:
            return ""
        try:
            mark = _read_mark(descriptor)
        finally:
            os.close(descriptor)
        if mark.get("home") == self._home:
            return ""
        return f"another fairway home of user {mark.get('user', 'unknown')}"

    def _mark(self) -> bytes:
        """Who we are, padded so that nothing of the one before is left."""
        return json.dumps({"home": self._home, "user": _user()}).encode().ljust(256)


def _read_mark(descriptor: int) -> dict[str, str]:
    try:
        found = json.loads(os.pread(descriptor, 256, 0) or b"{}")
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _name(uuid: str) -> str:
    return "device-" + "".join(letter if letter.isalnum() or letter in "-_." else "_" for letter in uuid)


def _user() -> str:
    try:
        return pwd.getpwuid(os.getuid()).pw_name[:100]
    except KeyError:
        return str(os.getuid())
