"""Folders as tar archives for transfer between a pod and the operator. Standard library only, Python 3.9 and newer.

Archives are not trusted: only plain files, empty folders and links that stay inside are written, each once, into an empty folder.
The digest of the result is compared with that of the requested content.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import tarfile
import zlib
from collections.abc import Iterator
from typing import IO, Any

from fairway.runtime.symbolic_link import LinkEscapeError, check_links, stays_inside

_BAD_PATHS = (errno.EEXIST, errno.ENOTDIR, errno.EISDIR, errno.ENAMETOOLONG, errno.ELOOP)
BLOCK = 1 << 20
MOST = 200_000
"""Maximum number of members of an archive."""
_FORMAT = 1
"""Format version of the manifests whose digest identifies a folder's content (`fairway.registry.manifest`)."""


class BadArchiveError(Exception):
    """Raised when an archive is not the requested content, or would write outside of its folder."""


class TooLargeError(BadArchiveError):
    """Raised when the files of an archive have more bytes than allowed."""

    def __init__(self, size: int) -> None:
        super().__init__(f"its files have {size} bytes or more")
        self.size = size


def unpack(source: IO[bytes], folder: str, limit: int | None = None, copies: bool = False) -> list[dict[str, Any]]:
    """Unpack an archive into an empty folder; return the written content as the entries of a manifest.

    Links are created last, after all of them were resolved (`links.check_links`), so that nothing is ever written through a link.
    `limit`: maximum bytes of all files. `copies`: a hard link to an earlier file of the archive becomes a copy of it.
    """
    entries: dict[str, dict[str, Any]] = {}
    links: dict[str, str] = {}
    size = 0
    try:
        with tarfile.open(fileobj=source, mode="r|*") as archive:
            for member in archive:
                if len(entries) >= MOST:
                    raise BadArchiveError(f"it has more than {MOST} members")
                size += max(0, member.size)
                if limit is not None and size > limit:
                    raise TooLargeError(size)
                entry = _taken(archive, member, folder, entries, copies)
                entries[entry["path"].rstrip("/")] = entry
                if member.issym():
                    links[entry["path"]] = member.linkname
                elif limit is not None and member.islnk():
                    size += entry.get("size", 0)
    except (tarfile.TarError, EOFError, zlib.error) as error:
        raise BadArchiveError(f"it is truncated or not an archive ({error})") from error
    except OSError as error:
        if error.errno in _BAD_PATHS:
            raise BadArchiveError(f"a path in it cannot be created ({error.strerror})") from error
        raise
    _make_links(links, entries, folder)
    return sorted(entries.values(), key=lambda entry: str(entry["path"]))


def _make_links(linked: dict[str, str], found: dict[str, dict[str, Any]], folder: str) -> None:
    for path in found:
        parts = path.split("/")
        if any("/".join(parts[:depth]) in linked for depth in range(1, len(parts))):
            raise BadArchiveError(f"{path!r} in it is below a link")
    try:
        check_links(linked)
    except LinkEscapeError as error:
        raise BadArchiveError(str(error)) from error
    for path, target in linked.items():
        os.symlink(target, os.path.join(folder, path))


def _taken(
    archive: tarfile.TarFile, member: tarfile.TarInfo, folder: str, seen: dict[str, dict[str, Any]], copies: bool
) -> dict[str, Any]:
    path = checked_name(member.name)
    if path in seen:
        raise BadArchiveError(f"it contains {path!r} twice")
    target = os.path.join(folder, path)
    if member.issym():
        if not stays_inside(path, member.linkname):
            raise BadArchiveError(f"{path!r} links to {member.linkname!r}, outside of the folder")
        os.makedirs(os.path.dirname(target), exist_ok=True)
        return {"path": path, "mode": 0o777, "symlink": member.linkname}
    if member.isdir():
        os.makedirs(target, exist_ok=True)
        return {"path": path + "/", "mode": 0o755}
    if copies and member.islnk():
        return _copied(path, seen.get(checked_name(member.linkname), {}), folder)
    # A sparse file could claim to be larger than any disk.
    content = archive.extractfile(member) if member.isreg() and not member.issparse() else None
    if content is None:
        raise BadArchiveError(f"{path!r} is neither a file nor a folder")
    os.makedirs(os.path.dirname(target), exist_ok=True)
    mode = 0o755 if member.mode & 0o100 else 0o644
    digest, size = _written(content, target, mode)
    if size != member.size:
        raise BadArchiveError(f"{path!r} ends after {size} of {member.size} bytes")
    return {"path": path, "mode": mode, **({"size": size} if size else {}), "sha256": digest}


def _copied(path: str, earlier: dict[str, Any], folder: str) -> dict[str, Any]:
    """Copy an earlier file of this archive; a hard link to any other file is rejected."""
    if "sha256" not in earlier:
        raise BadArchiveError(f"{path!r} is a hard link to something that is not a file of the archive")
    target = os.path.join(folder, path)
    os.makedirs(os.path.dirname(target), exist_ok=True)
    with open(os.path.join(folder, earlier["path"]), "rb") as content:
        _written(content, target, earlier["mode"])
    return {**earlier, "path": path}


def _written(content: IO[bytes], place: str, mode: int) -> tuple[str, int]:
    digest, size = hashlib.sha256(), 0
    handle = os.open(place, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, mode)
    with os.fdopen(handle, "wb") as file:
        for block in iter(lambda: content.read(BLOCK), b""):
            digest.update(block)
            size += len(block)
            file.write(block)
    return digest.hexdigest(), size


def checked_name(name: str) -> str:
    """Return the path of a member. Raises `BadArchiveError` if it leads out of its folder."""
    path = name[:-1] if name.endswith("/") else name
    if not path or "\0" in path or any(part in ("", ".", "..") for part in path.split("/")):
        raise BadArchiveError(f"the path {name!r} leads out of the folder")
    return path


def digest_of(entries: list[dict[str, Any]]) -> str:
    """Return the digest that identifies the content: that of its manifest in canonical form."""
    text = json.dumps({"format": _FORMAT, "entries": entries}, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()


def pack(folder: str, names: list[str] | None = None) -> Iterator[bytes]:
    """Yield a folder's plain files as a tar archive, in pieces; `names` selects some of them.

    Links and special files are left out.
    """
    for name in names if names is not None else files_below(folder):
        path = os.path.join(folder, name)
        with open(path, "rb") as file:
            state = os.fstat(file.fileno())
            yield header(name, state.st_size, 0o755 if state.st_mode & 0o100 else 0o644)
            remaining = state.st_size
            while remaining:
                block = file.read(min(BLOCK, remaining))
                if not block:
                    raise BadArchiveError(f"{name} became shorter while it was read")
                remaining -= len(block)
                yield block
        yield padding(state.st_size)
    yield END


def length(folder: str, names: list[str]) -> int:
    """Return the size in bytes of the archive that `pack` makes of the same names."""
    sizes = {name: os.stat(os.path.join(folder, name)).st_size for name in names}
    return len(END) + sum(len(header(name, size)) + size + len(padding(size)) for name, size in sizes.items())


END = bytes(2 * tarfile.BLOCKSIZE)
"""The end-of-archive marker."""


def header(name: str, size: int = 0, mode: int = 0o644, kind: bytes = tarfile.REGTYPE, link: str = "") -> bytes:
    """Return the header of a member. Times and owners are left out, so that the same content gives the same bytes."""
    member = tarfile.TarInfo(name)
    member.size, member.mode, member.type, member.linkname = size, mode, kind, link
    return member.tobuf(tarfile.PAX_FORMAT, "utf-8", "surrogateescape")


def padding(size: int) -> bytes:
    """Return the padding after a member of this size."""
    return bytes(-size % tarfile.BLOCKSIZE)


def files_below(folder: str) -> list[str]:
    """Return the relative names of the plain files below a folder, in order."""
    relative_names = []
    for parent, _, names in os.walk(folder):
        for name in names:
            path = os.path.join(parent, name)
            if os.path.isfile(path) and not os.path.islink(path):
                relative_names.append(os.path.relpath(path, folder))
    return sorted(relative_names)
