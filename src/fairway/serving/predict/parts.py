"""The predictions of one shard as one file, whole or not there at all: doing a shard again changes nothing."""

from __future__ import annotations

import json
import os
import secrets
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


class Parts:
    """The folder of the predictions."""

    def __init__(self, folder: Path, *, text: bool) -> None:
        self._folder = folder
        self._text = text
        folder.mkdir(parents=True, exist_ok=True)
        self._drop_halves()

    def path(self, start: int) -> Path:
        """The file of the shard that begins with this row: in order of name is in order of rows."""
        return self._folder / f"part-{start:012d}{'.jsonl' if self._text else '.npz'}"

    def write(self, start: int, outputs: dict[str, Array]) -> None:
        """Write a shard's predictions."""
        # The name says nothing of rows, so that nobody takes it for a part.
        aside = self._folder / f".{secrets.token_hex(8)}"
        with aside.open("wb") as file:
            if self._text:
                file.write(_lines(start, outputs))
            else:
                np.savez(file, allow_pickle=False, **outputs)
            file.flush()
            os.fsync(file.fileno())
        aside.replace(self.path(start))

    def _drop_halves(self) -> None:
        """What a worker that was killed left half written; another may be writing now, so only what is old."""
        newest = max((path.stat().st_mtime for path in self._folder.glob("part-*")), default=0.0)
        for path in self._folder.glob(".*"):
            if path.stat().st_mtime < newest - 3600:
                path.unlink(missing_ok=True)


def _lines(start: int, outputs: dict[str, Array]) -> bytes:
    columns = {name: array.tolist() for name, array in outputs.items()}
    count = len(next(iter(columns.values()), []))
    rows = ({"row": start + place, **{name: column[place] for name, column in columns.items()}} for place in range(count))
    return b"".join(json.dumps(row, default=_text).encode() + b"\n" for row in rows)


def _text(value: object) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
