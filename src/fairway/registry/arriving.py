"""Content that callers send ahead of what names it, in pieces.

`arriving/OWNER/DIGEST.part` is on its way, `arriving/OWNER/DIGEST` is whole: on the disk, and compared with its digest. It
becomes content of the registry when a version names it, and is removed after a day without a request. `DIGEST.had` is there
while that happens: the owner has sent it, though it lies in the registry already.
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

from fairway.app import crash
from fairway.app.sent import Held, Sent, nothing_held
from fairway.errors import RefusedError, UnavailableError
from fairway.registry import numbering
from fairway.registry.blobs import Blobs, sync, telling_full_disk
from fairway.registry.manifest import Entry, Manifest, decode
from fairway.units.quantity import show_bytes

ABANDONED = 24 * 3600.0
"""Seconds after which what nobody sent on, asked for or closed is gone."""
LARGEST_MANIFEST = 1 << 26
FOLDER = "arriving"

_PART = ".part"
_HAD = ".had"
_BLOCK = 1 << 20
_DIGEST = re.compile(r"[0-9a-f]{64}")
_MODES = frozenset({0o644, 0o755})
_LONGEST_NAME, _LONGEST_PATH = 255, 4000
"""Bytes: what file systems take."""


@dataclass(frozen=True, slots=True)
class Awaited:
    """One content that a caller sends."""

    digest: str
    size: int


@dataclass(frozen=True, slots=True)
class Standing:
    """How far a content has come."""

    have: int
    """Bytes; the next piece begins here."""
    checked: int
    """Bytes that were compared."""
    whole: bool


@dataclass(slots=True)
class _Reading:
    digest: Any = field(default_factory=hashlib.sha256)
    at: int = 0


class Arriving:
    """What is on its way, of all callers. Calls about the same content of the same owner are one after the other.

    Promises:
    1. What is whole is on the disk and has its digest, whatever crashed while it came.
    2. What came before a connection broke off need not be sent again.
    3. One owner's pieces neither help nor harm another's. What the registry has counts as here only where it is `held`: who
       knows a digest must send the bytes, or be able to read a version with them.
    4. No step takes longer than a piece of its size and `patience` seconds, however large the content is.
    """

    def __init__(self, blobs: Blobs) -> None:
        self._blobs = blobs
        self._readings: dict[str, _Reading] = {}
        """How far parts were compared; where this is lost it begins anew."""

    def standing(self, owner: str, awaited: Awaited, held: Held = nothing_held) -> Standing:
        """How far it has come. What is asked for is not abandoned."""
        place = _place(self._blobs, owner, awaited.digest)
        if _touched(place) or _is_held(self._blobs, place, held):
            return Standing(awaited.size, awaited.size, whole=True)
        part = place + _PART
        have = os.stat(part).st_size if _touched(part) else 0
        reading = self._readings.get(part)
        return Standing(have, reading.at if reading is not None else 0, whole=False)

    def room(self) -> int:
        """Bytes that are free."""
        self._blobs.root.mkdir(mode=0o700, parents=True, exist_ok=True)
        return shutil.disk_usage(self._blobs.root).free

    def append(self, owner: str, awaited: Awaited, offset: int, data: bytes, held: Held = nothing_held) -> None:
        """Write on where the part ends; what does not begin there is left out: `standing` says where to go on."""
        if offset + len(data) > awaited.size:
            message = f"{awaited.digest[:12]} has {awaited.size} bytes, and {offset + len(data)} are sent"
            raise RefusedError(message, fix="try again when nothing changes the files")
        standing = self.standing(owner, awaited, held)
        if standing.whole or standing.have != offset:
            return
        part = _place(self._blobs, owner, awaited.digest) + _PART
        os.makedirs(os.path.dirname(part), mode=0o700, exist_ok=True)
        with telling_full_disk(self._blobs.root), open(part, "ab", opener=_private) as file:
            file.write(data)

    def settle(self, owner: str, awaited: Sequence[Awaited], patience: float, held: Held = nothing_held) -> list[Standing]:
        """Put on the disk what came of these, and compare what is complete with its digest; how far each has come then.

        `RefusedError` for content that has another digest; it is gone then. What takes longer goes on with the next call.
        """
        until = time.monotonic() + patience
        parts = {_place(self._blobs, owner, one.digest) + _PART: one for one in awaited}
        for part, one in parts.items():
            if one.size == 0 and not self.standing(owner, one, held).whole:
                os.makedirs(os.path.dirname(part), mode=0o700, exist_ok=True)
                open(part, "ab", opener=_private).close()
        with telling_full_disk(self._blobs.root):
            sync([part for part in parts if os.path.exists(part)])
        whole = [part for part, one in parts.items() if os.path.exists(part) and self._compared(part, one, until)]
        for part in whole:
            with crash.reach("registry.rename"):
                os.rename(part, part.removesuffix(_PART))
        if whole:
            sync([os.path.dirname(whole[0])])
        return [self.standing(owner, one, held) for one in awaited]

    def tidy(self, now: float) -> int:
        """Remove what was abandoned; how many files are left that may be one day."""
        left = 0
        for folder in sorted((self._blobs.root / FOLDER).glob("*")):
            with numbering.locked(folder):
                for path in [path for path in folder.iterdir() if _DIGEST.match(path.name)]:
                    if path.stat().st_mtime > now - ABANDONED:
                        left += 1
                        continue
                    with crash.reach("registry.remove"):
                        path.unlink(missing_ok=True)
                    self._readings.pop(str(path), None)
        return left

    def _compared(self, part: str, awaited: Awaited, until: float) -> bool:
        """Whether all of it is there and is what it is called; read on from where it was read to."""
        reading = self._readings.setdefault(part, _Reading())
        with open(part, "rb") as file:
            file.seek(reading.at)
            while time.monotonic() < until and (block := file.read(_BLOCK)):
                reading.digest.update(block)
                reading.at += len(block)
        if reading.at < awaited.size:
            return False
        del self._readings[part]
        found = reading.digest.hexdigest()
        if found != awaited.digest:
            with crash.reach("registry.remove"):
                os.unlink(part)
            message = f"what was sent as {awaited.digest[:12]} ({awaited.size} bytes) is {found[:12]}"
            raise RefusedError(message, fix="try again when nothing changes the files")
        return True


def load(sent: Sent, blobs: Blobs) -> tuple[Manifest, dict[str, Path]]:
    """What was sent, checked, and where the content of each file lies now. `RefusedError` for what no honest caller sends.

    `UnavailableError` when something of it is not here, or no longer.
    """
    place = _whole(blobs, sent, sent.digest)
    if place is None:
        raise _missing("its manifest")
    if place.stat().st_size > LARGEST_MANIFEST:
        message = f"the manifest has more than {show_bytes(LARGEST_MANIFEST)}"
        raise RefusedError(message, fix="pack small files into larger ones")
    manifest = _decoded(place.read_bytes())
    _check(manifest.entries, sent)
    found: dict[str, Path] = {}
    for entry in manifest.entries:
        if entry.sha256:
            content = _whole(blobs, sent, entry.sha256)
            if content is None:
                raise _missing(entry.path)
            if content.stat().st_size != entry.size:
                message = f"{entry.path!r} has {content.stat().st_size} bytes, and its manifest says {entry.size}"
                raise RefusedError(message, fix="try again when nothing changes the files")
            found[entry.path] = content
    return manifest, found


@contextmanager
def closing(sent: Sent, blobs: Blobs) -> Iterator[None]:
    """Nothing that an owner sent moves or goes meanwhile, and what is taken over is not collected before a version names it."""
    folder = Path(_place(blobs, sent.owner, sent.digest)).parent
    with numbering.locked(folder), blobs.writing():
        yield
        for path in folder.glob(f"*{_HAD}"):
            path.unlink(missing_ok=True)


def adopt(sent: Sent, manifest: Manifest, blobs: Blobs) -> None:
    """Make content of the registry of it, while `closing`. The manifest comes last: where it is, so is all that it names."""
    contents = {entry.sha256 for entry in manifest.entries if entry.sha256}
    for digests in (contents - {sent.digest}, {sent.digest}):
        arrived = {digest: Path(_place(blobs, sent.owner, digest)) for digest in digests}
        arrived = {digest: path for digest, path in arrived.items() if path.exists()}
        for path in arrived.values():
            # A crash before the version is there must not make the owner send it again.
            path.with_name(path.name + _HAD).touch(mode=0o600)
        for digest in [digest for digest in arrived if blobs.intact(digest)]:
            with crash.reach("registry.remove"):
                arrived.pop(digest).unlink()
        blobs.adopt(arrived)


def _whole(blobs: Blobs, sent: Sent, digest: str) -> Path | None:
    """Where a content lies, whole: sent by the owner, or of a version that the owner may read."""
    place = Path(_place(blobs, sent.owner, digest))
    if place.exists():
        return place
    return blobs.path(digest) if _is_held(blobs, os.fspath(place), sent.held) else None


def _is_held(blobs: Blobs, place: str, held: Held) -> bool:
    """Whether the registry has a content, intact, and its owner has sent it or may read it there."""
    digest = os.path.basename(place)
    return blobs.has(digest) and (os.path.exists(place + _HAD) or held(digest)) and blobs.intact(digest)


def _place(blobs: Blobs, owner: str, digest: str) -> str:
    if not _DIGEST.fullmatch(digest):
        message = f"{digest[:100]!r} is no SHA-256 digest"
        raise RefusedError(message, fix="name contents by 64 hexadecimal digits, in lower case")
    name = hashlib.sha256(owner.encode("utf-8", "surrogateescape")).hexdigest()[:32]
    return f"{blobs.root}/{FOLDER}/{name}/{digest}"


def _touched(path: str) -> bool:
    """Whether it is there; if so somebody still wants it."""
    try:
        os.utime(path)
    except FileNotFoundError:
        return False
    return True


def _decoded(data: bytes) -> Manifest:
    try:
        manifest = decode(data)
        plain = manifest.encoded() == data
    except (RecursionError, UnicodeError) as error:
        message = f"this is no manifest: {error}"
        raise RefusedError(message, fix="send what `fairway` makes of a folder") from None
    if not plain:
        message = "this manifest is spelled in another way than `fairway` does"
        raise RefusedError(message, fix="send what `fairway` makes of a folder, with the version that the cluster has")
    return manifest


def _check(entries: tuple[Entry, ...], sent: Sent) -> None:
    """Only what a folder can be: files, links, empty folders, none below a file."""
    if not entries or (sent.is_file and (len(entries) != 1 or not entries[0].sha256 or "/" in entries[0].path)):
        message = "it is said to be one file, and is not" if entries else "it holds nothing"
        raise RefusedError(message, fix="name a file, or a folder with content")
    files = {entry.path for entry in entries if entry.sha256}
    for entry in entries:
        parents = entry.path.rstrip("/").split("/")
        if not _is_kind(entry) or any("/".join(parents[:depth]) in files for depth in range(1, len(parents))):
            message = f"{entry.path[:200]!r} is no file, link or empty folder that can be kept"
            raise RefusedError(message, fix="send what `fairway` makes of a folder")
        named = [len(os.fsencode(name)) for name in parents]
        if max(named) > _LONGEST_NAME or sum(named) + len(named) > _LONGEST_PATH:
            message = f"{entry.path[:100]!r}... is longer than a path can be"
            raise RefusedError(message, fix="give it a shorter name")


def _is_kind(entry: Entry) -> bool:
    if type(entry.size) is not int or type(entry.mode) is not int:
        return False
    if entry.symlink or entry.is_folder:
        mode = 0o777 if entry.symlink else 0o755
        return not entry.sha256 and (entry.size, entry.mode) == (0, mode) and not (entry.symlink and entry.is_folder)
    return _DIGEST.fullmatch(entry.sha256) is not None and entry.size >= 0 and entry.mode in _MODES


def _missing(what: str) -> UnavailableError:
    message = f"the content of {what} is not here, or no longer"
    return UnavailableError(message, fix="try again: only what is missing is sent")


def _private(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_CLOEXEC, 0o600)
