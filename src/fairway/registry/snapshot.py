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

from fairway.app import crash
from fairway.errors import DamagedError, NotFoundError, RefusedError
from fairway.registry.blobs import MISSING, SEEN, Blobs, digest_file, telling_full_disk
from fairway.registry.checked import SETTLED
from fairway.registry.manifest import Entry, Manifest, check, decode
from fairway.registry.scan import Found, scan
from fairway.units.quantity import show_bytes

LIMIT = 500_000_000
"""Bytes; a folder with more holds data, not code."""
_BLOCK = 1 << 20
_Seen = dict[str, tuple[int, int, int, int, str]]
"""By path: inode, size, the two times, digest."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A folder's content at one time."""

    digest: str
    """Of the manifest: names the content."""
    manifest: Manifest
    read: int = 0
    """How many files had to be read; the others had not changed since they were last."""
    left_out: tuple[str, ...] = ()
    """What the ignore files of the folder kept out of it; folders with a slash."""


def take(
    folder: Path,
    blobs: Blobs,
    *,
    ignoring: bool = True,
    limit: int | None = LIMIT,
    remembering: bool = True,
    recorded: bool = False,
) -> Snapshot:
    """Keep a folder's content. Unchanged files are recognised by their times and not read again, if `remembering`.

    `recorded`: the caller is `writing` until a record names the snapshot; else one is expected soon.
    Refused: more than `limit` bytes, naming the largest paths; and what `scan` refuses.
    """
    found = scan(folder, ignoring=ignoring)
    if limit is not None and found.size > limit:
        raise _too_large(folder, found, limit)
    with blobs.writing():
        taken = _kept(folder, blobs, found, remembering=remembering, checked=recorded)
        if not recorded:
            blobs.expect_record(taken.digest)
        return taken


def _kept(folder: Path, blobs: Blobs, found: Found, *, remembering: bool, checked: bool) -> Snapshot:
    """`checked`: also the content that is remembered is compared with its digest, so that a good copy repairs a damaged one."""
    if not remembering:
        manifest, read = _manifest(folder, blobs, found, {})
        return Snapshot(blobs.put(manifest.encoded()), manifest, read, tuple(found.left_out))
    memory = _Memory(folder, blobs)
    known = memory.recall(found)
    manifest, read = _manifest(folder, blobs, found, known)
    encoded = manifest.encoded()
    # A manifest is put after its content, so where it is there, so is everything that it names.
    if checked or not blobs.has(hashlib.sha256(encoded).hexdigest()):
        there = blobs.intact if checked else blobs.has
        missing = {entry.path for entry in manifest.entries if entry.sha256 and not there(entry.sha256)}
        if missing:
            # The memory is of another time than the blobs: believe only what is there.
            known = {path: digest for path, digest in known.items() if path not in missing}
            manifest, read = _manifest(folder, blobs, found, known)
            encoded = manifest.encoded()
    digest = blobs.put(encoded)
    if read:
        memory.keep(found, manifest)
    return Snapshot(digest, manifest, read, tuple(found.left_out))


def fingerprint(folder: Path, blobs: Blobs, *, limit: int = LIMIT) -> str:
    """The digest that `take` would give, keeping nothing; empty when the folder is too large or cannot be kept."""
    try:
        found = scan(folder, ignoring=True)
        if found.size > limit:
            return ""
        memory = _Memory(folder, blobs)
        known = memory.recall(found)
        read = {path: digest_file(folder / path) for path in found.files if path not in known}
    except (RefusedError, OSError):
        return ""
    manifest = _assembled(found, {path: (digest, found.files[path].st_size) for path, digest in (known | read).items()})
    if read:
        memory.keep(found, manifest)
    return hashlib.sha256(manifest.encoded()).hexdigest()


def load(digest: str, blobs: Blobs) -> Manifest:
    """The manifest that a digest names, checked."""
    return decode(blobs.read(digest))


def materialise(
    manifest: Manifest,
    blobs: Blobs,
    target: Path,
    *,
    linked: bool = False,
    complete: Callable[[Path], None] = lambda _folder: None,
) -> None:
    """Lay the content out as a folder that is whole as soon as it is there; one that is there already stays.

    `linked` shares the blobs' own files, read-only: for content that is never written to. Of a folder that is there already,
    files that are no longer the blobs' own are replaced, each in one step. `complete` adds to the folder before it gets its name.
    Raises `DamagedError` for content that is not what its digest says; nothing is laid out then.
    """
    check(manifest.entries)
    if target.exists() and not linked:
        return
    provide(manifest, blobs)
    if target.exists():
        _renew(manifest, blobs, target)
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    aside = target.with_name(f".{target.name}-{secrets.token_hex(6)}")
    aside.mkdir(mode=0o755)
    try:
        with telling_full_disk(target):
            _lay_out(manifest, blobs, aside, linked)
            complete(aside)
        with crash.reach("registry.rename"):
            _rename_folder(aside, target)
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def provide(manifest: Manifest, blobs: Blobs) -> None:
    """See to it that all content of a manifest is there and intact. Whatever leaves the registry passes here.

    Raises `NotFoundError` for content that is not there, and `DamagedError` for content that is not what its digest says.
    """
    paths = {entry.sha256: entry.path for entry in manifest.entries if entry.sha256}
    blobs.provide(paths)
    faults = {digest: fault for digest in paths if (fault := blobs.fault(digest))}
    if not faults:
        return
    first, fault = next(iter(faults.items()))
    more = f"; {len(faults) - 1} more of its files are missing or damaged" if len(faults) > 1 else ""
    if all(each == MISSING for each in faults.values()):
        message = f"the content of {paths[first]} ({first[:12]}) is not in the registry any more{more}"
        raise NotFoundError(message, fix="submit or add it again")
    first, fault = next((digest, each) for digest, each in faults.items() if each != MISSING)
    message = f"{paths[first]} is damaged in {blobs.root}: {fault}{more}"
    raise DamagedError(message, fix="submit or add it again")


def _renew(manifest: Manifest, blobs: Blobs, folder: Path) -> None:
    """Put the blobs' own files in the place of others: a blob that was repaired is another file than before.

    A program that has the folder open sees either file whole; none is written to.
    """
    for entry in manifest.entries:
        if not entry.sha256:
            continue
        path = os.path.join(folder, entry.path)
        if os.path.lexists(path) and os.path.samefile(path, blobs.place(entry.sha256)):
            continue
        os.makedirs(os.path.dirname(path), exist_ok=True)
        aside = f"{os.path.dirname(path)}/.{secrets.token_hex(12)}"
        blobs.link(entry.sha256, aside)
        with crash.reach("registry.rename"):
            os.rename(aside, path)


def _lay_out(manifest: Manifest, blobs: Blobs, folder: Path, linked: bool) -> None:
    made = {""}
    for entry in manifest.entries:
        path = os.path.join(folder, entry.path)
        parent = entry.path.rpartition("/")[0]
        if parent not in made:
            os.makedirs(os.path.dirname(path), exist_ok=True)
            made.add(parent)
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
    # Last, so that no file could have been written through one.
    for entry in manifest.entries:
        if entry.symlink:
            os.symlink(entry.symlink, os.path.join(folder, entry.path))


def _copy(source: str, target: str, mode: int) -> None:
    """A copy that its owner may change: sharing the blob's own file would let a program change it for everybody."""
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
        # Somebody else was first, with the same content.
        if not target.is_dir():
            raise


def _manifest(folder: Path, blobs: Blobs, found: Found, known: dict[str, str]) -> tuple[Manifest, int]:
    unknown = [path for path in found.files if path not in known]
    kept = blobs.put_files(folder / path for path in unknown)
    contents = {path: kept[folder / path] for path in unknown}
    contents |= {path: (digest, found.files[path].st_size) for path, digest in known.items()}
    return _assembled(found, contents), len(unknown)


def _assembled(found: Found, contents: dict[str, tuple[str, int]]) -> Manifest:
    files = []
    for path, (digest, size) in contents.items():
        mode = 0o755 if found.files[path].st_mode & 0o100 else 0o644
        files.append(Entry(path, mode, size, digest))
    return Manifest(tuple(sorted([*files, *found.others])))


class _Memory:
    """What the files of a folder were when they were last read, so that most need not be read again."""

    def __init__(self, folder: Path, blobs: Blobs) -> None:
        name = hashlib.sha256(os.fsencode(os.path.realpath(folder))).hexdigest()[:24]
        self._path = blobs.root / SEEN / f"{name}.json"

    def recall(self, found: Found) -> dict[str, str]:
        """Digests of the files that have not changed since."""
        try:
            seen = msgspec.json.decode(self._path.read_bytes(), type=_Seen)
        except (OSError, msgspec.DecodeError):
            return {}
        return {path: entry[4] for path, state in found.files.items() if (entry := seen.get(path)) and entry[:4] == _times(state)}

    def keep(self, found: Found, manifest: Manifest) -> None:
        """Remember what was read now."""
        settled = time.time_ns() - int(SETTLED * 1e9)
        seen: _Seen = {}
        for entry in manifest.entries:
            state = found.files.get(entry.path)
            if state is not None and max(state.st_mtime_ns, state.st_ctime_ns) < settled and state.st_size == entry.size:
                seen[entry.path] = (*_times(state), entry.sha256)
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        aside = self._path.with_name(f".{self._path.name}-{secrets.token_hex(6)}")
        aside.write_bytes(msgspec.json.encode({name: value for name, value in seen.items() if _plain(name)}))
        with crash.reach("registry.rename"):
            os.replace(aside, self._path)


def _times(state: os.stat_result) -> tuple[int, int, int, int]:
    return state.st_ino, state.st_size, state.st_mtime_ns, state.st_ctime_ns


def _plain(name: str) -> bool:
    """Whether the name is text; one that is not is read every time."""
    return name.isascii() or not any(0xDC80 <= ord(char) <= 0xDCFF for char in name)


def _too_large(folder: Path, found: Found, limit: int) -> RefusedError:
    named = ", ".join(f"{path} ({show_bytes(size)})" for path, size in found.largest())
    size, most = show_bytes(found.size), show_bytes(limit)
    message = f"{folder} holds {size}, more than the {most} that a snapshot of code may; the largest are {named}"
    return RefusedError(message, fix="leave data out with .fairwayignore and name it under data:, or run in place (--in-place)")
