"""Content by its digest: each blob is one read-only file, `sha256/ab/cdef...`, written once."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import hashlib
import os
import re
import secrets
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from fairway.app.system import crash_point
from fairway.errors import BugError, DamagedError, NotFoundError, RefusedError, UnavailableError
from fairway.registry.verified_cache import SETTLED, VerifiedBlobCache

_BLOCK = 1 << 20
"""Files up to this size are read whole. For larger ones, the sizes of known blobs decide whether to hash before copying."""
SEEN = "seen"
"""The folder in which snapshots record the files that they have read."""
_FEW = 8
"""Up to this many files are synced one by one; more with one sync of the file system, which is far cheaper."""
_LOCK = "lock"
_CHECKED = "checked"
MISSING = "it is missing"
_ON_ITS_WAY = 3600.0
"""Limit on the seconds between a snapshot of code and the record of its run; usually milliseconds."""
_DIGEST = re.compile(r"[0-9a-f]{64}")


class BlobStore:
    """A folder of blobs.

    Guarantees:
    1. A blob that has a name is complete and on disk, whatever crashed while it was written.
    2. The same content is kept once. Any number of writers may put it at the same time.
    3. Nothing is ever changed under its name, except damaged content: a good copy that is put replaces its file.
    4. Existing content is read once when it is put again, and nothing is written.
    5. What was put within `writing` is not removed before its end, nor soon after, by any process.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        # Strings, not paths: a folder of code has thousands of files, and each passes here several times.
        self._named = os.path.join(root, "sha256")
        self._aside = os.path.join(root, "aside")
        self._sizes = os.path.join(root, "sizes")
        self._checked = VerifiedBlobCache(root / _CHECKED)
        self._on_its_way: dict[str, float] = {}
        """Manifests that this process put without a record, with the time of each."""

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Hold the shared lock from the first put until a record names the content: nothing is removed meanwhile."""
        with self._holding(fcntl.LOCK_SH):
            yield

    @contextmanager
    def alone(self) -> Iterator[bool]:
        """Try to take the exclusive lock, which keeps out writers of all processes; yields whether it was acquired."""
        try:
            with self._holding(fcntl.LOCK_EX | fcntl.LOCK_NB):
                yield True
        except BlockingIOError:
            yield False

    def expect_record(self, digest: str) -> None:
        """Expect a record that names this manifest after `writing`: that of the run whose code it is."""
        self._on_its_way[digest] = time.monotonic()

    def expected(self) -> list[str]:
        """Return the manifests whose record may still be written."""
        now = time.monotonic()
        return [digest for digest, at in list(self._on_its_way.items()) if at > now - _ON_ITS_WAY]

    @contextmanager
    def _holding(self, how: int) -> Iterator[None]:
        os.makedirs(self.root, mode=0o700, exist_ok=True)
        handle = os.open(self.root / _LOCK, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(handle, how)
            yield
        finally:
            os.close(handle)

    def path(self, digest: str) -> Path:
        """Return the path of a blob, whether or not it exists."""
        return Path(self.place(digest))

    def place(self, digest: str) -> str:
        """Return the path of a blob as text."""
        if not _DIGEST.fullmatch(digest):
            message = f"{digest!r} is not a SHA-256 digest"
            raise BugError(message)
        return f"{self._named}/{digest[:2]}/{digest[2:]}"

    def has(self, digest: str) -> bool:
        """Return whether a file exists at the blob's path. `intact` checks whether that is the content."""
        return os.path.exists(self.place(digest))

    def intact(self, digest: str) -> bool:
        """Return whether the blob exists and has its digest."""
        return not self.fault(digest)

    def fault(self, digest: str, *, anew: bool = False, read: Callable[[int], None] = lambda _count: None) -> str:
        """Return what is wrong with a blob, in words; empty if it exists and has its digest.

        A blob that was compared before and has the same inode, size and times since is not read, unless `anew`. `read` is
        called with the number of bytes of each block that was read.
        """
        path = self.place(digest)
        try:
            state = os.stat(path)
            if not anew and self._checked.knows(digest, state):
                return ""
            actual, _ = _digested(path, read)
            after = os.stat(path)
        except FileNotFoundError:
            return MISSING
        except OSError as error:
            return f"it cannot be read ({error.strerror})"
        if actual != digest:
            if not _same_file(state, after):
                # A good copy has replaced it in the meantime.
                return self.fault(digest, anew=anew, read=read)
            self._checked.forget(digest, state)
            # Snapshots do not put files again that they have recorded.
            self._forget_seen()
            return f"its content has SHA-256 {actual[:12]}, not {digest[:12]}"
        if _same_file(state, after):
            self._checked.note(digest, after)
        return ""

    def read(self, digest: str) -> bytes:
        """Return the content of a small blob, compared with its digest."""
        try:
            data = self.path(digest).read_bytes()
        except FileNotFoundError:
            message = f"blob {digest[:12]} is not in {self.root}"
            raise NotFoundError(message, fix="submit or add it again") from None
        actual = hashlib.sha256(data).hexdigest()
        if actual != digest:
            message = f"blob {digest[:12]} is damaged in {self.root}: its content has SHA-256 {actual[:12]}"
            raise DamagedError(message, fix="submit or add it again")
        return data

    def link(self, digest: str, target: str) -> None:
        """Link a blob's own file to another path.

        That changes one of the file's times, which is no reason to hash it again.
        """
        path = self.place(digest)
        before = os.stat(path)
        os.link(path, target)
        after = os.stat(target)
        if _same_file(before, after) and self._checked.knows(digest, before):
            self._checked.note(digest, after, instead=before)

    def put(self, data: bytes) -> str:
        """Store some bytes; return their digest."""
        digest = hashlib.sha256(data).hexdigest()
        if not self.intact(digest):
            with telling_full_disk(self.root), _TemporaryFolder(self._aside) as folder:
                self._publish({digest: _written(data, folder.place())})
        return digest

    def put_files(self, paths: Iterable[Path]) -> dict[Path, tuple[str, int]]:
        """Store the content of files; return digest and size of what was read, for each."""
        stored: dict[Path, tuple[str, int]] = {}
        unpublished: dict[str, str] = {}
        with telling_full_disk(self.root), _TemporaryFolder(self._aside) as folder:
            for path in paths:
                with _reading(path):
                    stored[path] = self._take(path, folder, unpublished)
            self._publish(unpublished)
        return stored

    def adopt(self, files: Mapping[str, Path]) -> None:
        """Make blobs of verified content in files on this disk; the files are gone afterwards."""
        for path in files.values():
            os.chmod(path, 0o444)
            size = os.stat(path).st_size
            if size > _BLOCK:
                self._note_size(size)
        with telling_full_disk(self.root):
            self._publish({digest: os.fspath(path) for digest, path in files.items()})

    def provide(self, digests: Iterable[str]) -> None:
        """Make these blobs available at their paths; those of a folder always are."""

    def remove(self, digests: Iterable[str]) -> int:
        """Remove blobs that are not needed any more, while `alone`; return the number of bytes freed."""
        # First what snapshots have recorded of files: those records imply that the blobs exist.
        self._forget_seen()
        freed = 0
        for digest in digests:
            path = self.path(digest)
            freed += path.stat().st_size if path.exists() else 0
            with crash_point.reach("registry.remove"):
                path.unlink(missing_ok=True)
        return freed

    def _take(self, path: Path, aside: _TemporaryFolder, waiting: dict[str, str]) -> tuple[str, int]:
        """Return digest and size of a file; its content is added to `waiting` unless a blob or `waiting` has it."""
        size = os.stat(path).st_size
        if size <= _BLOCK:
            data = _head(path)
            if len(data) <= _BLOCK:
                digest = hashlib.sha256(data).hexdigest()
                if digest not in waiting and not self.intact(digest):
                    waiting[digest] = _written(data, aside.place())
                return digest, len(data)
        elif os.path.exists(self._size_mark(size)):
            # There is a blob of this size, so the content may be stored already: hash it before anything is written.
            digest, size = _digested(os.fspath(path))
            if digest in waiting or self.intact(digest):
                return digest, size
        target = aside.place()
        digest, size = _copied(path, target)
        self._note_size(size)
        if digest in waiting or self.intact(digest):
            os.unlink(target)
        else:
            waiting[digest] = target
        return digest, size

    def _size_mark(self, size: int) -> str:
        return f"{self._sizes}/{size}"

    def _note_size(self, size: int) -> None:
        """Record the size before the blob gets its name: a mark without a blob costs a needless hash, the reverse a copy."""
        mark = self._size_mark(size)
        if not os.path.exists(mark):
            os.makedirs(self._sizes, mode=0o700, exist_ok=True)
            os.close(os.open(mark, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o600))

    def _publish(self, written: dict[str, str]) -> None:
        """Flush the content, then rename: a crash in between leaves temporary files, never a name with partial content."""
        past = time.time_ns() - int(2 * SETTLED * 1e9)
        for temporary in written.values():
            # So that any later write changes the time, and what was just written need not be read to be verified.
            os.utime(temporary, ns=(past, past))
        sync(list(written.values()))
        folders = set()
        for digest, temporary in written.items():
            target = self.place(digest)
            folder = os.path.dirname(target)
            if folder not in folders:
                os.makedirs(folder, exist_ok=True)
                folders.add(folder)
            with crash_point.reach("registry.rename"):
                os.rename(temporary, target)
            with suppress(FileNotFoundError):
                self._checked.note(digest, os.stat(target))
        sync(list(folders))

    def _forget_seen(self) -> None:
        shutil.rmtree(os.path.join(self.root, SEEN), ignore_errors=True)


@contextmanager
def telling_full_disk(root: Path) -> Iterator[None]:
    """Raise `UnavailableError` when the disk is full. What was written until then has no name and is not used."""
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        message = f"the disk of {root} is full; nothing was kept"
        raise UnavailableError(message, fix="free some space, then try again") from error


class _TemporaryFolder:
    """A private temporary folder, created on first use and removed afterwards."""

    def __init__(self, parent: str) -> None:
        self._folder = os.path.join(parent, secrets.token_hex(12))
        self._count = 0

    def __enter__(self) -> _TemporaryFolder:
        return self

    def __exit__(self, *_problem: object) -> None:
        if self._count:
            shutil.rmtree(self._folder, ignore_errors=True)

    def place(self) -> str:
        """Return a path that does not exist yet."""
        if not self._count:
            os.makedirs(self._folder, mode=0o700)
        self._count += 1
        return f"{self._folder}/{self._count}"


@contextmanager
def _reading(source: Path) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError:
        message = f"{source} was removed while it was read"
        raise RefusedError(message, fix="try again when nothing changes the folder") from None
    except PermissionError:
        message = f"{source} cannot be read"
        raise RefusedError(message, fix="change its mode, or leave it out with .fairwayignore") from None


def _head(path: Path) -> bytes:
    """Return the whole of a small file; of one that has grown since, one byte more than small files have."""
    with open(path, "rb") as file:
        return file.read(_BLOCK + 1)


def _written(data: bytes, target: str) -> str:
    with open(target, "xb", opener=_read_only) as file:
        file.write(data)
    return target


def _digested(source: str, read: Callable[[int], None] = lambda _count: None) -> tuple[str, int]:
    """Return digest and size of what is read, storing nothing; `read` is called with the size of each block."""
    digest, size = hashlib.sha256(), 0
    block = memoryview(bytearray(_BLOCK))
    with open(source, "rb", buffering=0) as reader:
        while count := reader.readinto(block):
            digest.update(block[:count])
            size += count
            read(count)
    return digest.hexdigest(), size


def _copied(source: Path, target: str) -> tuple[str, int]:
    """Copy while hashing: the copy is what was hashed, even if the source changes meanwhile."""
    digest, size = hashlib.sha256(), 0
    with open(source, "rb", buffering=0) as reader, open(target, "xb", buffering=0, opener=_read_only) as writer:
        while block := reader.read(_BLOCK):
            digest.update(block)
            size += len(block)
            while block:
                block = block[writer.write(block) :]
    return digest.hexdigest(), size


def _same_file(before: os.stat_result, after: os.stat_result) -> bool:
    """Return whether two states are those of one file that was not written in between."""
    return (before.st_ino, before.st_size, before.st_mtime_ns) == (after.st_ino, after.st_size, after.st_mtime_ns)


def _read_only(path: str, flags: int) -> int:
    """Create the file without write permission, whatever the umask is: blobs are never written again."""
    return os.open(path, flags | os.O_CLOEXEC, 0o444)


def digest_file(path: Path) -> str:
    """Return the digest of a file's content, storing nothing."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def sync(paths: list[str]) -> None:
    """Flush files and folders to disk."""
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
