"""Writes the predictions of one shard as one file, atomically: repeating a shard changes nothing."""

from __future__ import annotations

import csv
import io
import json
import os
import secrets
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairway.serving.predict import parquet_row

ENDINGS = {"jsonl": ".jsonl", "csv": ".csv", "parquet": ".parquet", "npz": ".npz"}
"""File suffix of each output format."""
Array = NDArray[Any]


class PredictionFolder:
    """The folder of the predictions."""

    def __init__(self, folder: Path, form: str) -> None:
        """Create the folder if necessary. `form`: a key of `ENDINGS`."""
        self._folder = folder
        self._form = form
        if form == "parquet":
            parquet_row.check()
        folder.mkdir(parents=True, exist_ok=True)
        self._drop_halves()

    def path(self, start: int) -> Path:
        """Return the file of the shard that begins with this row. Names sort in the order of rows."""
        return self._folder / f"part-{start:012d}{ENDINGS[self._form]}"

    def rows(self, count: int, size: int) -> int:
        """Return how many of `count` rows are predicted, given the finished shards of this size."""
        starts = (int(path.name[5:17]) for path in self._folder.glob(f"part-*{ENDINGS[self._form]}"))
        return sum(min(size, count - start) for start in starts if start < count)

    def write(self, start: int, outputs: dict[str, Array], names: Sequence[str] = ()) -> None:
        """Write a shard's predictions. `names`: the file names of its rows, if each row is a file."""
        # The temporary name contains no row number, so that it is not mistaken for a part.
        temporary = self._folder / f".{secrets.token_hex(8)}"
        named = _beside(("row", "file") if names else ("row",), outputs)
        if names:
            named = {"file": np.asarray(names, object), **named}
        with temporary.open("wb") as file:
            if self._form == "jsonl":
                file.write(_lines(start, named))
            elif self._form == "csv":
                file.write(_table(start, named))
            elif self._form == "parquet":
                parquet_row.write(file, start, named)
            else:
                np.savez(file, allow_pickle=False, **outputs)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(self.path(start))

    def _drop_halves(self) -> None:
        """Delete old temporary files of workers that were killed; recent ones may belong to a worker that is writing now."""
        newest = max((path.stat().st_mtime for path in self._folder.glob("part-*")), default=0.0)
        for path in self._folder.glob(".*"):
            if path.stat().st_mtime < newest - 3600:
                path.unlink(missing_ok=True)


def _beside(taken: Sequence[str], outputs: dict[str, Array]) -> dict[str, Array]:
    """Rename outputs whose names are taken by other columns."""
    return {f"output.{name}" if name in taken else name: array for name, array in outputs.items()}


def _lines(start: int, outputs: dict[str, Array]) -> bytes:
    columns = {name: array.tolist() for name, array in outputs.items()}
    count = len(next(iter(columns.values()), []))
    rows = ({"row": start + index, **{name: column[index] for name, column in columns.items()}} for index in range(count))
    return b"".join(json.dumps(row, default=_text).encode() + b"\n" for row in rows)


def _table(start: int, outputs: dict[str, Array]) -> bytes:
    """Return CSV with a column for each output; outputs with several values per row get columns `NAME.0`, `NAME.1` and so on."""
    count = len(next(iter(outputs.values()), ()))
    header, columns = ["row"], [[*range(start, start + count)]]
    for name, array in outputs.items():
        flat = array.reshape(count, -1)
        header += [name] if array.ndim == 1 else [f"{name}.{index}" for index in range(flat.shape[1])]
        columns += [[_cell(value) for value in column] for column in flat.T.tolist()]
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(zip(*columns, strict=True))
    return text.getvalue().encode()


def _cell(value: object) -> Any:
    return _text(value) if isinstance(value, bytes) else value


def _text(value: object) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
