"""Content that lies elsewhere: a path, or a URI of any kind that fsspec supports (`s3://`, `gs://`, `https://` ...)."""

from __future__ import annotations

import os
import re
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fairway.errors import NotFoundError, RefusedError, UsageError
from fairway.registry.blob import digest_file, telling_full_disk
from fairway.registry.folder_scan import scan
from fairway.registry.manifest import FolderManifest, ManifestEntry, check

_URI = re.compile(r"[A-Za-z][A-Za-z0-9+.:-]*://.*", re.DOTALL)
_FILE = "file://"


def is_uri(text: str) -> bool:
    """Return whether a text is a URI with a scheme and not a path."""
    return _URI.fullmatch(text) is not None


@contextmanager
def fetched(source: str, aside: Path) -> Iterator[Path]:
    """Yield a local path for a path or a URI; files that had to be fetched are removed afterwards."""
    if not is_uri(source) or source.startswith(_FILE):
        yield Path(source.removeprefix(_FILE))
        return
    folder = aside / secrets.token_hex(8)
    folder.mkdir(mode=0o700, parents=True)
    try:
        yield _fetch(source, folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def manifest_of(source: str) -> tuple[FolderManifest, bool]:
    """Return the manifest of a path or a URI, and whether it is one file. Remote files are not read: only their sizes count."""
    if is_uri(source) and not source.startswith(_FILE):
        files, names, is_file = _listed(source)
        return _checked(tuple(ManifestEntry(name, 0o644, files[location]) for name, location in names.items())), is_file
    path = Path(source.removeprefix(_FILE))
    if path.is_file():
        return FolderManifest((ManifestEntry(path.name, 0o644, path.stat().st_size, digest_file(path)),)), True
    if not path.is_dir():
        message = f"there is no file or folder {path}"
        raise NotFoundError(message, fix="give the path of an existing file or folder")
    scanned = scan(path, ignoring=False)
    if not scanned.files:
        message = f"{path} contains no files"
        raise RefusedError(message, fix="name a folder with content")
    files_here = [
        ManifestEntry(name, 0o755 if state.st_mode & 0o100 else 0o644, state.st_size, digest_file(path / name))
        for name, state in scanned.files.items()
    ]
    return FolderManifest(tuple(sorted([*files_here, *scanned.others]))), False


def differs(source: str, manifest: FolderManifest, since: float) -> str:
    """Return a description of the first file that differs from the manifest; empty if none is found to differ.

    Names and sizes are compared, and for files on this machine that were written after `since` also the content.
    """
    if is_uri(source) and not source.startswith(_FILE):
        files, names, _ = _listed(source)
        sizes = {name: files[location] for name, location in names.items()}
        written: dict[str, Path] = {}
    else:
        path = Path(source.removeprefix(_FILE))
        if not path.exists():
            return f"{path} no longer exists"
        states = {path.name: path.stat()} if path.is_file() else scan(path, ignoring=False).files
        sizes = {name: state.st_size for name, state in states.items()}
        written = {
            name: path if path.is_file() else path / name for name, state in states.items() if state.st_mtime >= since - 1.0
        }
    expected = {entry.path: entry for entry in manifest.entries if not entry.is_folder and not entry.symlink}
    for name in sorted({*expected, *sizes}):
        if name not in sizes or name not in expected:
            return f"{name} was {'added' if name in sizes else 'removed'}"
        if sizes[name] != expected[name].size or (name in written and digest_file(written[name]) != expected[name].sha256):
            return f"{name} was changed"
    return ""


def _fetch(uri: str, folder: Path) -> Path:
    _, names, is_file = _listed(uri)
    system, _ = open_store(uri)
    _checked(tuple(ManifestEntry(name) for name in names))
    with telling_full_disk(folder), telling(uri):
        for name, location in names.items():
            target = folder / name
            target.parent.mkdir(parents=True, exist_ok=True)
            system.get_file(location, os.fspath(target))
    return folder / next(iter(names)) if is_file else folder


def _listed(uri: str) -> tuple[dict[str, int], dict[str, str], bool]:
    """Return sizes by location, locations by name from the top, and whether the URI names one file."""
    system, root = open_store(uri)
    with telling(uri):
        if system.isfile(root):
            return {root: int(system.size(root) or 0)}, {root.rstrip("/").rpartition("/")[2]: root}, True
        sizes = {location: int(info.get("size") or 0) for location, info in system.find(root, detail=True).items()}
    if not sizes:
        message = f"there is nothing at {uri}"
        raise NotFoundError(message, fix="name a file or a folder with content")
    top = root.rstrip("/") + "/" if root.strip("/") else root
    return sizes, {location.removeprefix(top).lstrip("/"): location for location in sizes}, False


def open_store(uri: str) -> tuple[Any, str]:
    """Return the file system behind a URI, and the location in it."""
    import fsspec.core  # type: ignore[import-untyped]  # noqa: PLC0415  it costs as much as the whole registry, and few need it

    try:
        system, location = fsspec.core.url_to_fs(uri)
    except (ValueError, ImportError) as problem:
        message = f"{uri}: {problem}"
        raise UsageError(
            message, fix="install the package that its scheme needs (s3fs, gcsfs, adlfs ...), or copy the data here"
        ) from None
    return system, location


@contextmanager
def telling(uri: str) -> Iterator[None]:
    """Turn any exception of a third-party file system into a refusal that names the URI."""
    try:
        yield
    except FileNotFoundError:
        message = f"there is nothing at {uri}"
        raise NotFoundError(message, fix="name a file or a folder with content") from None
    except RefusedError:
        raise
    except Exception as problem:  # Each file system has its own exceptions.
        message = f"{uri} cannot be read: {type(problem).__name__}: {problem}"
        raise RefusedError(message, fix="check that it exists and that this machine may read it") from problem


def _checked(entries: tuple[ManifestEntry, ...]) -> FolderManifest:
    """Accept names from elsewhere as paths only if none leads out of its folder."""
    check(entries)
    return FolderManifest(tuple(sorted(entries)))
