"""Snapshots of code: a folder's content as a manifest of blobs, and back."""

from __future__ import annotations

import hashlib
import os
import secrets
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import msgspec

from fairway.app.system import crash_point
from fairway.errors import DamagedError, NotFoundError, RefusedError
from fairway.registry.blob import MISSING, SEEN, BlobStore, digest_file, telling_full_disk
from fairway.registry.folder_scan import FolderScan, scan
from fairway.registry.manifest import FolderManifest, ManifestEntry, check, decode
from fairway.registry.verified_cache import SETTLED
from fairway.units.quantity import show_bytes

LIMIT = 500_000_000
"""Limit in bytes; a larger folder holds data, not code."""
_BLOCK = 1 << 20
_Seen = dict[str, tuple[int, int, int, int, str]]
"""By path: inode, size, the two times, digest."""


@dataclass(frozen=True, slots=True)
class CodeSnapshot:
    """A folder's content at one time."""

    digest: str
    """The digest of the manifest, which identifies the content."""
    manifest: FolderManifest
    read: int = 0
    """Number of files that had to be read; the others had not changed since the last time."""
    left_out: tuple[str, ...] = ()
    """Paths that the folder's ignore files excluded; folders with a slash."""


def take(
    folder: Path,
    blobs: BlobStore,
    *,
    ignoring: bool = True,
    limit: int | None = LIMIT,
    remembering: bool = True,
    recorded: bool = False,
) -> CodeSnapshot:
    """Store a folder's content. With `remembering`, files with unchanged times are not read again.

    `recorded`: the caller holds `writing` until a record names the snapshot; otherwise a record is expected soon. Refused: more
    than `limit` bytes, naming the largest paths; and what `scan` refuses.
    """
    scanned = scan(folder, ignoring=ignoring)
    if limit is not None and scanned.size > limit:
        raise _too_large(folder, scanned, limit)
    with blobs.writing():
        snapshot = _kept(folder, blobs, scanned, remembering=remembering, checked=recorded)
        if not recorded:
            blobs.expect_record(snapshot.digest)
        return snapshot


def _kept(folder: Path, blobs: BlobStore, found: FolderScan, *, remembering: bool, checked: bool) -> CodeSnapshot:
    """Store what was scanned.

    With `checked`, remembered content is also compared with its digest, so that a good copy repairs a damaged one.
    """
    if not remembering:
        manifest, read = _manifest(folder, blobs, found, {})
        return CodeSnapshot(blobs.put(manifest.encoded()), manifest, read, tuple(found.left_out))
    memory = _FileStateCache(folder, blobs)
    digests = memory.recall(found)
    manifest, read = _manifest(folder, blobs, found, digests)
    encoded = manifest.encoded()
    # A manifest is put after its content, so if it exists, everything that it names exists too.
    if checked or not blobs.has(hashlib.sha256(encoded).hexdigest()):
        exists = blobs.intact if checked else blobs.has
        missing = {entry.path for entry in manifest.entries if entry.sha256 and not exists(entry.sha256)}
        if missing:
            # The memory does not match the blobs: rely only on blobs that exist.
            digests = {path: digest for path, digest in digests.items() if path not in missing}
            manifest, read = _manifest(folder, blobs, found, digests)
            encoded = manifest.encoded()
    digest = blobs.put(encoded)
    if read:
        memory.keep(found, manifest)
    return CodeSnapshot(digest, manifest, read, tuple(found.left_out))


def fingerprint(folder: Path, blobs: BlobStore, *, limit: int = LIMIT) -> str:
    """Return the digest that `take` would give, storing nothing; empty if the folder is too large or cannot be kept."""
    try:
        scanned = scan(folder, ignoring=True)
        if scanned.size > limit:
            return ""
        memory = _FileStateCache(folder, blobs)
        digests = memory.recall(scanned)
        read = {path: digest_file(folder / path) for path in scanned.files if path not in digests}
    except (RefusedError, OSError):
        return ""
    manifest = _assembled(scanned, {path: (digest, scanned.files[path].st_size) for path, digest in (digests | read).items()})
    if read:
        memory.keep(scanned, manifest)
    return hashlib.sha256(manifest.encoded()).hexdigest()


def load(digest: str, blobs: BlobStore) -> FolderManifest:
    """Return the manifest with this digest, checked."""
    return decode(blobs.read(digest))


def materialise(
    manifest: FolderManifest,
    blobs: BlobStore,
    target: Path,
    *,
    linked: bool = False,
    complete: Callable[[Path], None] = lambda _folder: None,
) -> None:
    """Lay the content out as a folder, which appears only when it is complete; an existing one stays.

    `linked` shares the blobs' own files, read-only, for content that is never written to. In an existing folder, files that are
    no longer the blobs' own are then replaced, each in one step. `complete` adds to the folder before it gets its name. Raises
    `DamagedError` for content that does not match its digest; nothing is laid out then.
    """
    check(manifest.entries)
    if target.exists() and not linked:
        return
    provide(manifest, blobs)
    if target.exists():
        _renew(manifest, blobs, target)
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = target.with_name(f".{target.name}-{secrets.token_hex(6)}")
    temporary.mkdir(mode=0o755)
    try:
        with telling_full_disk(target):
            _lay_out(manifest, blobs, temporary, linked)
            complete(temporary)
        with crash_point.reach("registry.rename"):
            _rename_folder(temporary, target)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def provide(manifest: FolderManifest, blobs: BlobStore) -> None:
    """Make all content of a manifest available and check that it is intact. All content that leaves the registry passes here.

    Raises `NotFoundError` for missing content, and `DamagedError` for content that does not match its digest.
    """
    paths = {entry.sha256: entry.path for entry in manifest.entries if entry.sha256}
    blobs.provide(paths)
    faults = {digest: fault for digest in paths if (fault := blobs.fault(digest))}
    if not faults:
        return
    first, fault = next(iter(faults.items()))
    more = f"; {len(faults) - 1} more of its files are missing or damaged" if len(faults) > 1 else ""
    if all(reason == MISSING for reason in faults.values()):
        message = f"the content of {paths[first]} ({first[:12]}) is not in the registry any more{more}"
        raise NotFoundError(message, fix="submit or add it again")
    first, fault = next((digest, reason) for digest, reason in faults.items() if reason != MISSING)
    message = f"{paths[first]} is damaged in {blobs.root}: {fault}{more}"
    raise DamagedError(message, fix="submit or add it again")


def _renew(manifest: FolderManifest, blobs: BlobStore, folder: Path) -> None:
    """Replace files that are not the blobs' own: a blob that was repaired is another file than before.

    A program that has the folder open sees either file complete; neither is written to.
    """
    for entry in manifest.entries:
        if not entry.sha256:
            continue
        path = os.path.join(folder, entry.path)
        if os.path.lexists(path) and os.path.samefile(path, blobs.place(entry.sha256)):
            continue
        os.makedirs(os.path.dirname(path), exist_ok=True)
        temporary = f"{os.path.dirname(path)}/.{secrets.token_hex(12)}"
        blobs.link(entry.sha256, temporary)
        with crash_point.reach("registry.rename"):
            os.rename(temporary, path)


def _lay_out(manifest: FolderManifest, blobs: BlobStore, folder: Path, linked: bool) -> None:
    created = {""}
    for entry in manifest.entries:
        path = os.path.join(folder, entry.path)
        parent = entry.path.rpartition("/")[0]
        if parent not in created:
            os.makedirs(os.path.dirname(path), exist_ok=True)
            created.add(parent)
        if entry.is_folder or entry.symlink:
            continue
        try:
            if linked:
                blobs.link(entry.sha256, path)
            else:
                _copy(blobs.place(entry.sha256), path, 0o755 if entry.mode & 0o111 else 0o644)
        except FileNotFoundError:
            message = f"the content of {entry.path} ({entry.sha256[:12]}) is not in the registry any more"
            raise NotFoundError(message, fix="submit or add it again") from None
    # Links come last, so that no file could have been written through one.
    for entry in manifest.entries:
        if entry.symlink:
            os.symlink(entry.symlink, os.path.join(folder, entry.path))


def _copy(source: str, target: str, mode: int) -> None:
    """Copy a file so that its owner may change it: with the blob's own file, a program would change it for all users."""
    reader = os.open(source, os.O_RDONLY | os.O_CLOEXEC)
    try:
        writer = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
        try:
            while block := os.read(reader, _BLOCK):
                while block:
                    block = block[os.write(writer, block) :]
        finally:
            os.close(writer)
    finally:
        os.close(reader)


def _rename_folder(aside: Path, target: Path) -> None:
    try:
        os.rename(aside, target)
    except OSError:
        # Another process was first, with the same content.
        if not target.is_dir():
            raise


def _manifest(folder: Path, blobs: BlobStore, found: FolderScan, known: dict[str, str]) -> tuple[FolderManifest, int]:
    unknown = [path for path in found.files if path not in known]
    kept = blobs.put_files(folder / path for path in unknown)
    contents = {path: kept[folder / path] for path in unknown}
    contents |= {path: (digest, found.files[path].st_size) for path, digest in known.items()}
    return _assembled(found, contents), len(unknown)


def _assembled(found: FolderScan, contents: dict[str, tuple[str, int]]) -> FolderManifest:
    files = []
    for path, (digest, size) in contents.items():
        mode = 0o755 if found.files[path].st_mode & 0o100 else 0o644
        files.append(ManifestEntry(path, mode, size, digest))
    return FolderManifest(tuple(sorted([*files, *found.others])))


class _FileStateCache:
    """The states of a folder's files when they were last read, so that most need not be read again."""

    def __init__(self, folder: Path, blobs: BlobStore) -> None:
        name = hashlib.sha256(os.fsencode(os.path.realpath(folder))).hexdigest()[:24]
        self._path = blobs.root / SEEN / f"{name}.json"

    def recall(self, found: FolderScan) -> dict[str, str]:
        """Return the digests of the files that have not changed since."""
        try:
            states = msgspec.json.decode(self._path.read_bytes(), type=_Seen)
        except (OSError, msgspec.DecodeError):
            return {}
        return {
            path: entry[4] for path, state in found.files.items() if (entry := states.get(path)) and entry[:4] == _times(state)
        }

    def keep(self, found: FolderScan, manifest: FolderManifest) -> None:
        """Record the files that were read now."""
        settled = time.time_ns() - int(SETTLED * 1e9)
        states: _Seen = {}
        for entry in manifest.entries:
            state = found.files.get(entry.path)
            if state is not None and max(state.st_mtime_ns, state.st_ctime_ns) < settled and state.st_size == entry.size:
                states[entry.path] = (*_times(state), entry.sha256)
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        temporary = self._path.with_name(f".{self._path.name}-{secrets.token_hex(6)}")
        temporary.write_bytes(msgspec.json.encode({name: value for name, value in states.items() if _plain(name)}))
        with crash_point.reach("registry.rename"):
            os.replace(temporary, self._path)


def _times(state: os.stat_result) -> tuple[int, int, int, int]:
    return state.st_ino, state.st_size, state.st_mtime_ns, state.st_ctime_ns


def _plain(name: str) -> bool:
    """Return whether the name is text; a file with any other name is read every time."""
    return name.isascii() or not any(0xDC80 <= ord(char) <= 0xDCFF for char in name)


def _too_large(folder: Path, found: FolderScan, limit: int) -> RefusedError:
    largest = ", ".join(f"{path} ({show_bytes(size)})" for path, size in found.largest())
    size, allowed = show_bytes(found.size), show_bytes(limit)
    message = f"{folder} holds {size}, more than the {allowed} that a snapshot of code may; the largest are {largest}"
    return RefusedError(message, fix="leave data out with .fairwayignore and name it under data:, or run in place (--in-place)")
