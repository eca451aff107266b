"""Folders of the registry as archives, read from the blobs while they are sent."""

from __future__ import annotations

import tarfile
from collections.abc import Iterator

from fairway.registry import snapshot
from fairway.registry.blob import BlobStore
from fairway.registry.manifest import FolderManifest, ManifestEntry
from fairway.runtime.pod import archive

_WORTH = 1 << 18


def packed(digest: str, blobs: BlobStore) -> Iterator[bytes]:
    """Return the folder of a manifest as a tar archive, in pieces.

    Raises before the first piece if content is missing or damaged.
    """
    manifest = snapshot.load(digest, blobs)
    snapshot.provide(manifest, blobs)
    return gathered(_pieces(manifest, blobs))


def _pieces(manifest: FolderManifest, blobs: BlobStore) -> Iterator[bytes]:
    for entry in manifest.entries:
        yield _header(entry)
        if entry.sha256:
            with open(blobs.place(entry.sha256), "rb") as file:
                while block := file.read(archive.BLOCK):
                    yield block
            yield archive.padding(entry.size)
    yield archive.END


def _header(entry: ManifestEntry) -> bytes:
    if entry.symlink:
        return archive.header(entry.path, mode=entry.mode, kind=tarfile.SYMTYPE, link=entry.symlink)
    if entry.is_folder:
        return archive.header(entry.path, mode=entry.mode, kind=tarfile.DIRTYPE)
    return archive.header(entry.path, entry.size, entry.mode)


def gathered(pieces: Iterator[bytes]) -> Iterator[bytes]:
    """Return the same bytes in larger pieces, each worth one step of the server."""
    buffer = bytearray()
    for piece in pieces:
        buffer += piece
        if len(buffer) >= _WORTH:
            yield bytes(buffer)
            buffer.clear()
    if buffer:
        yield bytes(buffer)
