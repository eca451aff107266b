"""Datasets: numbered versions of content, by copy."""

from __future__ import annotations

import json
import os
import re
import secrets
from dataclasses import asdict
from pathlib import Path

from fairway.app import crash
from fairway.errors import NotFoundError, RefusedError, UsageError
from fairway.registry import snapshot
from fairway.registry.blobs import Blobs
from fairway.registry.manifest import Entry, Manifest
from fairway.state.dataset import DatasetVersion
from fairway.units.names import check_name

_VERSION_FILE = re.compile(r"(?P<number>[1-9]\d*)\.json")
_REFERENCE = re.compile(r"(?P<name>[^@]+)@(?P<version>.+)")


def is_reference(text: str) -> bool:
    """Whether a text has the form of a version, `mnist@3`."""
    match = _REFERENCE.fullmatch(text)
    return match is not None and "/" not in text and ":" not in text


class Datasets:
    """The datasets of a home: `datasets/NAME/N.json`, their content in the blobs, laid out under `data/` when first used.

    Promises:
    1. A version is whole as soon as it has a number; numbers rise by one; a version never changes.
    2. The same content again gives the version that it has already, when that is the newest.
    """

    def __init__(self, root: Path, blobs: Blobs) -> None:
        self._root = root
        self._blobs = blobs

    def add(self, name: str, path: str | Path, now: float) -> DatasetVersion:
        """Keep a folder or a file as the next version, made now."""
        _check(name)
        source = Path(path)
        manifest, digest = self._taken(source)
        newest = self._newest(name)
        if newest is not None and newest.digest == digest:
            return newest
        number = newest.version if newest else 0
        files = sum(1 for entry in manifest.entries if entry.sha256)
        while True:
            number += 1
            version = DatasetVersion(name, number, digest, files, manifest.size, now, source.is_file())
            if self._claim(version):
                return version

    def get(self, reference: str) -> DatasetVersion:
        """The version that `mnist@3`, `mnist@latest` or `mnist` means."""
        match = _REFERENCE.fullmatch(reference)
        name, asked = (match["name"], match["version"]) if match else (reference, "latest")
        _check(name)
        known = self.versions(name)
        if not known:
            names = ", ".join(sorted({version.name for version in self.list()})) or "none"
            message = f"there is no dataset {name} here (known: {names})"
            raise NotFoundError(message, fix=f"add it with: fairway data add {name} PATH")
        if asked == "latest":
            return known[-1]
        for version in known:
            if str(version.version) == asked:
                return version
        message = f"dataset {name} has no version {asked}; it has {', '.join(str(version.version) for version in known)}"
        raise NotFoundError(message, fix=f"the newest is {known[-1]}")

    def resolve(self, reference: str) -> Path:
        """A path with the version's content, read-only; laid out when first asked for."""
        version = self.get(reference)
        folder = self._root / "data" / version.name / str(version.version)
        manifest = snapshot.load(version.digest, self._blobs)
        snapshot.materialise(manifest, self._blobs, folder, linked=True)
        return folder / manifest.entries[0].path if version.is_file else folder

    def versions(self, name: str) -> list[DatasetVersion]:
        """Every version of a dataset, oldest first."""
        folder = self._folder(name)
        try:
            numbers = sorted(int(match["number"]) for entry in os.listdir(folder) if (match := _VERSION_FILE.fullmatch(entry)))
        except FileNotFoundError:
            return []
        return [DatasetVersion(**json.loads((folder / f"{number}.json").read_bytes())) for number in numbers]

    def list(self) -> list[DatasetVersion]:
        """Every version of every dataset, by name and number."""
        try:
            names = sorted(entry for entry in os.listdir(self._root / "datasets") if not entry.startswith("."))
        except FileNotFoundError:
            return []
        return [version for name in names for version in self.versions(name)]

    def _taken(self, path: Path) -> tuple[Manifest, str]:
        if path.is_dir():
            taken = snapshot.take(path, self._blobs, ignoring=False, limit=None)
            if not taken.manifest.entries:
                message = f"{path} holds nothing"
                raise RefusedError(message, fix="name a folder with content")
            return taken.manifest, taken.digest
        if not path.is_file():
            message = f"there is no file or folder {path}"
            raise NotFoundError(message, fix="name what is to be kept")
        digest, size = self._blobs.put_files([path])[path]
        manifest = Manifest((Entry(path.name, 0o644, size, digest),))
        return manifest, self._blobs.put(manifest.encoded())

    def _claim(self, version: DatasetVersion) -> bool:
        """Take the number; False when somebody else just did."""
        folder = self._folder(version.name)
        folder.mkdir(parents=True, exist_ok=True)
        aside = folder / f".{secrets.token_hex(6)}"
        try:
            with aside.open("w") as file:
                json.dump(asdict(version), file)
                file.flush()
                os.fsync(file.fileno())
            with crash.reach("registry.rename"):
                # A link, since a rename would silently take the place of another's version.
                os.link(aside, folder / f"{version.version}.json")
        except FileExistsError:
            return False
        finally:
            aside.unlink(missing_ok=True)
        return True

    def _newest(self, name: str) -> DatasetVersion | None:
        known = self.versions(name)
        return known[-1] if known else None

    def _folder(self, name: str) -> Path:
        return self._root / "datasets" / name


def _check(name: str) -> None:
    try:
        check_name(name)
    except ValueError as error:
        message = f"dataset {name!r} {error}"
        raise UsageError(message) from None
