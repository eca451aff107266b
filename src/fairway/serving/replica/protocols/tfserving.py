"""The REST interface of TensorFlow Serving: predict by rows or by columns, classify, regress, status and metadata."""

from __future__ import annotations

import base64
import binascii
import math
from typing import Any

import msgspec

from fairway.serving.replica.datatypes import Array, as_bytes, of_texts
from fairway.serving.replica.model import Answer, Question, ServedModel, check_shape, named, rows_of
from fairway.serving.replica.problem import RequestError, bad
from fairway.serving.replica.protocols.values import FLOATS, array_of, flattened, read_json
from fairway.state.model import TensorSpec

SIGNATURE = "serving_default"
_KINDS: dict[str, tuple[set[type], str]] = {
    "BOOL": ({bool}, "true or false"),
    "BYTES": ({str, dict}, 'text or {"b64": ...}'),
    **dict.fromkeys(FLOATS, ({float, int}, "a number")),
}
_DTYPES = {
    "BOOL": "DT_BOOL", "UINT8": "DT_UINT8", "UINT16": "DT_UINT16", "UINT32": "DT_UINT32", "UINT64": "DT_UINT64",
    "INT8": "DT_INT8", "INT16": "DT_INT16", "INT32": "DT_INT32", "INT64": "DT_INT64",
    "FP16": "DT_HALF", "FP32": "DT_FLOAT", "FP64": "DT_DOUBLE",
    "BF16": "DT_BFLOAT16", "BYTES": "DT_STRING",
}  # fmt: skip


class _Predict(msgspec.Struct):
    signature_name: str = SIGNATURE
    instances: list[Any] | msgspec.UnsetType = msgspec.UNSET
    inputs: Any = msgspec.UNSET


class _Examples(msgspec.Struct):
    examples: list[dict[str, Any]]
    context: dict[str, Any] = {}
    signature_name: str = SIGNATURE


class Predict:
    """`:predict`."""

    def __init__(self, model: ServedModel) -> None:
        self._model = model
        self._decoder = msgspec.json.Decoder(_Predict)

    def read(self, body: bytes, head_length: bytes | None) -> Question:
        """Rows (`instances`) or columns (`inputs`)."""
        asked: _Predict = read_json(self._decoder, body)
        _check_signature(asked.signature_name)
        if asked.instances is not msgspec.UNSET:
            if asked.inputs is not msgspec.UNSET:
                raise bad("the request has both instances and inputs", "keep one")
            return _question(self._model, _columns_of(self._model, asked.instances, "instances"))
        if asked.inputs is msgspec.UNSET:
            raise bad("the request has neither instances nor inputs", 'send {"instances": [...]} or {"inputs": ...}')
        question = _question(self._model, _named_columns(self._model, asked.inputs))
        question.columnar = True
        return question

    def write(self, question: Question, outputs: list[Array]) -> Answer:
        """Predictions row by row, or outputs by name, as the request came."""
        specs = self._model.signature.outputs
        columns = [_nested(spec, output) for spec, output in zip(specs, outputs, strict=True)]
        if question.columnar:
            named_: object = columns[0] if len(columns) == 1 else dict(zip((spec.name for spec in specs), columns, strict=True))
            return Answer(msgspec.json.encode({"outputs": named_}))
        if len(columns) == 1:
            return Answer(msgspec.json.encode({"predictions": columns[0]}))
        names = [spec.name for spec in specs]
        return Answer(
            msgspec.json.encode({"predictions": [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]})
        )


class Classify:
    """`:classify`: labels with scores. For models with one output of scores by class, or with scores and the classes' names."""

    def __init__(self, model: ServedModel) -> None:
        self._model = model
        self._decoder = msgspec.json.Decoder(_Examples)

    def read(self, body: bytes, head_length: bytes | None) -> Question:
        """Examples by feature."""
        self._places()
        return _examples(self._model, read_json(self._decoder, body))

    def write(self, question: Question, outputs: list[Array]) -> Answer:
        """For each example all its labels with their scores."""
        scores, classes = self._places()
        result = []
        for row, values in enumerate(outputs[scores].tolist()):
            labels = [str(place) for place in range(len(values))]
            if classes is not None:
                labels = [
                    as_bytes(label).decode(errors="replace") for label in outputs[classes].reshape(len(outputs[scores]), -1)[row]
                ]
            result.append([list(pair) for pair in zip(labels, values, strict=False)])
        return Answer(msgspec.json.encode({"result": result}))

    def _places(self) -> tuple[int, int | None]:
        outputs = self._model.signature.outputs
        scores = [place for place, spec in enumerate(outputs) if spec.datatype in FLOATS and len(spec.shape) == 2]
        classes = [place for place, spec in enumerate(outputs) if spec.datatype == "BYTES"]
        if len(scores) != 1 or len(classes) > 1:
            raise bad("the model is no classifier: it has no single output of scores by class", "use :predict")
        return scores[0], classes[0] if classes else None


class Regress:
    """`:regress`: one number for each example. For models whose only output is that."""

    def __init__(self, model: ServedModel) -> None:
        self._model = model
        self._decoder = msgspec.json.Decoder(_Examples)

    def read(self, body: bytes, head_length: bytes | None) -> Question:
        """Examples by feature."""
        outputs = self._model.signature.outputs
        if len(outputs) != 1 or outputs[0].datatype not in FLOATS or outputs[0].shape[1:] not in ((), (1,)):
            raise bad("the model is no regression: it does not give one number a row", "use :predict")
        return _examples(self._model, read_json(self._decoder, body))

    def write(self, question: Question, outputs: list[Array]) -> Answer:
        """The numbers."""
        return Answer(msgspec.json.encode({"result": outputs[0].ravel().tolist()}))


def status(model: ServedModel) -> dict[str, object]:
    """Which version is there."""
    state = {"version": model.version, "state": "AVAILABLE", "status": {"error_code": "OK", "error_message": ""}}
    return {"model_version_status": [state]}


def metadata(model: ServedModel) -> dict[str, object]:
    """The signature, in TensorFlow's words."""
    told = {
        "inputs": {spec.name: _told(spec) for spec in model.signature.inputs},
        "outputs": {spec.name: _told(spec) for spec in model.signature.outputs},
        "method_name": "tensorflow/serving/predict",
    }
    return {
        "model_spec": {"name": model.name, "signature_name": "", "version": model.version},
        "metadata": {"signature_def": {"signature_def": {SIGNATURE: told}}},
    }


def _told(spec: TensorSpec) -> dict[str, object]:
    shape = {"dim": [{"size": str(length), "name": ""} for length in spec.shape], "unknown_rank": False}
    return {"dtype": _DTYPES[spec.datatype], "tensor_shape": shape, "name": spec.name}


def _check_signature(name: str) -> None:
    if name not in ("", SIGNATURE):
        message = f"the model has no signature {name!r}"
        raise RequestError(404, message, fix=f"it has {SIGNATURE!r}")


def _examples(model: ServedModel, asked: _Examples) -> Question:
    _check_signature(asked.signature_name)
    return _question(model, _columns_of(model, [{**asked.context, **example} for example in asked.examples], "examples"))


def _columns_of(model: ServedModel, rows: list[Any], what: str) -> list[list[Any]]:
    """Rows turned into one list an input."""
    specs = model.signature.inputs
    if not rows:
        message = f"{what} is empty"
        raise bad(message, "send one row at least")
    by_name = [isinstance(row, dict) and not (len(specs) == 1 and set(row) == {"b64"}) for row in rows]
    if any(by_name):
        wanted = {spec.name for spec in specs}
        for number, row in enumerate(rows):
            if not isinstance(row, dict) or set(row) != wanted:
                given = sorted(row) if isinstance(row, dict) else type(row).__name__
                message = f"{what}[{number}] has {given}"
                raise bad(message, f"every row needs exactly: {', '.join(sorted(wanted))}")
        return [[row[spec.name] for row in rows] for spec in specs]
    if len(specs) != 1:
        message = f"{what} must be objects: the model has {len(specs)} inputs"
        raise bad(message, f"name them in every row: {', '.join(spec.name for spec in specs)}")
    return [rows]


def _named_columns(model: ServedModel, inputs: Any) -> list[Any]:
    specs = model.signature.inputs
    if isinstance(inputs, dict) and set(inputs) != {"b64"}:
        for name in inputs:
            named(specs, name, "input")
        missing = [spec.name for spec in specs if spec.name not in inputs]
        if missing:
            message = f"inputs lacks {', '.join(missing)}"
            raise bad(message)
        return [inputs[spec.name] for spec in specs]
    if len(specs) != 1:
        message = f"inputs must be an object: the model has {len(specs)} inputs"
        raise bad(message, f"name them: {', '.join(spec.name for spec in specs)}")
    return [inputs]


def _question(model: ServedModel, columns: list[Any]) -> Question:
    arrays = [_array(spec, column) for spec, column in zip(model.signature.inputs, columns, strict=True)]
    shapes = [array.shape for array in arrays]
    for spec, shape in zip(model.signature.inputs, shapes, strict=True):
        check_shape(spec, shape)
    return Question(arrays, rows_of(model, shapes))


def _array(spec: TensorSpec, value: Any) -> Array:
    """An array from nested lists whose elements all have the right type; its shape is that of the lists."""
    place, shape, first = f"input {spec.name!r}", [], value
    while isinstance(first, list):
        shape.append(len(first))
        if not first or len(shape) > len(spec.shape):
            break
        first = first[0]
    # The lists may be deeper or shallower elsewhere than along their first elements; flattening finds out.
    flat = flattened(value, tuple(shape), place) if shape else [value]
    kinds, words = _KINDS.get(spec.datatype, ({int}, "a whole number"))
    if not set(map(type, flat)) <= kinds:
        wrong = next(each for each in flat if type(each) not in kinds)
        message = f"{place}: {str(wrong)[:40]!r} is not {words}"
        raise bad(message, f"the model takes {spec.datatype} of shape {list(spec.shape)}")
    if spec.datatype == "BYTES":
        array = of_texts([_text(place, each) for each in flat])
    else:
        try:
            array = array_of(flat, spec.datatype)
        except (OverflowError, ValueError) as error:
            message = f"{place}: {error}"
            raise bad(message, f"send numbers that fit {spec.datatype}") from None
    return array.reshape(shape) if math.prod(shape) == len(flat) else array


def _text(place: str, value: Any) -> bytes:
    try:
        if isinstance(value, str):
            return value.encode()
        if set(value) == {"b64"}:
            return base64.b64decode(value["b64"], validate=True)
    except (binascii.Error, TypeError, ValueError) as error:
        message = f"{place}: no base64: {error}"
        raise bad(message) from None
    message = f"{place}: an object with {sorted(value)[:5]}"
    raise bad(message, 'bytes are {"b64": "..."}')


def _nested(spec: TensorSpec, output: Array) -> Any:
    if spec.datatype != "BYTES":
        return output.tolist()
    texts = [_shown(as_bytes(each)) for each in output.ravel().tolist()]
    for length in reversed(output.shape[1:]):
        texts = [texts[at : at + length] for at in range(0, len(texts), length)]
    return texts if output.ndim else texts[0]


def _shown(text: bytes) -> Any:
    """Text as it is; bytes that are no text as base64."""
    try:
        return text.decode()
    except UnicodeDecodeError:
        return {"b64": base64.b64encode(text).decode()}
