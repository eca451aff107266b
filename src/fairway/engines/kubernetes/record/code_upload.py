"""Receives code from callers: unpacks it into a temporary folder and stores it in the operator's blob store."""

from __future__ import annotations

import asyncio
import logging
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

from fairway.engines.kubernetes.annotation import BLOB
from fairway.errors import RefusedError
from fairway.registry import snapshot
from fairway.registry.blob import BlobStore
from fairway.runtime.pod import archive
from fairway.units.quantity import show_bytes

log = logging.getLogger("fairway.operator")

AT_ONCE = 2
"""Maximum number of archives processed concurrently."""


class CodeUploads:
    """Receives archives of code."""

    def __init__(self, blobs: BlobStore, folder: Path, limit: int = snapshot.LIMIT) -> None:
        self._blobs = blobs
        self._folder = folder
        self._limit = limit
        self._slots = asyncio.Semaphore(AT_ONCE)

    async def keep(self, sent: AsyncIterator[bytes], user: str) -> str:
        """Store the code of an archive (gzipped tar) and return its reference for objects. No path may leave the folder."""
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        async with self._slots:
            with tempfile.TemporaryDirectory(dir=self._folder) as temporary:
                packed = Path(temporary, "code.tar.gz")
                await self._receive(sent, packed)
                kept = await asyncio.to_thread(self._keep, packed, Path(temporary, "code"))
        log.info("code %s of %s: %d files", kept.digest[:12], user, len(kept.manifest.entries))
        return f"{BLOB}{kept.digest}"

    async def _receive(self, sent: AsyncIterator[bytes], packed: Path) -> None:
        size = 0
        with packed.open("wb") as file:
            async for piece in sent:
                size += len(piece)
                if size > self._limit:
                    raise self._too_large(size)
                file.write(piece)

    def _keep(self, packed: Path, folder: Path) -> snapshot.CodeSnapshot:
        folder.mkdir()
        try:
            with packed.open("rb") as sent:
                archive.unpack(sent, str(folder), limit=self._limit, copies=True)
        except archive.TooLargeError as error:
            raise self._too_large(error.size) from error
        except (archive.BadArchiveError, OSError) as error:
            message = f"the code that was sent cannot be unpacked: {error}"
            raise RefusedError(message, fix="send a gzipped tar archive whose paths stay in its folder") from error
        # The sender has applied the ignore rules already.
        return snapshot.take(folder, self._blobs, ignoring=False, remembering=False)

    def _too_large(self, size: int) -> RefusedError:
        message = f"the code has more than {show_bytes(min(size, self._limit))}, the limit"
        return RefusedError(message, fix="leave data out with .fairwayignore and name it under data:")
