"""Folders shared by all users of a machine: each user has a folder of lock files that others can read but not write.

    FOLDER/UID            where an administrator created FOLDER (it belongs to root)
    FOLDER-UID            beside it everywhere else: in /tmp only its owner can rename or remove it
    ...-UID-1a2b3c4d      where another user took the plain name first
    FOLDER/device-*, FOLDER/ports      files of earlier versions, writable by all users

Promises:

1. No user can create, replace, remove or lock (exclusively) a file that another user needs.
2. A pipe, a folder, a link or a foreign file in place of a lock costs that lock alone: it is ignored with a warning.
   Nothing here waits for another user.
3. A folder counts only when its owner is the user in its name.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import os
import pwd
import re
import secrets
import stat
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from fairway.engines.local.file_lock import SAFE, open_regular
from fairway.errors import RefusedError

_log = logging.getLogger(__name__)
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | SAFE
_SUFFIX = r"(\d{1,10})(?:-[0-9a-f]{8})?"
_MOST_FOLDERS = 4
"""Limit of folders read per user; more are ignored."""
_MOST_FILES = 2048
"""Limit of files read per folder; a user who creates more hides their own locks."""
_MOST_WARNINGS = 20
"""Limit of warnings per user."""
_CRASHED = 60.0
"""Seconds after which an unpublished file counts as left over from a crash."""
_ATTEMPTS = 10


@dataclass(frozen=True, slots=True)
class UserFolder:
    """The open folder of one user."""

    descriptor: int
    path: Path
    user: int

    def names(self, prefix: str) -> list[str]:
        """Return the names of its files with this prefix."""
        with os.scandir(self.descriptor) as entries:
            return [entry.name for entry in itertools.islice(entries, _MOST_FILES) if entry.name.startswith(prefix)]


class MachineFolder:
    """The folders of all users of this machine."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._own: Path | None = None
        self._warnings: dict[str, str] = {}
        self._culprits: Counter[int] = Counter()

    @property
    def warnings(self) -> tuple[str, ...]:
        """Messages about ignored files that still exist."""
        missing = [path for path in self._warnings if not os.path.lexists(path)]
        if missing:
            self._warnings = {path: words for path, words in self._warnings.items() if path not in missing}
            self._culprits.clear()
        return tuple(self._warnings.values())

    def warn(self, path: Path | str, why: str) -> None:
        """Record, and log once, that a file is ignored. The number of warnings per user is limited."""
        if str(path) in self._warnings:
            return
        with contextlib.suppress(OSError):
            culprit = os.lstat(path).st_uid
            if self._culprits[culprit] < _MOST_WARNINGS:
                self._culprits[culprit] += 1
                self._warnings[str(path)] = f"{path} is ignored: {why}"
                _log.warning("%s", self._warnings[str(path)])

    def own(self) -> Path:
        """Return the folder of this user; create it with mode 0755 if missing."""
        if self._own is not None and _belongs(self._own, os.getuid()):
            return self._own
        with self.folders() as folders:
            own_folders = [folder.path for folder in folders if folder.user == os.getuid()]
        self._own = min(own_folders, key=lambda path: (len(path.name), path.name)) if own_folders else self._make()
        return self._own

    def create(self) -> tuple[int, Path]:
        """Create a file that only this user can open, to be locked and then published."""
        path = self.own() / f".{secrets.token_hex(8)}"
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | SAFE, 0o600), path

    @staticmethod
    def publish(descriptor: int, path: Path, name: str) -> Path:
        """Make a file readable by all users, under its name. It was locked before, so that no other user can lock it first."""
        os.fchmod(descriptor, 0o644)
        target = path.with_name(name)
        os.rename(path, target)
        return target

    @contextlib.contextmanager
    def folders(self) -> Iterator[list[UserFolder]]:
        """Open the folders of all users. Folders that do not belong to the user in their name are ignored."""
        opened: list[UserFolder] = []
        counts: dict[int, int] = {}
        try:
            for path, user in self._named():
                if counts.get(user, 0) > _MOST_FOLDERS:
                    continue
                descriptor = self._open(path, user)
                if descriptor is None:
                    continue
                counts[user] = counts.get(user, 0) + 1
                opened.append(UserFolder(descriptor, path, user))
                if counts[user] > _MOST_FOLDERS:
                    os.close(opened.pop().descriptor)
                    self.warn(path, f"user {user} has more than {_MOST_FOLDERS} such folders")
            yield opened
        finally:
            for folder in opened:
                os.close(folder.descriptor)

    def open_in(self, folder: UserFolder, name: str) -> int | None:
        """Open a user's file for reading; return None when it is missing or not that user's regular file."""
        try:
            return open_regular(name, folder=folder.descriptor, owner=folder.user)
        except FileNotFoundError:
            return None
        except OSError as problem:
            self.warn(folder.path / name, problem.strerror or str(problem))
            return None

    def open_earlier(self, name: str) -> int | None:
        """Open a file that earlier versions created, writable by all users; None when there is none."""
        try:
            folder = os.open(self.path, _FOLDER)
        except OSError:
            return None
        try:
            return open_regular(name, os.O_RDWR, folder=folder)
        except FileNotFoundError:
            return None
        except OSError as problem:
            self.warn(self.path / name, problem.strerror or str(problem))
            return None
        finally:
            os.close(folder)

    def refresh(self) -> None:
        """Touch the lock files, so that cleaners of temporary files keep them: a lock on a removed file is void."""
        with contextlib.suppress(OSError, RefusedError):
            own = self.own()
            os.utime(own)
            for entry in os.scandir(own):
                if entry.name.startswith(".") and entry.stat(follow_symlinks=False).st_mtime < os.stat(own).st_mtime - _CRASHED:
                    # A crash came between its creation and its publication.
                    os.unlink(entry.path)
                else:
                    os.utime(entry.path, follow_symlinks=False)
        with contextlib.suppress(OSError):
            for entry in itertools.islice(os.scandir(self.path), _MOST_FILES):
                if entry.is_file(follow_symlinks=False):
                    with contextlib.suppress(OSError):
                        os.utime(entry.path, follow_symlinks=False)

    def _named(self) -> Iterator[tuple[Path, int]]:
        """Yield the paths that are named like a user's folder, with the user id."""
        places = ((self.path, re.compile(_SUFFIX)), (self.path.parent, re.compile(re.escape(self.path.name) + "-" + _SUFFIX)))
        for place, pattern in places:
            try:
                with os.scandir(place) as entries:
                    names = sorted(entry.name for entry in entries if pattern.fullmatch(entry.name))
            except OSError:
                continue
            for name in names:
                match = pattern.fullmatch(name)
                assert match is not None
                yield place / name, int(match[1])

    def _open(self, path: Path, user: int) -> int | None:
        try:
            descriptor = os.open(path, _FOLDER)
        except FileNotFoundError:
            return None
        except OSError as problem:
            self.warn(path, "it is not a folder" if isinstance(problem, NotADirectoryError) else problem.strerror or str(problem))
            return None
        owner = os.fstat(descriptor).st_uid
        if owner == user:
            return descriptor
        os.close(descriptor)
        self.warn(path, f"it is named after user {user} but belongs to user {owner}")
        return None

    def _make(self) -> Path:
        base = str(self.path) + ("/" if _belongs(self.path, 0) else "-")
        with contextlib.suppress(OSError):
            self.path.parent.mkdir(parents=True, exist_ok=True)
        path = Path(f"{base}{os.getuid()}")
        for _ in range(_ATTEMPTS):
            try:
                path.mkdir(mode=0o755)
            except FileExistsError:
                if _belongs(path, os.getuid()):
                    return path
                # Another user took the name first.
                path = Path(f"{base}{os.getuid()}-{secrets.token_hex(4)}")
                continue
            except OSError as problem:
                message = f"the folder {path} for locks shared by all users of this machine cannot be created: {problem.strerror}"
                fix = "set FAIRWAY_MACHINE_DIR to a path in a folder that all users can write, such as /var/tmp/fairway-machine"
                raise RefusedError(message, fix=fix) from problem
            path.chmod(0o755)
            return path
        message = f"all names tried for a folder beside {self.path} are taken"
        raise RefusedError(message, fix="set FAIRWAY_MACHINE_DIR to a path in another folder that all users can write")


def name_of(user: int) -> str:
    """Return the name of a user, or the number if there is no name."""
    try:
        return pwd.getpwuid(user).pw_name[:100]
    except KeyError:
        return str(user)


def _belongs(path: Path, user: int) -> bool:
    """Return whether the path is a folder of this user and not a symbolic link."""
    try:
        state = os.lstat(path)
    except OSError:
        return False
    return stat.S_ISDIR(state.st_mode) and state.st_uid == user
