"""Blobs in an object store, with a folder of this machine as a cache."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterable, Mapping
from pathlib import Path

from fairway.errors import DamagedError, NotFoundError
from fairway.registry import external_source
from fairway.registry.blob import BlobStore

_WHOLE_OR_NOT = frozenset({"s3", "s3a", "gs", "gcs", "abfs", "az", "adl", "oss", "memory"})
"""Stores in which an interrupted upload leaves nothing; in others, a file is uploaded under another name and renamed."""


class RemoteBlobStore(BlobStore):
    """The blobs of a store that fsspec supports. A blob is in the store when `put` returns; what is read is fetched once.

    The guarantees of `BlobStore` hold, and: content that comes back damaged is never handed out.
    """

    def __init__(self, root: Path, uri: str) -> None:
        super().__init__(root)
        self._uri = uri
        self._system, self._top = external_source.open_store(uri)
        self._damaged: set[str] = set()
        """Digests that came back damaged from the store: a good copy that is put is sent again."""

    def put(self, data: bytes) -> str:
        """Store some bytes; return their digest."""
        digest = super().put(data)
        self._send([digest])
        return digest

    def put_files(self, paths: Iterable[Path]) -> dict[Path, tuple[str, int]]:
        """Store the content of files; return digest and size of what was read, for each."""
        stored = super().put_files(paths)
        self._send(digest for digest, _ in stored.values())
        return stored

    def adopt(self, files: Mapping[str, Path]) -> None:
        """Make blobs of verified content in files on this disk; the files are gone afterwards."""
        super().adopt(files)
        self._send(files)

    def read(self, digest: str) -> bytes:
        """Return the content of a small blob."""
        self.provide([digest])
        return super().read(digest)

    def provide(self, digests: Iterable[str]) -> None:
        """Fetch those of these blobs that are missing or damaged on this machine."""
        missing = [digest for digest in dict.fromkeys(digests) if not self.intact(digest)]
        if not missing:
            return
        folder = self.root / "aside" / secrets.token_hex(12)
        folder.mkdir(mode=0o700, parents=True)
        try:
            for digest in missing:
                self._fetch(digest, folder / digest)
        finally:
            for file in folder.iterdir():
                file.unlink()
            folder.rmdir()

    def _fetch(self, digest: str, aside: Path) -> None:
        try:
            with external_source.telling(self._uri):
                self._system.get_file(self._there(digest), os.fspath(aside))
        except NotFoundError:
            message = f"blob {digest[:12]} is neither in {self.root} nor in {self._uri}"
            raise NotFoundError(message, fix="register or add it again") from None
        actual = super().put_files([aside])[aside][0]
        if actual != digest:
            self._damaged.add(digest)
            message = f"blob {digest[:12]} from {self._uri} has the digest {actual[:12]}: it is damaged there"
            raise DamagedError(message, fix="register or add it again")

    def _send(self, digests: Iterable[str]) -> None:
        with external_source.telling(self._uri):
            for digest in dict.fromkeys(digests):
                location = self._there(digest)
                if digest not in self._damaged and self._system.exists(location):
                    continue
                self._system.makedirs(location.rpartition("/")[0], exist_ok=True)
                if _WHOLE_OR_NOT.intersection(_schemes(self._system.protocol)):
                    self._system.put_file(self.place(digest), location)
                else:
                    temporary = f"{location}.{secrets.token_hex(6)}"
                    self._system.put_file(self.place(digest), temporary)
                    self._system.mv(temporary, location)
                self._damaged.discard(digest)

    def _there(self, digest: str) -> str:
        return f"{self._top.rstrip('/')}/sha256/{digest[:2]}/{digest[2:]}"


def open_blobs(root: Path, uri: str = "") -> BlobStore:
    """Return the blobs of a home: its folder, or with a URI the store behind it."""
    return RemoteBlobStore(root, uri) if uri else BlobStore(root)


def _schemes(protocol: str | tuple[str, ...]) -> tuple[str, ...]:
    return (protocol,) if isinstance(protocol, str) else tuple(protocol)
