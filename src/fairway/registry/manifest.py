"""Manifests: the content of a folder as data, identified by a digest."""

from __future__ import annotations

import json
from dataclasses import dataclass

from fairway.errors import RefusedError
from fairway.runtime.symbolic_link import LinkEscapeError, check_links
from fairway.runtime.symbolic_link import stays_inside as stays_inside

FORMAT = 1
_FIELDS = ("path", "mode", "size", "sha256", "symlink")


@dataclass(frozen=True, slots=True, order=True)
class ManifestEntry:
    """One item of a folder: a file, a link (`symlink` is its target), or an empty folder (its path ends with a slash)."""

    path: str
    mode: int = 0o644
    size: int = 0
    sha256: str = ""
    symlink: str = ""

    @property
    def is_folder(self) -> bool:
        """Whether it is an empty folder."""
        return self.path.endswith("/")


@dataclass(frozen=True, slots=True)
class FolderManifest:
    """All items of a folder, ordered by path."""

    entries: tuple[ManifestEntry, ...]

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(entry.size for entry in self.entries)

    def encoded(self, elsewhere: str = "") -> bytes:
        """Return the canonical encoding of this manifest; its digest identifies the content.

        The manifest of content that is kept `elsewhere` names that location too. So if a manifest without a location exists,
        all the content that it names exists too.
        """
        listed = [{name: value for name in _FIELDS if (value := getattr(entry, name))} for entry in sorted(self.entries)]
        location = {"elsewhere": elsewhere} if elsewhere else {}
        text = json.dumps({"format": FORMAT, "entries": listed, **location}, separators=(",", ":"), ensure_ascii=False)
        return text.encode("utf-8", "surrogateescape")


def decode(data: bytes) -> FolderManifest:
    """Decode a manifest; raise `RefusedError` if it is damaged or would reach outside of its folder."""
    try:
        content = json.loads(data.decode("utf-8", "surrogateescape"))
        entries = tuple(ManifestEntry(**entry) for entry in content["entries"])
        valid = content["format"] == FORMAT and all(_typed(entry) for entry in entries)
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        message = f"this is not a manifest: {error}"
        raise RefusedError(message, fix="the registry's file is damaged; add or submit it again") from None
    if not valid:
        message = "this manifest was written by another version of Fairway, or is damaged"
        raise RefusedError(message, fix="add or submit it again")
    check(entries)
    return FolderManifest(entries)


def check(entries: tuple[ManifestEntry, ...]) -> None:
    """Refuse entries that would reach outside of the folder: by their path, through a link, or with a link.

    Links are followed through each other, as the kernel would.
    """
    links = {entry.path for entry in entries if entry.symlink}
    seen: set[str] = set()
    for entry in entries:
        path = entry.path.rstrip("/") if entry.is_folder else entry.path
        parts = path.split("/")
        if not path or "\0" in path or any(part in ("", ".", "..") for part in parts):
            raise _escapes(entry.path, "its path leaves the folder")
        if path in seen:
            raise _escapes(entry.path, "it is listed twice")
        seen.add(path)
        if any("/".join(parts[:depth]) in links for depth in range(1, len(parts))):
            raise _escapes(entry.path, "it lies below a link")
        if entry.symlink and entry.is_folder:
            raise _escapes(entry.path, "it is both a link and a folder")
        if entry.symlink and not stays_inside(path, entry.symlink):
            raise _escapes(entry.path, f"it links to {entry.symlink!r} outside of the folder")
    try:
        check_links({entry.path: entry.symlink for entry in entries if entry.symlink})
    except LinkEscapeError as error:
        raise _escapes(error.path, f"it {error.why}") from None


def _typed(entry: ManifestEntry) -> bool:
    texts = (entry.path, entry.sha256, entry.symlink)
    return all(isinstance(text, str) for text in texts) and all(isinstance(number, int) for number in (entry.mode, entry.size))


def _escapes(path: str, why: str) -> RefusedError:
    return RefusedError(f"{path!r} is refused: {why}", fix="make the content again with `fairway`, and do not edit manifests")
