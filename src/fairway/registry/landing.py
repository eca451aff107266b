"""Where files land that others send, before they count."""

from __future__ import annotations

import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fairway.registry.blobs import telling_full_disk


class Landing:
    """A folder that files come into from outside: what has a name in it is whole and on the disk, whatever crashed."""

    def __init__(self, root: Path) -> None:
        self._root = root

    @contextmanager
    def arriving(self) -> Iterator[Path]:
        """A place for a file on its way in; whatever is there at the end goes."""
        folder = self._root / ".arriving"
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        path = folder / secrets.token_hex(8)
        try:
            with telling_full_disk(self._root):
                yield path
        finally:
            path.unlink(missing_ok=True)

    def tidy(self) -> None:
        """Remove what a crash left half arrived. Before anything arrives."""
        shutil.rmtree(self._root / ".arriving", ignore_errors=True)

    def room(self) -> int:
        """Bytes that are free."""
        self._root.mkdir(mode=0o700, parents=True, exist_ok=True)
        return shutil.disk_usage(self._root).free
