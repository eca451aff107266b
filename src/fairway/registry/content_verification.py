"""Compares all content of versions with its digests, and reports the versions with damaged content."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager

from fairway.app.verification_progress import VerificationProgress
from fairway.errors import DamagedError, FairwayError
from fairway.registry import snapshot
from fairway.registry.blob import MISSING, BlobStore
from fairway.registry.manifest import FolderManifest
from fairway.state.content_check import ContentVerification, DamagedFile

_NO_LIST = "the list of its files cannot be read"


@contextmanager
def naming(version: object, kind: str) -> Iterator[None]:
    """Make an error about damaged content name the version (of the kind `model` or `data`) and its repair."""
    try:
        yield
    except DamagedError as error:
        name = str(version).partition("@")[0].rpartition("/")[2]
        command = f"fairway model register {name} PATH" if kind == "model" else f"fairway data add {name} PATH"
        fix = f"add the intact files again: {command}; list what is damaged: fairway {kind} verify {name}"
        raise DamagedError(f"{version}: {error.message}", fix=fix) from None


def verify(
    versions: Mapping[str, str], blobs: BlobStore, course: VerificationProgress, elsewhere: Collection[str] = ()
) -> ContentVerification:
    """Read all content of versions (their manifests' digests, by name) and compare it, ignoring earlier results.

    Content that versions share is read once. For versions whose content lies `elsewhere`, only the manifests are read.
    """
    manifests: dict[str, FolderManifest] = {}
    damaged: list[DamagedFile] = []
    for version, digest in versions.items():
        try:
            manifest = snapshot.load(digest, blobs)
        except FairwayError as error:
            damaged.append(DamagedFile(version, "", f"{_NO_LIST}: {error.message}"))
            continue
        if version not in elsewhere:
            manifests[version] = manifest
    sizes = {entry.sha256: entry.size for manifest in manifests.values() for entry in manifest.entries if entry.sha256}
    course.total = sum(sizes.values())
    faults = {digest: _fault(digest, blobs, course) for digest in sizes}
    for version, manifest in manifests.items():
        damaged += [
            DamagedFile(version, entry.path, faults[entry.sha256])
            for entry in manifest.entries
            if entry.sha256 and faults[entry.sha256]
        ]
    return ContentVerification(len(versions), len(sizes), course.total, tuple(damaged))


def _fault(digest: str, blobs: BlobStore, course: VerificationProgress) -> str:
    fault = blobs.fault(digest, anew=True, read=course.read)
    if fault == MISSING:
        try:
            # A remote store may have content that this machine has not fetched yet.
            blobs.provide([digest])
        except FairwayError as error:
            return error.message
        fault = blobs.fault(digest, read=course.read)
    return fault
