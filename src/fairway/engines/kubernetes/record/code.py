"""The code that callers send along: unpacked aside, and kept in the operator's blobs as code is kept anywhere."""

from __future__ import annotations

import asyncio
import logging
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

from fairway.engines.kubernetes.marks import BLOB
from fairway.errors import RefusedError
from fairway.registry import snapshot
from fairway.registry.blobs import Blobs
from fairway.runtime.pod import archive
from fairway.units.quantity import show_bytes

log = logging.getLogger("fairway.operator")

AT_ONCE = 2
"""Archives that are taken at the same time."""


class Codes:
    """Takes archives of code."""

    def __init__(self, blobs: Blobs, folder: Path, limit: int = snapshot.LIMIT) -> None:
        self._blobs = blobs
        self._folder = folder
        self._limit = limit
        self._slots = asyncio.Semaphore(AT_ONCE)

    async def keep(self, sent: AsyncIterator[bytes], user: str) -> str:
        """What an object calls the code of this archive (gzipped tar). Nothing of it may lie outside its folder."""
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        async with self._slots:
            with tempfile.TemporaryDirectory(dir=self._folder) as aside:
                packed = Path(aside, "code.tar.gz")
                await self._receive(sent, packed)
                found = await asyncio.to_thread(self._keep, packed, Path(aside, "code"))
        log.info("code %s of %s: %d files", found.digest[:12], user, len(found.manifest.entries))
        return f"{BLOB}{found.digest}"

    async def _receive(self, sent: AsyncIterator[bytes], packed: Path) -> None:
        size = 0
        with packed.open("wb") as file:
            async for piece in sent:
                size += len(piece)
                if size > self._limit:
                    raise self._too_large(size)
                file.write(piece)

    def _keep(self, packed: Path, folder: Path) -> snapshot.Snapshot:
        folder.mkdir()
        try:
            with packed.open("rb") as sent:
                archive.unpack(sent, str(folder), limit=self._limit, copies=True)
        except archive.TooLargeError as error:
            raise self._too_large(error.size) from error
        except (archive.BadArchiveError, OSError) as error:
            message = f"the code that was sent cannot be unpacked: {error}"
            raise RefusedError(message, fix="send a gzipped tar archive whose paths stay in its folder") from error
        # Whoever sent it has left out what is to be left out.
        return snapshot.take(folder, self._blobs, ignoring=False, remembering=False)

    def _too_large(self, size: int) -> RefusedError:
        message = f"the code has more than {show_bytes(min(size, self._limit))}, which is the most"
        return RefusedError(message, fix="leave data out with .fairwayignore and name it under data:")
