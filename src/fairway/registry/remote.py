"""Blobs in an object store, with a folder of this machine before it."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterable, Mapping
from pathlib import Path

from fairway.errors import DamagedError, NotFoundError
from fairway.registry import sources
from fairway.registry.blobs import Blobs

_WHOLE_OR_NOT = frozenset({"s3", "s3a", "gs", "gcs", "abfs", "az", "adl", "oss", "memory"})
"""Stores in which an upload that breaks off leaves nothing; elsewhere it is written aside and renamed."""


class RemoteBlobs(Blobs):
    """The blobs of a store that fsspec knows. What was put lies there when `put` returns; what is read is fetched once.

    The promises of `Blobs` hold, and: content that comes back damaged is never handed out.
    """

    def __init__(self, root: Path, uri: str) -> None:
        super().__init__(root)
        self._uri = uri
        self._system, self._top = sources.open_store(uri)
        self._damaged: set[str] = set()
        """What came back damaged from the store: a good copy that is put is sent again."""

    def put(self, data: bytes) -> str:
        """Keep some bytes; their digest."""
        digest = super().put(data)
        self._send([digest])
        return digest

    def put_files(self, paths: Iterable[Path]) -> dict[Path, tuple[str, int]]:
        """Keep the content of files; digest and size of what was read, for each."""
        found = super().put_files(paths)
        self._send(digest for digest, _ in found.values())
        return found

    def adopt(self, files: Mapping[str, Path]) -> None:
        """Give names to content that lies in files of this disk and was compared with its digest; the files are gone then."""
        super().adopt(files)
        self._send(files)

    def read(self, digest: str) -> bytes:
        """The content of a small blob."""
        self.provide([digest])
        return super().read(digest)

    def provide(self, digests: Iterable[str]) -> None:
        """Fetch those of these blobs that this machine does not have, or not intact."""
        missing = [digest for digest in dict.fromkeys(digests) if not self.intact(digest)]
        if not missing:
            return
        folder = self.root / "aside" / secrets.token_hex(12)
        folder.mkdir(mode=0o700, parents=True)
        try:
            for digest in missing:
                self._fetch(digest, folder / digest)
        finally:
            for left in folder.iterdir():
                left.unlink()
            folder.rmdir()

    def _fetch(self, digest: str, aside: Path) -> None:
        try:
            with sources.telling(self._uri):
                self._system.get_file(self._there(digest), os.fspath(aside))
        except NotFoundError:
            message = f"blob {digest[:12]} is neither in {self.root} nor in {self._uri}"
            raise NotFoundError(message, fix="register or add it again") from None
        found = super().put_files([aside])[aside][0]
        if found != digest:
            self._damaged.add(digest)
            message = f"blob {digest[:12]} came back from {self._uri} as {found[:12]}: it is damaged there"
            raise DamagedError(message, fix="register or add it again")

    def _send(self, digests: Iterable[str]) -> None:
        with sources.telling(self._uri):
            for digest in dict.fromkeys(digests):
                there = self._there(digest)
                if digest not in self._damaged and self._system.exists(there):
                    continue
                self._system.makedirs(there.rpartition("/")[0], exist_ok=True)
                if _WHOLE_OR_NOT.intersection(_schemes(self._system.protocol)):
                    self._system.put_file(self.place(digest), there)
                else:
                    aside = f"{there}.{secrets.token_hex(6)}"
                    self._system.put_file(self.place(digest), aside)
                    self._system.mv(aside, there)
                self._damaged.discard(digest)

    def _there(self, digest: str) -> str:
        return f"{self._top.rstrip('/')}/sha256/{digest[:2]}/{digest[2:]}"


def open_blobs(root: Path, uri: str = "") -> Blobs:
    """The blobs of a home: its folder, or with a URI the store behind it."""
    return RemoteBlobs(root, uri) if uri else Blobs(root)


def _schemes(protocol: str | tuple[str, ...]) -> tuple[str, ...]:
    return (protocol,) if isinstance(protocol, str) else tuple(protocol)
