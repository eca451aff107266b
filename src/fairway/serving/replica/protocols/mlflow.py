"""MLflow's scoring server: `/invocations` with tables as JSON or CSV, and with tensors."""

from __future__ import annotations

import csv
import math
from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from fairway.serving.replica.datatypes import DTYPES, Array
from fairway.serving.replica.model import MOST_ELEMENTS, Answer, Question, ServedModel, check_shape, rows_of
from fairway.serving.replica.problem import RequestError, bad
from fairway.serving.replica.protocols.pieces import WORTH, Steps, finish
from fairway.serving.replica.protocols.rows import array_from, columns_of, named_columns, question_of
from fairway.serving.replica.protocols.tfserving import nested
from fairway.serving.replica.protocols.tokens import encoded
from fairway.serving.replica.protocols.values import FLOATS, read_tensors
from fairway.state.model import TensorSpec
from fairway.version import __version__

_JSON, _CSV = b"application/json", b"text/csv"
_MOST_COLUMNS = 1 << 16
_MISSING = frozenset({"", "NaN", "nan", "NA", "N/A", "null", "NULL", "None", "<NA>", "#N/A", "n/a", "-NaN", "-nan"})
"""What pandas takes for a missing value in a CSV."""
_TRUTHS = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
_LINES = 200
"""Lines of a CSV that one step reads."""
_ORIENTED = ("dataframe_split", "dataframe_records", "instances", "inputs")


class _Split(msgspec.Struct, forbid_unknown_fields=True):
    data: list[list[Any]]
    columns: list[str | int] | None = None
    index: list[Any] | None = None


class _Request(msgspec.Struct):
    dataframe_split: _Split | None = None
    dataframe_records: list[dict[str, Any]] | None = None
    instances: list[Any] | None = None
    inputs: Any = None
    params: dict[str, Any] | None = None


_DECODER = msgspec.json.Decoder(_Request)
_NAMES = msgspec.json.Decoder(dict[str, msgspec.Raw])


def version_page() -> Answer:
    """`GET /version`."""
    return Answer(__version__.encode(), content_type=b"text/plain; charset=utf-8")


class Invocations:
    """`POST /invocations` of one model, by its content type."""

    def __init__(self, model: ServedModel) -> None:
        self._tables = Tables(model)
        self._csv = CsvTables(model)

    def form(self, headers: list[tuple[bytes, bytes]]) -> Tables:
        """How a body of this content type is read."""
        given = next((value for name, value in headers if name == b"content-type"), b"")
        kind, *parameters = (part.strip().lower() for part in given.split(b";"))
        for parameter in parameters:
            if parameter and parameter not in (b"charset=utf-8", b'charset="utf-8"', b"charset=utf8"):
                message = f"the content type has {parameter[:60].decode('latin-1')!r}"
                raise RequestError(415, message, fix="send UTF-8")
        if kind in (_JSON, b"", b"application/x-www-form-urlencoded"):  # what curl says of --data
            return self._tables
        if kind == _CSV:
            return self._csv
        message = f"the content type {kind[:60].decode('latin-1')!r} is not read"
        raise RequestError(415, message, fix="send application/json or text/csv")


class Tables:
    """JSON: `dataframe_split`, `dataframe_records`, `instances` or `inputs`."""

    def __init__(self, model: ServedModel) -> None:
        self._model = model

    def read(self, body: bytes, head_length: bytes | None) -> Question:
        """A question from a table or from tensors."""
        return finish(self.steps(body, head_length))

    def steps(self, body: bytes, head_length: bytes | None) -> Steps[Question]:
        """The same, counted before it is decoded."""
        yield WORTH * len(body)
        asked: _Request = yield from read_tensors(_DECODER, body)
        given = [name for name in _ORIENTED if getattr(asked, name) is not None]
        if len(given) != 1:
            what = " and ".join(given) or "none of them"
            message = f"the request has {what}"
            raise bad(message, f"send exactly one of {', '.join(_ORIENTED)}")
        self._check_names(body)
        if asked.params:
            message = f"the request has params {', '.join(sorted(asked.params))[:200]}, which the model does not take"
            raise bad(message, "leave params out")
        if asked.dataframe_split is not None:
            return table_question(self._model, *_split(asked.dataframe_split))
        if asked.dataframe_records is not None:
            return table_question(self._model, *_records(asked.dataframe_records))
        if asked.instances is not None:
            return question_of(self._model, columns_of(self._model, asked.instances, "instances"))
        question = question_of(self._model, named_columns(self._model, asked.inputs))
        question.columnar = True
        return question

    def _check_names(self, body: bytes) -> None:
        try:
            names = _NAMES.decode(body)
        except msgspec.DecodeError:  # it has NaN in it, and its names were read already
            return
        for name in names:
            if name not in (*_ORIENTED, "params"):
                message = f"the request has {name[:100]!r}"
                raise bad(message, f"known are: {', '.join(_ORIENTED)}, params")

    def write(self, question: Question, outputs: list[Array]) -> Answer:
        """`predictions`: the output, or of several outputs a record for each row."""
        specs = self._model.signature.outputs
        columns = [nested(spec, output) for spec, output in zip(specs, outputs, strict=True)]
        if len(columns) == 1:
            return Answer(encoded({"predictions": columns[0]}, outputs))
        names = [spec.name for spec in specs]
        if question.columnar or not self._model.batches:
            return Answer(encoded({"predictions": dict(zip(names, columns, strict=True))}, outputs))
        rows = [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]
        return Answer(encoded({"predictions": rows}, outputs, by_rows=True))


class CsvTables(Tables):
    """CSV with a head line."""

    def steps(self, body: bytes, head_length: bytes | None) -> Steps[Question]:
        """A question from the lines."""
        yield WORTH * len(body)
        try:
            text = body.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            message = f"the CSV is no UTF-8: {error}"
            raise bad(message) from None
        lines = csv.reader(_lines(text), strict=True)
        try:
            names = next(lines, None)
            if not names:
                raise bad("the CSV is empty", "send a line of names, and lines of values")
            _check_columns(len(names))
            rows: list[list[Any]] = []
            for row in lines:
                if len(row) != len(names):
                    if not row:
                        continue
                    message = f"line {lines.line_num} of the CSV has {len(row)} values where the head has {len(names)} names"
                    raise bad(message)
                rows.append(row)
                if len(rows) % _LINES == 0:
                    yield WORTH * len(body)
        except csv.Error as error:
            message = f"line {lines.line_num} of the CSV: {error}"
            raise bad(message) from None
        return table_question(self._model, [name.strip() for name in names], rows, parsed=_parsed)


def _lines(text: str) -> Iterator[str]:
    """The lines of a text, with their ends: a quoted value may have some."""
    at = 0
    while at < len(text):
        end = text.find("\n", at)
        end = len(text) if end < 0 else end + 1
        yield text[at:end]
        at = end


def _check_columns(count: int) -> None:
    if count > _MOST_COLUMNS:
        message = f"the table has {count} columns"
        raise bad(message, f"send {_MOST_COLUMNS} at the most, or one tensor with `inputs`")


def _split(split: _Split) -> tuple[list[str] | None, list[list[Any]]]:
    width = len(split.columns) if split.columns is not None else len(split.data[0]) if split.data else 0
    _check_columns(width)
    for number, row in enumerate(split.data):
        if len(row) != width:
            message = f"data[{number}] of dataframe_split has {len(row)} values where the table has {width} columns"
            raise bad(message)
    if split.index is not None and len(split.index) != len(split.data):
        message = f"the index of dataframe_split has {len(split.index)} entries for {len(split.data)} rows"
        raise bad(message)
    return None if split.columns is None else [str(name) for name in split.columns], split.data


def _records(records: list[dict[str, Any]]) -> tuple[list[str], list[list[Any]]]:
    names = list(records[0]) if records else []
    _check_columns(len(names))
    rows = []
    for number, record in enumerate(records):
        if record.keys() != set(names):
            message = f"dataframe_records[{number}] has other columns than the first"
            raise bad(message, f"every record needs exactly: {', '.join(names)[:500]}")
        rows.append([record[name] for name in names])
    return names, rows


Parse = Callable[[str, TensorSpec, str], Any]


def table_question(model: ServedModel, names: list[str] | None, rows: list[list[Any]], parsed: Parse | None = None) -> Question:
    """A question from a table.

    Columns with the names of the model's inputs are these inputs. Otherwise the columns of a model with one input of rows of
    numbers are the features in their order. `parsed`: for values that are text.
    """
    specs = model.signature.inputs
    if names is not None and len(set(names)) != len(names):
        double = next(name for place, name in enumerate(names) if name in names[:place])
        message = f"the table has two columns {double[:100]!r}"
        raise bad(message, "give each column a name of its own")
    if not rows:
        raise bad("the table has no rows", "send one at least")
    if names is not None and set(names) == {spec.name for spec in specs}:
        arrays = [_column(spec, [row[names.index(spec.name)] for row in rows], parsed) for spec in specs]
        shapes = [array.shape for array in arrays]
        for spec, shape in zip(specs, shapes, strict=True):
            check_shape(spec, shape)
        return Question(arrays, rows_of(model, shapes))
    features = len(names) if names is not None else len(rows[0])
    if len(specs) == 1 and len(specs[0].shape) == 2 and specs[0].shape[1] in (-1, features):  # rows of features
        array = _matrix(specs[0], names, rows, parsed)
        check_shape(specs[0], array.shape)
        return Question([array], rows_of(model, [array.shape]))
    given = ", ".join(names)[:200] if names is not None else f"{features} columns without names"
    wanted = ", ".join(f"{spec.name} {list(spec.shape)}" for spec in specs)[:500]
    message = f"the table has the columns {given}"
    raise bad(message, f"the model takes {wanted}: send these columns, or a column for each feature of its only input")


def _column(spec: TensorSpec, values: list[Any], parsed: Parse | None) -> Array:
    """One input from one column; a value of an input with several dimensions is a list."""
    place = f"column {spec.name!r}"
    depth = len(spec.shape) - 1
    if parsed is not None:
        if any(length not in (1, -1) for length in spec.shape[1:]):
            message = f"{place} is one value a row where the model takes {list(spec.shape)}"
            raise bad(message, "send JSON")
        values = [parsed(value, spec, place) for value in values]
    elif depth and not any(isinstance(value, list) for value in values):
        pass
    else:
        return _checked(spec, values, place)
    return _checked(TensorSpec(spec.name, spec.datatype, spec.shape[:1]), values, place).reshape((len(values), *(1,) * depth))


def _matrix(spec: TensorSpec, names: list[str] | None, rows: list[list[Any]], parsed: Parse | None) -> Array:
    """Rows of features."""
    if len(rows) * len(rows[0]) > MOST_ELEMENTS:
        raise bad("the table is too large")
    if parsed is not None:
        places = [f"column {name!r}" for name in names or ()]
        rows = [[parsed(value, spec, place) for value, place in zip(row, places, strict=True)] for row in rows]
    return _checked(spec, rows, "the table")


def _checked(spec: TensorSpec, values: list[Any], place: str) -> Array:
    """An array, with the same checks as TensorFlow Serving's rows. Missing values are NaN, where the input has floats."""
    if spec.datatype in FLOATS:
        values = _filled(values)
    return array_from(spec, values, place)


def _filled(values: list[Any]) -> list[Any]:
    """Nested lists with NaN for null, and numbers for truths, as pandas converts them."""
    return [
        _filled(value) if type(value) is list else math.nan if value is None else float(value) if type(value) is bool else value
        for value in values
    ]


def _parsed(value: str, spec: TensorSpec, place: str) -> Any:
    """One value of a CSV."""
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
    what = "missing" if text in _MISSING else repr(text[:40])
    message = f"{place}: the value {what} is no {spec.datatype}"
    raise bad(message)


def _whole(text: str) -> int:
    """A whole number that a data frame wrote as a float."""
    number = float(text)
    if number != int(number):
        raise ValueError(text)
    return int(number)
