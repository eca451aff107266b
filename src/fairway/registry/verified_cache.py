"""Records which blobs were compared with their digest: a cache by inode, size and times, so that no blob is hashed twice."""

from __future__ import annotations

import hashlib
import os
import time
from pathlib import Path

SETTLED = 2.0
"""Seconds; a file written more recently may be written again without a change of its times."""

_TAG = 8
_WAYS = 8
_BUCKETS = 1 << 17
_EMPTY = bytes(_TAG)


class VerifiedBlobCache:
    """A file of fixed size, 8 MiB with holes: a table of buckets, by digest. A tag stands for a digest and a file's state.

    Any number of processes use it at once without a lock. An entry that is lost, overwritten, torn or damaged matches nothing,
    so that its blob is hashed again. Errors of the file system have the same effect.
    """

    def __init__(self, path: Path) -> None:
        self._path = os.fspath(path)

    def knows(self, digest: str, state: os.stat_result) -> bool:
        """Return whether the file in this state was compared with this digest and found equal."""
        try:
            handle = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return False
        try:
            return _tag(digest, state) in _tags(os.pread(handle, _TAG * _WAYS, _offset(digest)))
        except OSError:
            return False
        finally:
            os.close(handle)

    def note(self, digest: str, state: os.stat_result, *, instead: os.stat_result | None = None) -> None:
        """Record that the file in this state has this digest, `instead` of an earlier state of the same file.

        A file that was written a moment ago is not recorded: a second write could leave the same times.
        """
        if state.st_mtime_ns > time.time_ns() - int(SETTLED * 1e9):
            return
        tag = _tag(digest, state)
        self._put(digest, tag, _tag(digest, instead) if instead is not None else _EMPTY)

    def forget(self, digest: str, state: os.stat_result) -> None:
        """Remove the record of the file in this state."""
        if self.knows(digest, state):
            self._put(digest, _EMPTY, _tag(digest, state))

    def _put(self, digest: str, tag: bytes, instead: bytes) -> None:
        """Write a tag into its bucket: over the one that it replaces, else into an empty slot, else over any."""
        start = _offset(digest)
        try:
            handle = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError:
            return
        try:
            tags = _tags(os.pread(handle, _TAG * _WAYS, start))
            if tag != _EMPTY and tag in tags:
                return
            slots = [at for at, current in enumerate(tags) if current == instead] or [
                at for at, current in enumerate(tags) if current == _EMPTY
            ]
            os.pwrite(handle, tag, start + _TAG * (slots[0] if slots else tag[0] % _WAYS))
        except OSError:
            return
        finally:
            os.close(handle)


def _offset(digest: str) -> int:
    return int(digest[:8], 16) % _BUCKETS * _TAG * _WAYS


def _tag(digest: str, state: os.stat_result) -> bytes:
    text = f"{digest} {state.st_dev} {state.st_ino} {state.st_size} {state.st_mtime_ns} {state.st_ctime_ns}"
    return hashlib.blake2b(text.encode(), digest_size=_TAG).digest()


def _tags(bucket: bytes) -> list[bytes]:
    whole = bucket.ljust(_TAG * _WAYS, b"\0")
    return [whole[at : at + _TAG] for at in range(0, _TAG * _WAYS, _TAG)]
