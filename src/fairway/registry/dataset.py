"""Datasets: numbered versions of content, by copy or by reference."""

from __future__ import annotations

import json
import os
import re
import secrets
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path

import msgspec

from fairway.app.system import crash_point
from fairway.app.upload import UploadedContent
from fairway.app.verification_progress import VerificationProgress
from fairway.errors import NotFoundError, RefusedError, UsageError
from fairway.registry import external_source, numbered_record, snapshot
from fairway.registry.blob import BlobStore
from fairway.registry.content_archive import packed
from fairway.registry.content_verification import naming, verify
from fairway.registry.manifest import FolderManifest, ManifestEntry
from fairway.registry.registry_namespace import DATASETS, RegistryNamespaces, in_words, split
from fairway.registry.upload import content_upload
from fairway.state.content_check import ContentVerification
from fairway.state.dataset import DatasetFile, DatasetVersion
from fairway.units.names import check_name

_REFERENCE = re.compile(r"(?P<name>[^@]+)@(?P<version>.+)")


def is_reference(text: str) -> bool:
    """Return whether a text has the form of a version, `mnist@3`."""
    match = _REFERENCE.fullmatch(text)
    return match is not None and "/" not in text and ":" not in text


class DatasetRegistry:
    """The datasets of a home: `datasets/NAME/N.json`, their content in the blobs, laid out under `data/` on first use.

    Guarantees:
    1. A version is complete as soon as it has a number; numbers rise by one; a version never changes.
    2. Adding the same content again returns the existing version if that is the newest.
    3. A version by reference names content that lies elsewhere; if that has changed, it is refused instead of handed out.
    4. A number is never used again, not even after a deletion.
    """

    def __init__(self, root: Path, blobs: BlobStore, namespaces: RegistryNamespaces | None = None) -> None:
        self._root = root
        self._namespaces = namespaces or RegistryNamespaces(root)
        self._blobs = blobs

    def add(
        self, name: str, path: str | Path | UploadedContent, now: float, *, reference: bool = False, run: str = ""
    ) -> DatasetVersion:
        """Add a folder or a file as the next version; with `reference`, record only what it is and not its content."""
        self._check(name)
        if isinstance(path, UploadedContent):
            with content_upload.closing(path, self._blobs):
                manifest, _ = content_upload.load(path, self._blobs)
                content_upload.adopt(path, manifest, self._blobs)
                return self._next(name, manifest, path.digest, now, is_file=path.is_file)
        with self._blobs.writing():
            return self._added(name, str(path), now, reference=reference, run=run)

    def _added(self, name: str, text: str, now: float, *, reference: bool, run: str) -> DatasetVersion:
        if reference:
            manifest, is_file = external_source.manifest_of(text)
            digest = self._blobs.put(manifest.encoded(elsewhere=text))
        else:
            is_file = Path(text).is_file()
            manifest, digest = self._taken(Path(text))
        return self._next(name, manifest, digest, now, is_file=is_file, where=text if reference else "", run=run)

    def _next(
        self, name: str, manifest: FolderManifest, digest: str, now: float, *, is_file: bool, where: str = "", run: str = ""
    ) -> DatasetVersion:
        """Return the next version, or the newest if that is the same."""
        newest = self._newest(name)
        if newest is not None and (newest.digest, newest.reference) == (digest, where):
            return newest
        return self._numbered(DatasetVersion(name, 0, digest, _count(manifest), manifest.size, now, is_file, where, run))

    def gather(
        self, name: str, files: Mapping[str, Path], now: float, services: Sequence[str], models: Sequence[str], largest: int
    ) -> DatasetVersion:
        """Add files to those of the newest version that services made, as the next version.

        The first files in order of name are dropped until at most `largest` bytes remain. A repeated call returns the existing
        version.
        """
        self._check(name)
        with self._blobs.writing():
            return self._gathered(name, files, now, (services, models), largest)

    def _gathered(
        self, name: str, files: Mapping[str, Path], now: float, sources: tuple[Sequence[str], Sequence[str]], largest: int
    ) -> DatasetVersion:
        before = next((version for version in reversed(self.versions(name)) if version.services), None)
        entries = {entry.path: entry for entry in snapshot.load(before.digest, self._blobs).entries} if before else {}
        taken = self._blobs.put_files(files.values())
        entries |= {path: ManifestEntry(path, 0o644, taken[source][1], taken[source][0]) for path, source in files.items()}
        manifest = FolderManifest(tuple(_last(sorted(entries.values()), largest)))
        digest = self._blobs.put(manifest.encoded())
        if before is not None and before.digest == digest:
            return before
        lineage_before = (before.services, before.models) if before else ((), ())
        lineage = [tuple(dict.fromkeys([*old, *new])) for old, new in zip(lineage_before, sources, strict=True)]
        version = DatasetVersion(name, 0, digest, _count(manifest), manifest.size, now, services=lineage[0], models=lineage[1])
        return self._numbered(version)

    def delete(self, version: DatasetVersion) -> None:
        """Delete a version. Its number is not used again."""
        folder = self._folder(version.name)
        # Not while content is freed: a note that is taken for an older one would be lost.
        with self._blobs.writing(), numbered_record.locked(folder):
            if version.version not in numbered_record.numbers(folder):
                message = f"{version} is gone"
                raise NotFoundError(message, fix="fairway data list")
            self._forget_laid_out(version)
            # The note comes first: content with a note that a version still names is not freed.
            numbered_record.put(self._root / numbered_record.FREEABLE / version.digest, b"")
            numbered_record.take_away(folder, version.version)

    def get(self, reference: str) -> DatasetVersion:
        """Return the version that `mnist@3`, `mnist@latest` or `mnist` names."""
        match = _REFERENCE.fullmatch(reference)
        name, selector = (match["name"], match["version"]) if match else (reference, "latest")
        self._check(name)
        versions = self.versions(name)
        if not versions:
            namespace, bare = split(name)
            names = ", ".join(split(dataset)[1] for dataset in self._namespaces.names(DATASETS, namespace)) or "none"
            message = f"there is no dataset {bare} {in_words(namespace)} (known: {names})"
            raise NotFoundError(message, fix=f"add it with: fairway data add {bare} PATH")
        if selector == "latest":
            return versions[-1]
        for version in versions:
            if str(version.version) == selector:
                return version
        message = f"dataset {name} has no version {selector}; it has {', '.join(str(version.version) for version in versions)}"
        raise NotFoundError(message, fix=f"the newest is {versions[-1]}")

    def files(self, version: DatasetVersion) -> tuple[DatasetFile, ...]:
        """Return the files of a version, ordered by path."""
        with naming(version, "data"):
            entries = snapshot.load(version.digest, self._blobs).entries
        return tuple(DatasetFile(entry.path, entry.size, entry.sha256) for entry in entries if not entry.is_folder)

    def packed(self, version: DatasetVersion) -> Iterator[bytes]:
        """Return the content of a version as a tar archive, in pieces."""
        if version.reference:
            message = f"{version} is a reference: its content was never copied"
            raise RefusedError(message, fix=f"read it from {version.reference}")
        with naming(version, "data"):
            return packed(version.digest, self._blobs)

    def verify(self, versions: Sequence[DatasetVersion], course: VerificationProgress) -> ContentVerification:
        """Compare all content of versions with its digests; for versions by reference only the list of files is stored."""
        elsewhere = {str(version) for version in versions if version.reference}
        return verify({str(version): version.digest for version in versions}, self._blobs, course, elsewhere)

    def locate(self, reference: str) -> str:
        """Return where a program finds the version: `resolve`, or the URI or path that it refers to."""
        version = self.get(reference)
        if not version.reference:
            return str(self.resolve(reference))
        changed = external_source.differs(version.reference, snapshot.load(version.digest, self._blobs), version.created)
        if changed:
            message = f"{version} refers to {version.reference}, which has changed since it was added: {changed}"
            raise RefusedError(message, fix=f"add it again: fairway data add {version.name} {version.reference} --reference")
        return version.reference

    def resolve(self, reference: str) -> Path:
        """Return a read-only path with the version's content; it is created on first use."""
        version = self.get(reference)
        if version.reference:
            message = f"{version} is a reference: its content was never copied"
            raise RefusedError(message, fix=f"read it from {version.reference}")
        folder = self._namespaces.folder("data", version.name) / str(version.version)
        with naming(version, "data"):
            manifest = snapshot.load(version.digest, self._blobs)
            snapshot.materialise(manifest, self._blobs, folder, linked=True)
        return folder / manifest.entries[0].path if version.is_file else folder

    def versions(self, name: str) -> list[DatasetVersion]:
        """Return every version of a dataset, oldest first."""
        folder = self._folder(name)
        records = (numbered_record.record(folder, number) for number in numbered_record.numbers(folder))
        return [_decoded(record) for record in records]

    def list(self) -> list[DatasetVersion]:
        """Return every version of every dataset, ordered by name and number."""
        return [version for name in self._namespaces.names(DATASETS) for version in self.versions(name)]

    def own(self, reference: str, namespace: str) -> str:
        """Return the absolute name of a bare name in a namespace; names of other namespaces are refused."""
        return self._namespaces.own(reference, namespace)

    def meant(self, reference: str, namespace: str) -> str:
        """Return the absolute name that a name in an object of a namespace refers to."""
        return self._namespaces.meant(DATASETS, reference, namespace)

    def relative(self, reference: str, namespace: str) -> str:
        """Return the shortest name for an absolute one in an object of a namespace."""
        return self._namespaces.relative(DATASETS, reference, namespace)

    def _taken(self, path: Path) -> tuple[FolderManifest, str]:
        if path.is_dir():
            taken = snapshot.take(path, self._blobs, ignoring=False, limit=None, recorded=True)
            if not taken.manifest.entries:
                message = f"{path} is empty"
                raise RefusedError(message, fix="name a folder with content")
            return taken.manifest, taken.digest
        if not path.is_file():
            message = f"there is no file or folder {path}"
            raise NotFoundError(message, fix="give the path of an existing file or folder")
        digest, size = self._blobs.put_files([path])[path]
        manifest = FolderManifest((ManifestEntry(path.name, 0o644, size, digest),))
        return manifest, self._blobs.put(manifest.encoded())

    def _numbered(self, version: DatasetVersion) -> DatasetVersion:
        """Store the version under the next number and return it."""
        folder = self._folder(version.name)
        while True:
            numbered = replace(version, version=numbered_record.next_number(folder))
            if numbered_record.claim(folder, numbered.version, json.dumps(asdict(numbered)).encode()):
                return numbered

    def _forget_laid_out(self, version: DatasetVersion) -> None:
        """Remove the laid-out folder in one step, so that a crash leaves no partial folder under the version's name."""
        folder = self._namespaces.folder("data", version.name) / str(version.version)
        if folder.is_dir():
            temporary = folder.with_name(f".{version.version}-{secrets.token_hex(6)}")
            with crash_point.reach("registry.rename"):
                os.rename(folder, temporary)
            shutil.rmtree(temporary, ignore_errors=True)

    def _newest(self, name: str) -> DatasetVersion | None:
        versions = self.versions(name)
        return versions[-1] if versions else None

    def _folder(self, name: str) -> Path:
        return self._namespaces.folder(DATASETS, name)

    def _check(self, name: str) -> str:
        return self._namespaces.check("dataset", name)


def _count(manifest: FolderManifest) -> int:
    return sum(1 for entry in manifest.entries if not entry.is_folder and not entry.symlink)


def _last(entries: list[ManifestEntry], largest: int) -> list[ManifestEntry]:
    """Return as many of the last entries as there is room for, and the very last in any case."""
    room = largest
    for index in range(len(entries) - 1, -1, -1):
        room -= entries[index].size
        if room < 0 and index < len(entries) - 1:
            return entries[index + 1 :]
    return entries


def _decoded(record: Path) -> DatasetVersion:
    return msgspec.convert(json.loads(record.read_bytes()), DatasetVersion)


def check_dataset_name(name: str) -> None:
    """Raise `UsageError` for an invalid name; no other text ever becomes part of a path."""
    try:
        check_name(name)
    except ValueError as error:
        message = f"dataset {name!r} {error}"
        raise UsageError(message) from None
