"""Receives files from other machines before they are accepted."""

from __future__ import annotations

import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fairway.registry.blob import telling_full_disk


class IncomingFolder:
    """A folder for files from outside: a file with its final name is complete and on disk, whatever crashed."""

    def __init__(self, root: Path) -> None:
        self._root = root

    @contextmanager
    def arriving(self) -> Iterator[Path]:
        """Yield a path for an incoming file; what remains at it afterwards is removed."""
        folder = self._root / ".arriving"
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        path = folder / secrets.token_hex(8)
        try:
            with telling_full_disk(self._root):
                yield path
        finally:
            path.unlink(missing_ok=True)

    def tidy(self) -> None:
        """Remove files that a crash left incomplete. Called before any file arrives."""
        shutil.rmtree(self._root / ".arriving", ignore_errors=True)

    def room(self) -> int:
        """Return the number of free bytes."""
        self._root.mkdir(mode=0o700, parents=True, exist_ok=True)
        return shutil.disk_usage(self._root).free
