"""Folders as tar archives that travel between a pod and the operator. Standard library only, Python 3.9 and newer.

Nothing of an archive is believed: only plain files, empty folders and links that stay inside become something, each once,
in a folder that was empty; the digest of what was written is compared with that of the content that was asked for.
"""

from __future__ import annotations

import hashlib
import json
import os
import tarfile
from collections.abc import Iterator
from typing import IO, Any

BLOCK = 1 << 20
MOST = 200_000
"""Members of an archive."""
_FORMAT = 1
"""Of the manifests whose digest names a folder's content (`fairway.registry.manifest`)."""


class BadArchiveError(Exception):
    """What came is not what was asked for, or would reach outside of its folder."""


def unpack(source: IO[bytes], folder: str) -> list[dict[str, Any]]:
    """Write what the archive holds into an empty folder; what was written, as the entries of a manifest."""
    found: dict[str, dict[str, Any]] = {}
    links: dict[str, str] = {}
    try:
        with tarfile.open(fileobj=source, mode="r|*") as archive:
            for member in archive:
                if len(found) >= MOST:
                    raise BadArchiveError(f"it has more than {MOST} members")
                entry = _taken(archive, member, folder, set(found))
                found[entry["path"].rstrip("/")] = entry
                if member.issym():
                    links[entry["path"]] = member.linkname
    except (tarfile.TarError, EOFError) as error:
        raise BadArchiveError(f"it broke off or is no archive ({error})") from error
    if any(path.startswith(link + "/") for link in links for path in found):
        raise BadArchiveError("something in it lies below a link")
    # Last, so that no file could have been written through one.
    for path, target in links.items():
        os.symlink(target, os.path.join(folder, path))
    return sorted(found.values(), key=lambda entry: str(entry["path"]))


def _taken(archive: tarfile.TarFile, member: tarfile.TarInfo, folder: str, seen: set[str]) -> dict[str, Any]:
    path = checked_name(member.name)
    if path in seen:
        raise BadArchiveError(f"{path!r} is in it twice")
    place = os.path.join(folder, path)
    if member.issym():
        if not stays_inside(path, member.linkname):
            raise BadArchiveError(f"{path!r} links to {member.linkname!r}, outside of the folder")
        os.makedirs(os.path.dirname(place), exist_ok=True)
        return {"path": path, "mode": 0o777, "symlink": member.linkname}
    if member.isdir():
        os.makedirs(place, exist_ok=True)
        return {"path": path + "/", "mode": 0o755}
    # One with holes could say that it is larger than any disk.
    content = archive.extractfile(member) if member.isreg() and not member.issparse() else None
    if content is None:
        raise BadArchiveError(f"{path!r} is neither a file nor a folder")
    os.makedirs(os.path.dirname(place), exist_ok=True)
    mode = 0o755 if member.mode & 0o100 else 0o644
    digest, size = _written(content, place, mode)
    if size != member.size:
        raise BadArchiveError(f"{path!r} broke off after {size} of {member.size} bytes")
    return {"path": path, "mode": mode, **({"size": size} if size else {}), "sha256": digest}


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
    """The path of a member. Raises `BadArchiveError` for one that leads out of its folder."""
    path = name[:-1] if name.endswith("/") else name
    if not path or "\0" in path or any(part in ("", ".", "..") for part in path.split("/")):
        raise BadArchiveError(f"the path {name!r} leaves the folder")
    return path


def stays_inside(path: str, target: str) -> bool:
    """Whether a link at the path, pointing to the target, stays within the folder, read as text."""
    if not target or target.startswith("/") or "\0" in target:
        return False
    depth = path.count("/")
    for part in target.split("/"):
        if part in ("", "."):
            continue
        depth += -1 if part == ".." else 1
        if depth < 0:
            return False
    return True


def digest_of(entries: list[dict[str, Any]]) -> str:
    """The name of the content: the digest of its manifest, in the one spelling that there is of it."""
    text = json.dumps({"format": _FORMAT, "entries": entries}, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()


def pack(folder: str, names: list[str] | None = None) -> Iterator[bytes]:
    """A folder's plain files as a tar archive, in pieces; `names` chooses some. Links and special files are left out."""
    for name in names if names is not None else files_below(folder):
        place = os.path.join(folder, name)
        with open(place, "rb") as file:
            state = os.fstat(file.fileno())
            yield header(name, state.st_size, 0o755 if state.st_mode & 0o100 else 0o644)
            left = state.st_size
            while left:
                block = file.read(min(BLOCK, left))
                if not block:
                    raise BadArchiveError(f"{name} became shorter while it was read")
                left -= len(block)
                yield block
        yield padding(state.st_size)
    yield END


def length(folder: str, names: list[str]) -> int:
    """Bytes of the archive that `pack` makes of the same names."""
    sizes = {name: os.stat(os.path.join(folder, name)).st_size for name in names}
    return len(END) + sum(len(header(name, size)) + size + len(padding(size)) for name, size in sizes.items())


END = bytes(2 * tarfile.BLOCKSIZE)
"""How an archive ends."""


def header(name: str, size: int = 0, mode: int = 0o644, kind: bytes = tarfile.REGTYPE, link: str = "") -> bytes:
    """What stands before a member's content. Times and owners are left out, so that the same content gives the same bytes."""
    member = tarfile.TarInfo(name)
    member.size, member.mode, member.type, member.linkname = size, mode, kind, link
    return member.tobuf(tarfile.PAX_FORMAT, "utf-8", "surrogateescape")


def padding(size: int) -> bytes:
    """What stands behind it."""
    return bytes(-size % tarfile.BLOCKSIZE)


def files_below(folder: str) -> list[str]:
    """Relative names of the plain files below a folder, in order."""
    found = []
    for place, _, names in os.walk(folder):
        for name in names:
            path = os.path.join(place, name)
            if os.path.isfile(path) and not os.path.islink(path):
                found.append(os.path.relpath(path, folder))
    return sorted(found)
