"""Content by its digest: each blob is one read-only file, `sha256/ab/cdef...`, written once."""

from __future__ import annotations

import ctypes
import hashlib
import os
import re
import secrets
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from fairway.app import crash
from fairway.errors import BugError, NotFoundError, RefusedError

_BLOCK = 1 << 20
_FEW = 8
"""Files up to this many are synced one by one; more with one sync of the file system, which is far cheaper."""
_DIGEST = re.compile(r"[0-9a-f]{64}")


class Blobs:
    """A folder of blobs.

    Promises:
    1. A blob that has a name is whole and on the disk, whatever crashed while it was written.
    2. The same content is kept once. Any number of writers may put it at the same time.
    3. Nothing is ever changed under its name.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        # Texts, not paths: a folder of code has thousands of files, and each passes here several times.
        self._named = os.path.join(root, "sha256")
        self._aside = os.path.join(root, "aside")

    def path(self, digest: str) -> Path:
        """Where a blob lies, or would lie."""
        return Path(self.place(digest))

    def place(self, digest: str) -> str:
        """The path as text."""
        if not _DIGEST.fullmatch(digest):
            message = f"{digest!r} is no SHA-256 digest"
            raise BugError(message)
        return f"{self._named}/{digest[:2]}/{digest[2:]}"

    def has(self, digest: str) -> bool:
        """Whether it is there."""
        return os.path.exists(self.place(digest))

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
            with _folder_aside(self._aside) as folder:
                aside = os.path.join(folder, digest)
                with open(aside, "xb", opener=_read_only) as file:
                    file.write(data)
                self._publish({digest: aside})
        return digest

    def put_files(self, paths: Iterable[Path]) -> dict[Path, tuple[str, int]]:
        """Keep the content of files; digest and size of what was read, for each."""
        found: dict[Path, tuple[str, int]] = {}
        waiting: dict[str, str] = {}
        with _folder_aside(self._aside) as folder:
            for number, path in enumerate(paths):
                aside = f"{folder}/{number}"
                found[path] = digest, _ = _copied(path, aside)
                if digest in waiting or self.has(digest):
                    os.unlink(aside)
                else:
                    waiting[digest] = aside
            self._publish(waiting)
        return found

    def _publish(self, written: dict[str, str]) -> None:
        """Content first, names second: a crash in between leaves files aside, never a name with half a content."""
        _sync(list(written.values()))
        folders = set()
        for digest, aside in written.items():
            target = self.place(digest)
            folder = os.path.dirname(target)
            if folder not in folders:
                os.makedirs(folder, exist_ok=True)
                folders.add(folder)
            with crash.reach("registry.rename"):
                os.rename(aside, target)
        _sync(list(folders))


@contextmanager
def _folder_aside(parent: str) -> Iterator[str]:
    """A folder of our own to write in, gone afterwards."""
    folder = os.path.join(parent, secrets.token_hex(12))
    os.makedirs(folder, mode=0o700)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _copied(source: Path, target: str) -> tuple[str, int]:
    """Copy while reading the digest: what is kept is what was digested, also if the source changes meanwhile."""
    digest, size = hashlib.sha256(), 0
    try:
        with open(source, "rb", buffering=0) as reader, open(target, "xb", buffering=0, opener=_read_only) as writer:
            while block := reader.read(_BLOCK):
                digest.update(block)
                size += len(block)
                while block:
                    block = block[writer.write(block) :]
    except FileNotFoundError:
        message = f"{source} went away while it was read"
        raise RefusedError(message, fix="try again when nothing changes the folder") from None
    except PermissionError:
        message = f"{source} cannot be read"
        raise RefusedError(message, fix="change its mode, or leave it out with .fairwayignore") from None
    return digest.hexdigest(), size


def _read_only(path: str, flags: int) -> int:
    """Nobody writes to a blob again, whatever the umask."""
    return os.open(path, flags | os.O_CLOEXEC, 0o444)


def digest_file(path: Path) -> str:
    """The digest of a file's content, keeping nothing."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _sync(paths: list[str]) -> None:
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
