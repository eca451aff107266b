"""Content by its digest: each blob is one read-only file, `sha256/ab/cdef...`, written once."""

from __future__ import annotations

import ctypes
import hashlib
import os
import secrets
from collections.abc import Iterable
from pathlib import Path

from fairway.app import crash
from fairway.errors import BugError, NotFoundError, RefusedError

_BLOCK = 1 << 20
_FEW = 8
"""Files up to this many are synced one by one; more with one sync of the file system, which is far cheaper."""
_DIGEST_LENGTH = 64


class Blobs:
    """A folder of blobs.

    Promises:
    1. A blob that has a name is whole and on the disk, whatever crashed while it was written.
    2. The same content is kept once. Any number of writers may put it at the same time.
    3. Nothing is ever changed under its name.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self._aside = root / "aside"

    def path(self, digest: str) -> Path:
        """Where a blob lies, or would lie."""
        if len(digest) != _DIGEST_LENGTH or not all(char in "0123456789abcdef" for char in digest):
            message = f"{digest!r} is no SHA-256 digest"
            raise BugError(message)
        return self.root / "sha256" / digest[:2] / digest[2:]

    def has(self, digest: str) -> bool:
        """Whether it is there."""
        return self.path(digest).exists()

    def read(self, digest: str) -> bytes:
        """The content of a small blob."""
        try:
            return self.path(digest).read_bytes()
        except FileNotFoundError:
            message = f"blob {digest[:12]} is not in {self.root}"
            raise NotFoundError(message, fix="submit or add it again") from None

    def put(self, data: bytes) -> str:
        """Keep some bytes; their digest."""
        digest = hashlib.sha256(data).hexdigest()
        if not self.has(digest):
            aside = self._new_aside()
            aside.write_bytes(data)
            self._publish([(aside, digest)])
        return digest

    def put_files(self, paths: Iterable[Path]) -> dict[Path, tuple[str, int]]:
        """Keep the content of files; digest and size of what was read, for each."""
        found: dict[Path, tuple[str, int]] = {}
        waiting: list[tuple[Path, str]] = []
        try:
            for path in paths:
                aside = self._new_aside()
                found[path] = digest, _ = _copied(path, aside)
                if self.has(digest):
                    aside.unlink()
                else:
                    waiting.append((aside, digest))
            self._publish(waiting)
        finally:
            for aside, _ in waiting:
                aside.unlink(missing_ok=True)
        return found

    def _new_aside(self) -> Path:
        self._aside.mkdir(mode=0o700, parents=True, exist_ok=True)
        return self._aside / secrets.token_hex(12)

    def _publish(self, written: list[tuple[Path, str]]) -> None:
        """Content first, names second: a crash in between leaves files aside, never a name with half a content."""
        _sync([path for path, _ in written])
        folders = set()
        for aside, digest in written:
            target = self.path(digest)
            target.parent.mkdir(parents=True, exist_ok=True)
            aside.chmod(0o444)
            with crash.reach("registry.rename"):
                os.rename(aside, target)
            folders.add(target.parent)
        _sync(list(folders))


def _copied(source: Path, target: Path) -> tuple[str, int]:
    """Copy while reading the digest: what is kept is what was digested, also if the source changes meanwhile."""
    digest, size = hashlib.sha256(), 0
    try:
        with source.open("rb") as reader, target.open("wb") as writer:
            while block := reader.read(_BLOCK):
                digest.update(block)
                size += writer.write(block)
    except FileNotFoundError:
        message = f"{source} went away while it was read"
        raise RefusedError(message, fix="try again when nothing changes the folder") from None
    except PermissionError:
        message = f"{source} cannot be read"
        raise RefusedError(message, fix="change its mode, or leave it out with .fairwayignore") from None
    return digest.hexdigest(), size


def digest_file(path: Path) -> str:
    """The digest of a file's content, keeping nothing."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _sync(paths: list[Path]) -> None:
    if not paths:
        return
    few = paths if len(paths) <= _FEW else paths[:1]
    for path in few:
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            if few is paths:
                os.fsync(handle)
            elif _syncfs(handle) != 0:
                os.sync()
        finally:
            os.close(handle)


def _syncfs(handle: int) -> int:
    library = ctypes.CDLL(None, use_errno=True)
    return int(library.syncfs(handle)) if hasattr(library, "syncfs") else -1
