"""MLflow's scoring server: `/invocations` with tables as JSON or CSV, and with tensors."""

from __future__ import annotations

import csv
import math
from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from fairway.serving.replica.model.datatype import DTYPES, Array
from fairway.serving.replica.model.served_model import InferenceRequest, ReplicaResponse, ServedModel
from fairway.serving.replica.protocols.json_piece import FRAME_WORTH, LARGE, TEXT_WORTH, WORTH, Steps, finish, small, weight
from fairway.serving.replica.protocols.json_tensor import FLOATS, read_json, read_tensors
from fairway.serving.replica.protocols.nonfinite_token import encoded
from fairway.serving.replica.protocols.tfserving import TfPredictCodec, nested
from fairway.serving.replica.protocols.tfserving_row import (
    InputColumn,
    asked_of,
    check_params,
    large_predict,
    large_rows,
    take_rows,
)
from fairway.serving.replica.request_error import RequestError, bad
from fairway.state.model import TensorSpec
from fairway.version import __version__

_JSON, _CSV = b"application/json", b"text/csv"
_MOST_COLUMNS = 1 << 16
_MISSING = frozenset({"", "NaN", "nan", "NA", "N/A", "null", "NULL", "None", "<NA>", "#N/A", "n/a", "-NaN", "-nan"})
"""Texts that pandas treats as missing values in CSV."""
_TRUTHS = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
_CELLS = 1000
"""Minimum number of CSV values to read in one step, rounded up to whole lines."""
_ORIENTED = ("dataframe_split", "dataframe_records", "instances", "inputs")


class _DataframeSplit(msgspec.Struct, forbid_unknown_fields=True):
    data: msgspec.Raw
    columns: msgspec.Raw = msgspec.Raw(b"null")
    index: msgspec.Raw = msgspec.Raw(b"null")


class _MlflowRequest(msgspec.Struct, forbid_unknown_fields=True):
    dataframe_split: _DataframeSplit | None = None
    dataframe_records: msgspec.Raw = msgspec.Raw(b"null")
    instances: msgspec.Raw = msgspec.Raw(b"null")
    inputs: msgspec.Raw = msgspec.Raw(b"null")
    params: msgspec.Raw = msgspec.Raw(b"null")


_NOTHING = (None, msgspec.Raw(b"null"))
_DECODER = msgspec.json.Decoder(_MlflowRequest)
_PARAMS = msgspec.json.Decoder(dict[str, Any] | None)
_COLUMNS = msgspec.json.Decoder(list[str | int])
_INDEX = msgspec.json.Decoder(list[Any])


def version_page() -> ReplicaResponse:
    """Answer `GET /version`."""
    return ReplicaResponse(__version__.encode(), content_type=b"text/plain; charset=utf-8")


class MlflowInvocations:
    """`POST /invocations` of one model, by content type."""

    def __init__(self, model: ServedModel) -> None:
        self._tables = MlflowJsonCodec(model)
        self._csv = MlflowCsvCodec(model)

    def form(self, headers: list[tuple[bytes, bytes]]) -> MlflowJsonCodec:
        """Return the parser for the content type of a request."""
        content_type = next((value for name, value in headers if name == b"content-type"), b"")
        kind, *parameters = (part.strip().lower() for part in content_type.split(b";"))
        for parameter in parameters:
            if parameter and parameter not in (b"charset=utf-8", b'charset="utf-8"', b"charset=utf8"):
                message = f"the content type has {parameter[:60].decode('latin-1')!r}"
                raise RequestError(415, message, fix="send UTF-8")
        if kind in (_JSON, b"", b"application/x-www-form-urlencoded"):  # the default of curl --data
            return self._tables
        if kind == _CSV:
            return self._csv
        message = f"the content type {kind[:60].decode('latin-1')!r} is not supported"
        raise RequestError(415, message, fix="send application/json or text/csv")


class MlflowJsonCodec:
    """JSON: `dataframe_split`, `dataframe_records`, `instances` or `inputs`."""

    def __init__(self, model: ServedModel) -> None:
        self._model = model
        self._predict = TfPredictCodec(model)

    def read(self, body: bytes, head_length: bytes | None) -> InferenceRequest:
        """Parse a table or tensors."""
        return finish(self.steps(body, head_length))

    def steps(self, body: bytes, head_length: bytes | None) -> Steps[InferenceRequest]:
        """Parse a large request in steps."""
        yield FRAME_WORTH * len(body)
        request: _MlflowRequest = yield from read_tensors(_DECODER, body)
        members = [name for name in _ORIENTED if getattr(request, name) not in _NOTHING]
        if len(members) != 1:
            description = " and ".join(members) or "none of them"
            message = f"the request has {description}"
            raise bad(message, f"send exactly one of {', '.join(_ORIENTED)}")
        check_params(small(request.params, _PARAMS, "params"))
        if members[0] in ("instances", "inputs"):
            return (yield from (large_predict(self._model, body) if len(body) > LARGE else self._tensors(body)))
        if request.dataframe_split is not None:
            return (yield from self._split(request.dataframe_split))
        return (
            yield from large_rows(
                self._model, memoryview(request.dataframe_records), "dataframe_records", DataframeRecords(self._model)
            )
        )

    def _tensors(self, body: bytes) -> Steps[InferenceRequest]:
        yield from ()
        return self._predict.read(body, None)

    def _split(self, split: _DataframeSplit) -> Steps[InferenceRequest]:
        names = None
        if split.columns not in _NOTHING:
            yield WORTH * len(memoryview(split.columns))
            names = [str(name) for name in read_json(_COLUMNS, split.columns)]
        rows = DataframeSplitRows(self._model, names)
        question = yield from large_rows(self._model, memoryview(split.data), "data of dataframe_split", rows)
        if split.index not in _NOTHING:
            yield weight(question.inputs) + WORTH * len(memoryview(split.index))
            entries = len(read_json(_INDEX, split.index))
            if entries != rows.count:
                message = f"the index of dataframe_split has {entries} entries for {rows.count} rows"
                raise bad(message)
        return question

    def write(self, question: InferenceRequest, outputs: list[Array]) -> ReplicaResponse:
        """Write `predictions`: the only output, or for several outputs a record per row."""
        specs = self._model.signature.outputs
        columns = [nested(spec, output) for spec, output in zip(specs, outputs, strict=True)]
        if len(columns) == 1:
            return ReplicaResponse(encoded({"predictions": columns[0]}, outputs))
        names = [spec.name for spec in specs]
        if question.columnar or not self._model.batches:
            return ReplicaResponse(encoded({"predictions": dict(zip(names, columns, strict=True))}, outputs))
        rows = [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]
        return ReplicaResponse(encoded({"predictions": rows}, outputs, by_rows=True))


class MlflowCsvCodec(MlflowJsonCodec):
    """CSV with a header line."""

    def steps(self, body: bytes, head_length: bytes | None) -> Steps[InferenceRequest]:
        """Parse the lines, some at a time."""
        yield TEXT_WORTH * len(body)
        try:
            text = body.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            message = f"the CSV is not valid UTF-8: {error}"
            raise bad(message) from None
        lines = csv.reader(_lines(text), strict=True)
        columns = [InputColumn(spec) for spec in self._model.signature.inputs]
        try:
            names = next(lines, None)
            if not names:
                raise bad("the CSV is empty", "send a line of names, followed by lines of values")
            table = ColumnMapping(self._model, [name.strip() for name in names], _parsed)
            while rows := self._some(lines, len(names)):
                yield TEXT_WORTH * len(body) + sum(column.found.size for column in columns)
                take_rows(self._model, columns, table.rows(rows), "the CSV")
        except csv.Error as error:
            message = f"line {lines.line_num} of the CSV: {error}"
            raise bad(message) from None
        if not columns[0].rows:
            raise bad("the table has no rows", "send at least one")
        return asked_of(self._model, [column.array() for column in columns])

    def _some(self, lines: Any, width: int) -> list[list[Any]]:
        """Return the next rows, as many as one step reads."""
        rows: list[list[Any]] = []
        cells = 0
        for row in lines:
            if not row:
                continue
            if len(row) != width:
                message = f"line {lines.line_num} of the CSV has {len(row)} values where the head has {width} names"
                raise bad(message)
            rows.append(row)
            cells += width
            if cells >= _CELLS:
                break
        return rows


def _lines(text: str) -> Iterator[str]:
    """Yield the lines of a text with their line ends, which a quoted value may contain."""
    start = 0
    while start < len(text):
        end = text.find("\n", start)
        end = len(text) if end < 0 else end + 1
        yield text[start:end]
        start = end


Parse = Callable[[str, TensorSpec, str], Any]


class ColumnMapping:
    """Maps the columns of a table to the inputs of a model.

    Columns with the names of the model's inputs are these inputs. Otherwise, for a model with a single input of rows of numbers,
    the columns are the features in their order. `parsed` converts values given as text.
    """

    def __init__(self, model: ServedModel, names: list[str] | None, parsed: Parse | None = None, features: int = 0) -> None:
        specs = model.signature.inputs
        count = features if names is None else len(names)
        if count > _MOST_COLUMNS:
            message = f"the table has {count} columns"
            raise bad(message, f"send at most {_MOST_COLUMNS}, or one tensor with `inputs`")
        indices = {name: index for index, name in enumerate(names or ())}
        if names is not None and len(indices) != len(names):
            duplicate = next(name for index, name in enumerate(names) if indices[name] != index)
            message = f"the table has two columns named {duplicate[:100]!r}"
            raise bad(message, "give each column a different name")
        self._parsed = parsed
        self._spec = specs[0]
        self._names = names or []
        self._inputs: list[tuple[TensorSpec, int]] = []
        """Inputs that are columns, with their indices; empty if the columns are features."""
        if indices.keys() == {spec.name for spec in specs}:
            self._inputs = [(spec, indices[spec.name]) for spec in specs]
            if parsed is not None and any(length not in (1, -1) for spec in specs for length in spec.shape[1:]):
                wrong = next(spec for spec in specs if any(length not in (1, -1) for length in spec.shape[1:]))
                message = f"column {wrong.name!r} has one value per row, but the model takes {list(wrong.shape)}"
                raise bad(message, "send JSON")
        elif len(specs) != 1 or len(specs[0].shape) != 2 or specs[0].shape[1] not in (-1, count):  # rows of features
            columns = ", ".join(names)[:200] if names is not None else f"{count} columns without names"
            expected = ", ".join(f"{spec.name} {list(spec.shape)}" for spec in specs)[:500]
            message = f"the table has the columns {columns}"
            raise bad(message, f"the model takes {expected}: send these columns, or a column for each feature of its only input")

    def rows(self, rows: list[list[Any]]) -> list[Any]:
        """Convert rows of the table to rows of inputs."""
        if self._inputs:
            return [{spec.name: self._cell(row[index], spec) for spec, index in self._inputs} for row in rows]
        spec = self._spec
        if self._parsed is not None:
            parsed = self._parsed
            return [[parsed(value, spec, name) for value, name in zip(row, self._names, strict=True)] for row in rows]
        return [_filled(row) for row in rows] if spec.datatype in FLOATS else rows

    def _cell(self, value: Any, spec: TensorSpec) -> Any:
        """Return one value; for an input with several dimensions it may be a list, or a scalar for a single element."""
        if self._parsed is not None:
            value = self._parsed(value, spec, spec.name)
        elif spec.datatype in FLOATS:
            value = _filled([value])[0]
        if type(value) is not list:
            for _ in spec.shape[1:]:
                value = [value]
        return value


class DataframeSplitRows:
    """Rows of `dataframe_split`."""

    def __init__(self, model: ServedModel, names: list[str] | None) -> None:
        self._model = model
        self._names = names
        self._table = None if names is None else ColumnMapping(model, names)
        self.count = 0

    def __call__(self, rows: list[Any]) -> list[Any]:
        """Convert more rows."""
        for number, row in enumerate(rows, self.count):
            if type(row) is not list:
                message = f"data[{number}] of dataframe_split is not a list"
                raise bad(message, "send a list of values for each row")
            if self._table is None:
                self._table = ColumnMapping(self._model, None, features=len(row))
                self._names = [""] * len(row)
            assert self._names is not None
            if len(row) != len(self._names):
                message = (
                    f"data[{number}] of dataframe_split has {len(row)} values where the table has {len(self._names)} columns"
                )
                raise bad(message)
        self.count += len(rows)
        return self._table.rows(rows) if self._table is not None else rows


class DataframeRecords:
    """Rows of `dataframe_records`."""

    def __init__(self, model: ServedModel) -> None:
        self._model = model
        self._names: list[str] = []
        self._known: set[str] = set()
        self._table: ColumnMapping | None = None
        self._count = 0

    def __call__(self, records: list[Any]) -> list[Any]:
        """Convert more records."""
        rows = []
        for number, record in enumerate(records, self._count):
            if type(record) is not dict:
                message = f"dataframe_records[{number}] is not an object"
                raise bad(message, "send an object of values by column for each row")
            if self._table is None:
                self._names = list(record)
                self._known = set(record)
                self._table = ColumnMapping(self._model, self._names)
            if record.keys() != self._known:
                message = f"dataframe_records[{number}] has other columns than the first"
                raise bad(message, f"every record needs exactly: {', '.join(self._names)[:500]}")
            rows.append([record[name] for name in self._names])
        self._count += len(records)
        return rows if self._table is None else self._table.rows(rows)


def _filled(values: list[Any]) -> list[Any]:
    """Replace null with NaN and booleans with numbers in nested lists, as pandas does."""
    return [
        _filled(value) if type(value) is list else math.nan if value is None else float(value) if type(value) is bool else value
        for value in values
    ]


def _parsed(value: str, spec: TensorSpec, name: str) -> Any:
    """Parse one value of a CSV."""
    kind = DTYPES[spec.datatype].kind
    text = value.strip()
    if kind == "O":
        return value
    try:
        if kind == "f":
            return math.nan if text in _MISSING else float(_TRUTHS.get(text, text))
        if kind == "b":
            return _TRUTHS[text]
        return int(text) if "." not in text else _whole(text)
    except (KeyError, ValueError, OverflowError):
        pass
    shown = "missing" if text in _MISSING else repr(text[:40])
    message = f"column {name[:100]!r}: the value {shown} is not {spec.datatype}"
    raise bad(message)


def _whole(text: str) -> int:
    """Parse an integer that a data frame wrote as a float."""
    number = float(text)
    if number != int(number):
        raise ValueError(text)
    return int(number)
