"""The rows of a dataset in any supported file format: reads a range of them as named arrays."""

from __future__ import annotations

import base64
import bisect
import csv
import itertools
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import msgspec
import numpy as np
from numpy.typing import NDArray

from fairway.errors import NotFoundError, UsageError
from fairway.serving.predict.image_row import ENDINGS as IMAGES
from fairway.serving.predict.image_row import ImageFolder
from fairway.serving.predict.parquet_row import ParquetRowFile
from fairway.serving.predict.prediction_batch import typed
from fairway.serving.replica.model.datatype import DTYPES, of_texts
from fairway.state.model import TensorSpec

Array = NDArray[Any]
ENDINGS = (".npy", ".npz", ".jsonl", ".csv", ".parquet")
ONLY = ""
"""The name of the only array of a file without names; it is the model's first input."""


class DatasetRowFile(Protocol):
    """One file of rows."""

    count: int
    is_text: bool
    """Whether predictions are also written as lines of text."""
    names: Sequence[str]
    """The name of each row, if rows are files; otherwise empty."""

    def read(self, start: int, stop: int) -> dict[str, Array]:
        """Return these rows by input name."""
        ...


@dataclass(frozen=True, slots=True)
class DatasetRows:
    """All rows of a dataset, in the order of its file names."""

    files: tuple[DatasetRowFile, ...]

    def __len__(self) -> int:
        """Return the number of rows."""
        return sum(file.count for file in self.files)

    @property
    def is_text(self) -> bool:
        """Whether all files are text."""
        return all(file.is_text for file in self.files)

    @property
    def images(self) -> Sequence[ImageFolder]:
        """The image folders, which are read according to the model's input."""
        return [file for file in self.files if isinstance(file, ImageFolder)]

    def names(self, start: int, stop: int) -> list[str]:
        """Return the names of these rows; empty when they have none."""
        return [name for file in self.files for name in file.names][start:stop]

    def read(self, start: int, stop: int) -> dict[str, Array]:
        """Return a range of rows. All files of a dataset must have the same inputs."""
        pieces: list[dict[str, Array]] = []
        for file in self.files:
            if start < file.count and stop > 0:
                pieces.append(file.read(max(0, start), min(stop, file.count)))
            start, stop = start - file.count, stop - file.count
        names = pieces[0].keys() if pieces else set()
        if any(piece.keys() != names for piece in pieces):
            message = f"the files of the dataset have different inputs: {sorted({name for piece in pieces for name in piece})}"
            raise UsageError(message, fix="put only files with the same arrays into one folder")
        return {name: np.concatenate([piece[name] for piece in pieces]) for name in names}


def open_rows(path: Path) -> DatasetRows:
    """Open the rows of a file, or of all supported files of a folder. Each image is one row."""
    everything = sorted(path.rglob("*")) if path.is_dir() else [path]
    files = [entry for entry in everything if entry.suffix in ENDINGS]
    images = [entry for entry in everything if entry.suffix.lower() in IMAGES]
    if not path.exists() or not (files or images or path.is_file()):
        message = f"{path} holds no rows"
        raise NotFoundError(message, fix=f"files of rows end in {', '.join((*ENDINGS, *IMAGES))}")
    if files and images:
        message = f"{path} holds images and files of rows: {images[0].name} and {files[0].name}"
        raise UsageError(message, fix="put them into separate folders")
    if images:
        return DatasetRows((ImageFolder(images, path if path.is_dir() else path.parent),))
    return DatasetRows(tuple(_open(file) for file in files or [path]))


def _open(path: Path) -> DatasetRowFile:
    if path.suffix == ".npy":
        return _NumpyRowFile({ONLY: _mapped(path)})
    if path.suffix == ".npz":
        return _archive(path)
    if path.suffix == ".jsonl":
        return _SampledRequestFile(path) if _are_requests(path) else _JsonLinesRowFile(path)
    if path.suffix == ".csv":
        return _CsvRowFile(path)
    if path.suffix == ".parquet":
        return ParquetRowFile(path)
    message = f"{path} is not a file of rows"
    raise UsageError(message, fix=f"files of rows end in {', '.join(ENDINGS)}")


class _NumpyRowFile:
    """Arrays whose first dimension is the row."""

    is_text = False
    names: Sequence[str] = ()

    def __init__(self, arrays: dict[str, Array]) -> None:
        self._arrays = arrays
        lengths = {array.shape[0] if array.ndim else 0 for array in arrays.values()}
        if len(lengths) != 1 or lengths == {0}:
            message = f"the arrays have {sorted(lengths)} rows"
            raise UsageError(message, fix="give arrays whose first dimensions have the same length, one entry per row")
        (self.count,) = lengths

    def read(self, start: int, stop: int) -> dict[str, Array]:
        return {name: np.asarray(array[start:stop]) for name, array in self._arrays.items()}


class _JsonLinesRowFile:
    """One JSON value per line: an object of inputs by name, or the only input itself."""

    is_text = True
    names: Sequence[str] = ()

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offsets = _line_offsets(path)
        self.count = len(self._offsets)

    def read(self, start: int, stop: int) -> dict[str, Array]:
        columns: dict[str, list[Any]] = {}
        for number, line in enumerate(self._lines(start, stop), start=start):
            try:
                value = json.loads(line)
            except ValueError as error:
                message = f"{self._path}:{number + 1}: {error}"
                raise UsageError(message, fix="write one JSON value per line") from None
            for name, entry in (value if isinstance(value, dict) else {ONLY: value}).items():
                columns.setdefault(name, []).append(entry)
        if any(len(column) != stop - start for column in columns.values()):
            message = f"{self._path}: lines {start + 1} to {stop} do not all have the inputs {sorted(columns)}"
            raise UsageError(message, fix="write the same names in every line")
        return {name: _array(column, f"{self._path}: {name or 'rows'}") for name, column in columns.items()}

    def _lines(self, start: int, stop: int) -> Iterator[bytes]:
        with self._path.open("rb") as file:
            file.seek(self._offsets[start])
            for _ in range(start, stop):
                yield file.readline()


class _SampledTensor(msgspec.Struct):
    """An input of a sampled request."""

    name: str
    datatype: str
    shape: tuple[int, ...]
    data: list[Any]

    def rows(self) -> Array:
        if self.datatype == "BYTES":
            return of_texts([_bytes_of(value) for value in _flat(self.data)]).reshape(self.shape)
        if self.datatype not in DTYPES:
            raise KeyError(self.datatype)
        return typed(TensorSpec(self.name, self.datatype), np.asarray(self.data)).reshape(self.shape)


class _SampledRequest(msgspec.Struct):
    """A request of the Open Inference Protocol; other members, such as a sampled answer, are ignored."""

    inputs: list[_SampledTensor]


class _SampledRequestFile:
    """Requests of the Open Inference Protocol, one per line, each with one or more rows."""

    is_text = True
    names: Sequence[str] = ()

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offsets = _line_offsets(path)
        self._ends: list[int] = []
        """Number of rows up to the end of each line."""
        count = 0
        with path.open("rb") as file:
            for number, line in enumerate(itertools.islice(file, len(self._offsets)), start=1):
                count += self._decoded(line, number).inputs[0].shape[0]
                self._ends.append(count)
        self.count = count

    def read(self, start: int, stop: int) -> dict[str, Array]:
        first, last = bisect.bisect_right(self._ends, start), bisect.bisect_left(self._ends, stop)
        requests: list[_SampledRequest] = []
        with self._path.open("rb") as file:
            file.seek(self._offsets[first])
            requests.extend(self._decoded(file.readline(), number + 1) for number in range(first, last + 1))
        begins = self._ends[first - 1] if first else 0
        names = [tensor.name for tensor in requests[0].inputs]
        if any([tensor.name for tensor in request.inputs] != names for request in requests):
            message = f"{self._path}: lines {first + 1} to {last + 1} do not all have the inputs {sorted(names)}"
            raise UsageError(message, fix="the model's inputs changed in between: name an older version of the dataset")
        columns = ((name, self._rows(requests, index, first)) for index, name in enumerate(names))
        return {name: _joined(pieces, self._path)[start - begins : stop - begins] for name, pieces in columns}

    def _rows(self, requests: list[_SampledRequest], place: int, first: int) -> list[Array]:
        arrays = []
        for number, request in enumerate(requests, start=first + 1):
            tensor = request.inputs[place]
            try:
                arrays.append(tensor.rows())
            except UsageError as error:
                message = f"{self._path}:{number}: {error.message}"
                raise UsageError(message, fix=error.fix) from None
            except (ValueError, TypeError, KeyError, OverflowError) as error:
                message = f"{self._path}:{number}: input {tensor.name!r} is not {tensor.datatype} {list(tensor.shape)}: {error}"
                raise UsageError(message, fix="give as many values as the shape requires, of the declared datatype") from None
        return arrays

    def _decoded(self, line: bytes, number: int) -> _SampledRequest:
        try:
            request = _REQUEST.decode(line)
            rows = {tensor.shape[0] for tensor in request.inputs if tensor.shape}
            if len(rows) == 1 and len(request.inputs) == sum(bool(tensor.shape) for tensor in request.inputs):
                return request
            problem = "its inputs do not have the same number of rows, as the first dimension"
        except msgspec.DecodeError as error:
            problem = str(error)
        message = f"{self._path}:{number}: {problem}"
        raise UsageError(message, fix='write requests as clients send them: {"inputs": [{"name", "datatype", "shape", "data"}]}')


_REQUEST = msgspec.json.Decoder(_SampledRequest)


def _joined(pieces: list[Array], path: Path) -> Array:
    try:
        return np.concatenate(pieces)
    except ValueError as error:
        message = f"{path}: {error}"
        raise UsageError(message, fix="predict with --batch 1 and --shard 1 if the shapes of the requests differ") from None


def _are_requests(path: Path) -> bool:
    """Whether the lines are requests of the Open Inference Protocol, as sent by clients and sampled by replicas."""
    with path.open("rb") as file:
        line = file.readline()
    try:
        request = json.loads(line)
    except ValueError:
        return False
    inputs = request.get("inputs") if isinstance(request, dict) else None
    if not isinstance(inputs, list) or not inputs:
        return False
    return all(isinstance(tensor, dict) and tensor.keys() >= {"name", "datatype", "shape", "data"} for tensor in inputs)


def _flat(values: list[Any]) -> Iterator[Any]:
    for value in values:
        if isinstance(value, list):
            yield from _flat(value)
        else:
            yield value


def _bytes_of(value: Any) -> bytes:
    return base64.b64decode(value["b64"]) if isinstance(value, dict) else str(value).encode()


class _CsvRowFile:
    """Comma-separated numbers; a first line that is not all numbers is a header. The whole row is one input."""

    is_text = True
    names: Sequence[str] = ()

    def __init__(self, path: Path) -> None:
        with path.open(newline="") as file:
            lines = [line for line in csv.reader(file) if line]
        has_header = bool(lines) and not _all_numbers(lines[0])
        try:
            self._table = np.asarray([[float(cell) for cell in line] for line in lines[has_header:]], np.float64)
        except ValueError as error:
            message = f"{path}: {error}"
            raise UsageError(message, fix="every cell below the names must be a number; use .jsonl for anything else") from None
        self.count = len(self._table)

    def read(self, start: int, stop: int) -> dict[str, Array]:
        return {ONLY: self._table[start:stop]}


def _mapped(path: Path) -> Array:
    try:
        array: Array = np.load(path, mmap_mode="r", allow_pickle=False)
    except (ValueError, OSError) as error:
        message = f"{path}: {error}"
        raise UsageError(message, fix="write it with numpy.save, and no objects in it") from None
    return array


def _archive(path: Path) -> _NumpyRowFile:
    try:
        with np.load(path, allow_pickle=False) as archive:
            return _NumpyRowFile({name: archive[name] for name in archive.files})
    except (ValueError, OSError) as error:
        message = f"{path}: {error}"
        raise UsageError(message, fix="write it with numpy.savez, and no objects in it") from None


def _line_offsets(path: Path) -> list[int]:
    offsets, offset = [], 0
    with path.open("rb") as file:
        for line in file:
            if line.strip():
                offsets.append(offset)
            elif offsets:
                if any(later.strip() for later in file):
                    message = f"{path}: an empty line between others"
                    raise UsageError(message, fix="write one JSON value per line")
                break
            offset += len(line)
    return offsets


def _array(values: Sequence[Any], place: str) -> Array:
    try:
        array = np.asarray(values)
    except ValueError:
        array = np.empty(0, object)
    if array.dtype.kind in "biufU":
        return array
    message = f"{place}: the values have no common shape or type"
    raise UsageError(message, fix="give every row the same shape")


def _all_numbers(cells: Sequence[str]) -> bool:
    try:
        return bool([float(cell) for cell in cells])
    except ValueError:
        return False
