"""Content that callers upload, in pieces, before a version names it.

`arriving/OWNER/DIGEST.part` is incomplete; `arriving/OWNER/DIGEST` is complete: on disk, and compared with its digest. It
becomes content of the registry when a version names it, and is removed after a day without a request. `DIGEST.had` exists while
that happens: it records that the owner has sent the content, though the registry already has it.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fairway.app.system import crash_point
from fairway.app.upload import Held, UploadedContent, nothing_held
from fairway.errors import RefusedError, UnavailableError
from fairway.registry import numbered_record
from fairway.registry.blob import BlobStore, sync, telling_full_disk
from fairway.registry.manifest import FolderManifest, ManifestEntry, decode
from fairway.units.quantity import show_bytes

ABANDONED = 24 * 3600.0
"""Seconds without a request after which an upload is removed."""
LARGEST_MANIFEST = 1 << 26
FOLDER = "arriving"

_PART = ".part"
_HAD = ".had"
_BLOCK = 1 << 20
_DIGEST = re.compile(r"[0-9a-f]{64}")
_MODES = frozenset({0o644, 0o755})
_LONGEST_NAME, _LONGEST_PATH = 255, 4000
"""Limits of file systems, in bytes."""


@dataclass(frozen=True, slots=True)
class ExpectedContent:
    """One content that a caller uploads."""

    digest: str
    size: int


@dataclass(frozen=True, slots=True)
class UploadProgress:
    """The progress of one upload."""

    have: int
    """Bytes received; the next piece begins here."""
    checked: int
    """Bytes that were compared with the digest."""
    whole: bool


@dataclass(slots=True)
class _PartDigest:
    digest: Any = field(default_factory=hashlib.sha256)
    at: int = 0


class ContentUploads:
    """The uploads of all callers. Calls about the same content of the same owner are serialised by the caller.

    Guarantees:
    1. Complete content is on disk and has its digest, whatever crashed during the upload.
    2. What was received before a connection broke off need not be sent again.
    3. One owner's uploads neither help nor harm another's. Content of the registry counts as received only where it is `held`:
       a caller that knows a digest must send the bytes, or be able to read a version with them.
    4. No step takes longer than a piece of its size and `patience` seconds, however large the content is.
    """

    def __init__(self, blobs: BlobStore) -> None:
        self._blobs = blobs
        self._readings: dict[str, _PartDigest] = {}
        """How far parts were compared; if this is lost, comparing starts again."""

    def standing(self, owner: str, awaited: ExpectedContent, held: Held = nothing_held) -> UploadProgress:
        """Return the progress. Requesting it keeps the upload from being removed as abandoned."""
        path = _place(self._blobs, owner, awaited.digest)
        if _touched(path) or _is_held(self._blobs, path, held):
            return UploadProgress(awaited.size, awaited.size, whole=True)
        part = path + _PART
        have = os.stat(part).st_size if _touched(part) else 0
        reading = self._readings.get(part)
        return UploadProgress(have, reading.at if reading is not None else 0, whole=False)

    def room(self) -> int:
        """Return the number of free bytes."""
        self._blobs.root.mkdir(mode=0o700, parents=True, exist_ok=True)
        return shutil.disk_usage(self._blobs.root).free

    def append(self, owner: str, awaited: ExpectedContent, offset: int, data: bytes, held: Held = nothing_held) -> None:
        """Append a piece that begins where the part ends; any other is ignored: `standing` returns where to continue."""
        if offset + len(data) > awaited.size:
            message = f"{awaited.digest[:12]} has {awaited.size} bytes, but {offset + len(data)} were sent"
            raise RefusedError(message, fix="try again when nothing changes the files")
        standing = self.standing(owner, awaited, held)
        if standing.whole or standing.have != offset:
            return
        part = _place(self._blobs, owner, awaited.digest) + _PART
        os.makedirs(os.path.dirname(part), mode=0o700, exist_ok=True)
        with telling_full_disk(self._blobs.root), open(part, "ab", opener=_private) as file:
            file.write(data)

    def settle(
        self, owner: str, awaited: Sequence[ExpectedContent], patience: float, held: Held = nothing_held
    ) -> list[UploadProgress]:
        """Flush these uploads to disk, compare complete ones with their digests, and return the progress of each.

        Raises `RefusedError` for content that has another digest, which is then removed. Work beyond `patience` continues with
        the next call.
        """
        until = time.monotonic() + patience
        parts = {_place(self._blobs, owner, content.digest) + _PART: content for content in awaited}
        for part, content in parts.items():
            if content.size == 0 and not self.standing(owner, content, held).whole:
                os.makedirs(os.path.dirname(part), mode=0o700, exist_ok=True)
                open(part, "ab", opener=_private).close()
        with telling_full_disk(self._blobs.root):
            sync([part for part in parts if os.path.exists(part)])
        whole = [part for part, content in parts.items() if os.path.exists(part) and self._compared(part, content, until)]
        for part in whole:
            with crash_point.reach("registry.rename"):
                os.rename(part, part.removesuffix(_PART))
        if whole:
            sync([os.path.dirname(whole[0])])
        return [self.standing(owner, content, held) for content in awaited]

    def tidy(self, now: float) -> int:
        """Remove abandoned uploads; return the number of files that remain and may be removed one day."""
        remaining = 0
        for folder in sorted((self._blobs.root / FOLDER).glob("*")):
            with numbered_record.locked(folder):
                for path in [path for path in folder.iterdir() if _DIGEST.match(path.name)]:
                    if path.stat().st_mtime > now - ABANDONED:
                        remaining += 1
                        continue
                    with crash_point.reach("registry.remove"):
                        path.unlink(missing_ok=True)
                    self._readings.pop(str(path), None)
        return remaining

    def _compared(self, part: str, awaited: ExpectedContent, until: float) -> bool:
        """Return whether the content is complete and has its digest; reading continues where the last call stopped."""
        reading = self._readings.setdefault(part, _PartDigest())
        with open(part, "rb") as file:
            file.seek(reading.at)
            while time.monotonic() < until and (block := file.read(_BLOCK)):
                reading.digest.update(block)
                reading.at += len(block)
        if reading.at < awaited.size:
            return False
        del self._readings[part]
        digest = reading.digest.hexdigest()
        if digest != awaited.digest:
            with crash_point.reach("registry.remove"):
                os.unlink(part)
            message = f"the content sent as {awaited.digest[:12]} ({awaited.size} bytes) has the digest {digest[:12]}"
            raise RefusedError(message, fix="try again when nothing changes the files")
        return True


def load(sent: UploadedContent, blobs: BlobStore) -> tuple[FolderManifest, dict[str, Path]]:
    """Return the checked manifest of an upload and the path of each file's content. Raises `RefusedError` for invalid uploads.

    Raises `UnavailableError` if some content is missing, or no longer there.
    """
    path = _whole(blobs, sent, sent.digest)
    if path is None:
        raise _missing("its manifest")
    if path.stat().st_size > LARGEST_MANIFEST:
        message = f"the manifest has more than {show_bytes(LARGEST_MANIFEST)}"
        raise RefusedError(message, fix="pack small files into larger ones")
    manifest = _decoded(path.read_bytes())
    _check(manifest.entries, sent)
    paths: dict[str, Path] = {}
    for entry in manifest.entries:
        if entry.sha256:
            content = _whole(blobs, sent, entry.sha256)
            if content is None:
                raise _missing(entry.path)
            if content.stat().st_size != entry.size:
                message = f"{entry.path!r} has {content.stat().st_size} bytes, but its manifest lists {entry.size}"
                raise RefusedError(message, fix="try again when nothing changes the files")
            paths[entry.path] = content
    return manifest, paths


@contextmanager
def closing(sent: UploadedContent, blobs: BlobStore) -> Iterator[None]:
    """Lock the owner's uploads, and keep content that is taken over from being freed before a version names it."""
    folder = Path(_place(blobs, sent.owner, sent.digest)).parent
    with numbered_record.locked(folder), blobs.writing():
        yield
        for path in folder.glob(f"*{_HAD}"):
            path.unlink(missing_ok=True)


def adopt(sent: UploadedContent, manifest: FolderManifest, blobs: BlobStore) -> None:
    """Move the content of an upload to the registry, within `closing`.

    The manifest comes last: where it exists, so does everything that it names.
    """
    contents = {entry.sha256 for entry in manifest.entries if entry.sha256}
    for digests in (contents - {sent.digest}, {sent.digest}):
        arrived = {digest: Path(_place(blobs, sent.owner, digest)) for digest in digests}
        arrived = {digest: path for digest, path in arrived.items() if path.exists()}
        for path in arrived.values():
            # After a crash before the version exists, the owner must not have to send it again.
            path.with_name(path.name + _HAD).touch(mode=0o600)
        for digest in [digest for digest in arrived if blobs.intact(digest)]:
            with crash_point.reach("registry.remove"):
                arrived.pop(digest).unlink()
        blobs.adopt(arrived)


def _whole(blobs: BlobStore, sent: UploadedContent, digest: str) -> Path | None:
    """Return the path of a complete content: sent by the owner, or of a version that the owner may read."""
    path = Path(_place(blobs, sent.owner, digest))
    if path.exists():
        return path
    return blobs.path(digest) if _is_held(blobs, os.fspath(path), sent.held) else None


def _is_held(blobs: BlobStore, place: str, held: Held) -> bool:
    """Return whether the registry has the content, intact, and its owner has sent it or may read it there."""
    digest = os.path.basename(place)
    return blobs.has(digest) and (os.path.exists(place + _HAD) or held(digest)) and blobs.intact(digest)


def _place(blobs: BlobStore, owner: str, digest: str) -> str:
    if not _DIGEST.fullmatch(digest):
        message = f"{digest[:100]!r} is not a SHA-256 digest"
        raise RefusedError(message, fix="name contents by 64 hexadecimal digits, in lower case")
    name = hashlib.sha256(owner.encode("utf-8", "surrogateescape")).hexdigest()[:32]
    return f"{blobs.root}/{FOLDER}/{name}/{digest}"


def _touched(path: str) -> bool:
    """Return whether the file exists; if so, renew its time of last use."""
    try:
        os.utime(path)
    except FileNotFoundError:
        return False
    return True


def _decoded(data: bytes) -> FolderManifest:
    try:
        manifest = decode(data)
        plain = manifest.encoded() == data
    except (RecursionError, UnicodeError) as error:
        message = f"this is not a manifest: {error}"
        raise RefusedError(message, fix="send a manifest that `fairway` created from a folder") from None
    if not plain:
        message = "this manifest is not encoded as `fairway` encodes it"
        raise RefusedError(
            message, fix="send a manifest that `fairway` created from a folder, in the version that the cluster has"
        )
    return manifest


def _check(entries: tuple[ManifestEntry, ...], sent: UploadedContent) -> None:
    """Check that entries are what a folder can hold: files, links and empty folders, none below a file."""
    if not entries or (sent.is_file and (len(entries) != 1 or not entries[0].sha256 or "/" in entries[0].path)):
        message = "the upload is declared as one file, but is not one" if entries else "the upload is empty"
        raise RefusedError(message, fix="name a file, or a folder with content")
    files = {entry.path for entry in entries if entry.sha256}
    for entry in entries:
        parents = entry.path.rstrip("/").split("/")
        if not _is_kind(entry) or any("/".join(parents[:depth]) in files for depth in range(1, len(parents))):
            message = f"{entry.path[:200]!r} is not a file, link or empty folder that can be kept"
            raise RefusedError(message, fix="send a manifest that `fairway` created from a folder")
        lengths = [len(os.fsencode(name)) for name in parents]
        if max(lengths) > _LONGEST_NAME or sum(lengths) + len(lengths) > _LONGEST_PATH:
            message = f"{entry.path[:100]!r}... is too long for a path"
            raise RefusedError(message, fix="give it a shorter name")


def _is_kind(entry: ManifestEntry) -> bool:
    if type(entry.size) is not int or type(entry.mode) is not int:
        return False
    if entry.symlink or entry.is_folder:
        mode = 0o777 if entry.symlink else 0o755
        return not entry.sha256 and (entry.size, entry.mode) == (0, mode) and not (entry.symlink and entry.is_folder)
    return _DIGEST.fullmatch(entry.sha256) is not None and entry.size >= 0 and entry.mode in _MODES


def _missing(what: str) -> UnavailableError:
    message = f"the content of {what} is missing or was removed"
    return UnavailableError(message, fix="try again: only missing content is sent")


def _private(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_CLOEXEC, 0o600)
