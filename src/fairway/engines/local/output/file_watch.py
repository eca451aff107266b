"""Wakes a reader when files change: by inotify where available, else by polling.

All readers of a process share one inotify handle: the kernel allows a user only a hundred or so.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import struct
import sys
from collections.abc import Callable
from pathlib import Path

_IN_MODIFY = 0x2
_IN_MOVED_TO = 0x80
_IN_CREATE = 0x100
_IN_IGNORED = 0x8000
_EVENT = struct.Struct("iIII")
_READ = 64 * 1024

POLL = 0.05
"""Polling interval for paths that inotify does not watch, in seconds."""


class FileWatcher:
    """Creates subscriptions that share one inotify handle, opened with the first and closed with the last."""

    def __init__(self, inotify: bool = sys.platform == "linux") -> None:
        self._wanted = inotify
        self._notify: _Inotify | None = None
        self._users = 0

    def subscribe(self) -> FileSubscription:
        """Return a new subscription; close it after use. Call within the event loop that will wait on it."""
        if self._wanted and self._notify is None:
            self._notify = _Inotify.open(asyncio.get_running_loop())
        self._users += 1
        return FileSubscription(self._notify, self._release)

    def _release(self) -> None:
        self._users -= 1
        if self._users == 0 and self._notify is not None:
            self._notify.close()
            self._notify = None


class FileSubscription:
    """The paths that one reader watches. Changes while it is not waiting are kept."""

    def __init__(self, notify: _Inotify | None, release: Callable[[], None]) -> None:
        self._notify = notify
        self._release = release
        self._dirty: set[Path] = set()
        self._event = asyncio.Event()
        self._watched: set[Path] = set()
        self._polled: dict[Path, tuple[int, int, int] | None] = {}

    def watch(self, path: Path) -> None:
        """Wake when this file grows, or when an entry is created in this folder. Repeated calls are harmless."""
        if path in self._watched or path in self._polled:
            return
        if self._notify is not None and self._notify.add(path, self):
            self._watched.add(path)
        else:
            self._polled[path] = _signature(path)

    def unwatch(self, path: Path) -> None:
        """Stop watching a path."""
        self._polled.pop(path, None)
        if path in self._watched:
            self._watched.discard(path)
            if self._notify is not None:
                self._notify.remove(path, self)

    def touch(self, path: Path | None = None) -> None:
        """Wake now, as if the path had changed."""
        if path is not None:
            self._dirty.add(path)
        self._event.set()

    def lost(self, path: Path) -> None:
        """Take in that a watched file was removed; a new file of its name must be watched anew."""
        self._watched.discard(path)
        self.touch(path)

    async def wait(self, timeout: float) -> set[Path]:
        """Return the paths that changed since the last call; empty after a timeout or a wake without a path."""
        deadline = asyncio.get_running_loop().time() + timeout
        while not self._event.is_set():
            seconds_left = deadline - asyncio.get_running_loop().time()
            if seconds_left <= 0:
                break
            await self._pause(min(seconds_left, POLL) if self._polled else seconds_left)
            self._poll()
        self._event.clear()
        changed, self._dirty = self._dirty, set()
        return changed

    def close(self) -> None:
        """Stop watching everything."""
        for path in tuple(self._watched):
            self.unwatch(path)
        self._polled.clear()
        self._release()

    async def _pause(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._event.wait()
        except TimeoutError:
            return

    def _poll(self) -> None:
        for path, before in self._polled.items():
            now = _signature(path)
            if now != before:
                self._polled[path] = now
                self.touch(path)


def _signature(path: Path) -> tuple[int, int, int] | None:
    try:
        state = os.stat(path)
    except OSError:
        return None
    return state.st_ino, state.st_size, state.st_mtime_ns


class _Inotify:
    """The inotify handle, and the subscriptions by path."""

    def __init__(self, library: ctypes.CDLL, handle: int, loop: asyncio.AbstractEventLoop) -> None:
        self._library = library
        self._handle = handle
        self._loop = loop
        self._descriptors: dict[Path, int] = {}
        self._paths: dict[int, Path] = {}
        self._readers: dict[Path, set[FileSubscription]] = {}
        loop.add_reader(handle, self._read)

    @classmethod
    def open(cls, loop: asyncio.AbstractEventLoop) -> _Inotify | None:
        """Open a handle; return None when the kernel has none left for this user."""
        library = ctypes.CDLL(None, use_errno=True)
        handle = library.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        return cls(library, handle, loop) if handle >= 0 else None

    def close(self) -> None:
        self._loop.remove_reader(self._handle)
        os.close(self._handle)

    def add(self, path: Path, reader: FileSubscription) -> bool:
        """Watch a path. Return False when the kernel refuses: the path does not exist, or there are too many watches."""
        if path not in self._descriptors:
            # A folder reports new names only: the files in it that matter are watched by themselves.
            mask = _IN_CREATE | _IN_MOVED_TO if path.is_dir() else _IN_MODIFY
            descriptor = self._library.inotify_add_watch(self._handle, os.fsencode(path), ctypes.c_uint32(mask))
            if descriptor < 0:
                return False
            self._descriptors[path] = descriptor
            self._paths[descriptor] = path
        self._readers.setdefault(path, set()).add(reader)
        return True

    def remove(self, path: Path, reader: FileSubscription) -> None:
        readers = self._readers.get(path, set())
        readers.discard(reader)
        if not readers and path in self._descriptors:
            descriptor = self._forget(path)
            self._library.inotify_rm_watch(self._handle, descriptor)

    def _forget(self, path: Path) -> int:
        self._readers.pop(path, None)
        descriptor = self._descriptors.pop(path)
        self._paths.pop(descriptor, None)
        return descriptor

    def _read(self) -> None:
        try:
            data = os.read(self._handle, _READ)
        except BlockingIOError:
            return
        at = 0
        while at < len(data):
            descriptor, mask, _, length = _EVENT.unpack_from(data, at)
            at += _EVENT.size + length
            if descriptor < 0:
                self._overflowed()
                continue
            path = self._paths.get(descriptor)
            if path is None:
                continue
            if mask & _IN_IGNORED:
                for reader in tuple(self._readers.get(path, ())):
                    reader.lost(path)
                self._forget(path)
                continue
            for reader in self._readers.get(path, ()):
                reader.touch(path)

    def _overflowed(self) -> None:
        """Wake all readers: the kernel dropped events, so that anything may have changed."""
        for path, readers in self._readers.items():
            for reader in readers:
                reader.touch(path)
