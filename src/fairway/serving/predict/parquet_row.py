"""Reads rows of Parquet files and writes predictions as Parquet. Uses pyarrow, from the extra `fairway[parquet]`."""

from __future__ import annotations

import bisect
from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from fairway.errors import UsageError

Array = NDArray[Any]


class ParquetRowFile:
    """One file; each column is an input. Reads one row group at a time, so the file may be larger than memory."""

    is_text = False
    names: Sequence[str] = ()

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            self._file = _pyarrow().ParquetFile(path)
        except (OSError, ValueError) as error:  # pyarrow's errors derive from ValueError
            message = f"{path}: {error}"
            raise UsageError(message, fix="write it with pyarrow, pandas, polars or DuckDB") from None
        metadata = self._file.metadata
        self._ends = list(accumulate(metadata.row_group(group).num_rows for group in range(metadata.num_row_groups)))
        """Number of rows up to the end of each row group."""
        self.count = int(metadata.num_rows)
        self._kept: tuple[int, dict[str, Array]] | None = None

    def read(self, start: int, stop: int) -> dict[str, Array]:
        """Return these rows by column name."""
        first, last = bisect.bisect_right(self._ends, start), bisect.bisect_left(self._ends, stop)
        pieces = []
        for group in range(first, last + 1):
            begins = self._ends[group - 1] if group else 0
            columns = self._group(group)
            pieces.append({name: array[max(0, start - begins) : stop - begins] for name, array in columns.items()})
        return {name: np.concatenate([piece[name] for piece in pieces]) for name in pieces[0]}

    def _group(self, number: int) -> dict[str, Array]:
        if self._kept is None or self._kept[0] != number:
            try:
                table = self._file.read_row_group(number)
            except (OSError, ValueError) as error:
                message = f"{self._path}: row group {number} cannot be read: {error}"
                raise UsageError(message, fix="write the file again") from None
            self._kept = (number, {name: self._array(name, table.column(name)) for name in table.column_names})
        return self._kept[1]

    def _array(self, name: str, column: Any) -> Array:
        """Convert a column of numbers, texts, or lists of equal length."""
        if column.null_count:
            raise self._wrong(name, f"has {column.null_count} empty cells", "fill them, or leave these rows out")
        values = column.combine_chunks()
        if hasattr(values, "chunks"):  # older versions of pyarrow return a chunked array here
            values = values.chunk(0)
        shape = [len(values)]
        while _is_list(values.type):
            flat = values.flatten()
            inner = len(flat) // max(1, len(values))
            if any(len(element) != inner for element in values):
                raise self._wrong(name, "has lists of different lengths", "give every row the same shape")
            shape.append(inner)
            values = flat
        if values.null_count:
            raise self._wrong(name, "has lists with empty elements", "fill them, or leave these rows out")
        if not _is_plain(values.type):
            raise self._wrong(name, f"is of the type {values.type}", "give numbers, booleans, texts or lists of these")
        array: Array = np.asarray(values.to_numpy(zero_copy_only=False)).reshape(shape)
        return array

    def _wrong(self, name: str, what: str, fix: str) -> UsageError:
        message = f"{self._path}: column {name!r} {what}"
        return UsageError(message, fix=fix)


def write(file: BinaryIO, start: int, outputs: dict[str, Array]) -> None:
    """Write predictions as a Parquet file: the row number, and a column for each output."""
    import pyarrow  # type: ignore[import-untyped,import-not-found,unused-ignore] # noqa: PLC0415  an extra

    count = len(next(iter(outputs.values()), ()))
    columns = {"row": pyarrow.array(np.arange(start, start + count))}
    for name, array in outputs.items():
        values = [_text(value) for value in array] if array.dtype.kind == "O" and array.ndim == 1 else array.tolist()
        columns[name] = pyarrow.array(array if array.ndim == 1 and array.dtype.kind in "biuf" else values)
    _pyarrow().write_table(pyarrow.table(columns), file)


def check() -> None:
    """Raise when pyarrow is not installed."""
    _pyarrow()


def _text(value: object) -> object:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value


def _is_list(of: Any) -> bool:
    from pyarrow import types  # noqa: PLC0415  the same

    return bool(types.is_list(of) or types.is_large_list(of) or types.is_fixed_size_list(of))


def _is_plain(of: Any) -> bool:
    from pyarrow import types  # noqa: PLC0415  the same

    texts = types.is_string(of) or types.is_large_string(of) or types.is_binary(of) or types.is_large_binary(of)
    return bool(texts or types.is_integer(of) or types.is_floating(of) or types.is_boolean(of))


def _pyarrow() -> Any:
    try:
        from pyarrow import parquet  # noqa: PLC0415  the same
    except ImportError:
        message = "Parquet is read and written by pyarrow, which is not installed"
        raise UsageError(message, fix="pip install 'fairway[parquet]'") from None
    return parquet
