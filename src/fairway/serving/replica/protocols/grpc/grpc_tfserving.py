"""TensorFlow Serving's PredictionService: predict, classify, regress."""

from __future__ import annotations

import base64
import math
from typing import Any

import numpy as np

from fairway.serving.replica.model.datatype import DTYPES, Array, as_bytes, of_texts, to_raw
from fairway.serving.replica.model.served_model import (
    InferenceRequest,
    ReplicaResponse,
    ServedModel,
    Wanted,
    check_shape,
    named,
    rows_of,
)
from fairway.serving.replica.protocols import tfserving
from fairway.serving.replica.protocols.grpc.grpc_inference import check_name
from fairway.serving.replica.protocols.grpc.message_frame import CONTENT_TYPE, OK_HEADERS, frame, unframed
from fairway.serving.replica.protocols.grpc.proto_definition import definitions
from fairway.serving.replica.protocols.grpc.protobuf import Message
from fairway.serving.replica.protocols.json_piece import Steps
from fairway.serving.replica.protocols.tfserving_row import SIGNATURE, check_signature, columns_of, question_of
from fairway.serving.replica.request_error import RequestError, bad
from fairway.state.model import TensorSpec

PACKAGE = "tensorflow.serving"
NUMBERS = {
    "BOOL": 10, "UINT8": 4, "UINT16": 17, "UINT32": 22, "UINT64": 23, "INT8": 6, "INT16": 5, "INT32": 3, "INT64": 9, "FP16": 19,
    "FP32": 1, "FP64": 2, "BF16": 14, "BYTES": 7,
}  # fmt: skip
"""Values of the enumeration `DataType`."""
_WORDS = {number: word for word, number in NUMBERS.items()}
_FIELDS = {
    "BOOL": "bool_val", "UINT32": "uint32_val", "UINT64": "uint64_val", "INT64": "int64_val", "FP16": "half_val",
    "BF16": "half_val", "FP32": "float_val", "FP64": "double_val", "BYTES": "string_val",
    **dict.fromkeys(("UINT8", "UINT16", "INT8", "INT16", "INT32"), "int_val"),
}  # fmt: skip
_MOST_FILLED = 1 << 16
"""Maximum elements of a tensor that may be given by a single repeated value."""


class GrpcPredictCodec:
    """Parses and writes `Predict`. Implements `Form`."""

    def __init__(self, model: ServedModel, most: int) -> None:
        self._model = model
        self._most = most

    def read(self, body: bytes, head_length: bytes | None) -> InferenceRequest:
        """Parse tensors by name."""
        request = definitions().schema.decode(f"{PACKAGE}.PredictRequest", unframed(body, self._most))
        check_spec(self._model, request.get("model_spec", {}))
        specs, tensors = self._model.signature.inputs, request.get("inputs", {})
        for name in tensors:
            named(specs, name, "input")
        missing = [spec.name for spec in specs if spec.name not in tensors]
        if missing:
            message = f"inputs lacks {', '.join(missing)}"
            raise bad(message)
        arrays = [array_of_tensor(spec, tensors[spec.name]) for spec in specs]
        rows = rows_of(self._model, [array.shape for array in arrays])
        return InferenceRequest(arrays, rows, wanted=self._wanted(request.get("output_filter", [])))

    def steps(self, body: bytes, head_length: bytes | None) -> Steps[InferenceRequest]:
        """Parse in a single step: there is no JSON to parse in steps."""
        yield 0
        return self.read(body, head_length)

    def write(self, question: InferenceRequest, outputs: list[Array]) -> ReplicaResponse:
        """Write outputs by name."""
        specs = self._model.signature.outputs
        tensors = {specs[index].name: tensor_of(specs[index].datatype, outputs[index]) for index, _ in question.wanted}
        return answer("PredictResponse", {"model_spec": spec_of(self._model), "outputs": tensors})

    def _wanted(self, names: list[str]) -> Wanted:
        outputs = self._model.signature.outputs
        indices = [named(outputs, name, "output") for name in names] or range(len(outputs))
        # Raw, so that their size is limited by --max-body, not by --max-json.
        return tuple((index, True) for index in dict.fromkeys(indices))


class GrpcClassifyCodec(tfserving.TfClassifyCodec):
    """Parses and writes `Classify`."""

    def __init__(self, model: ServedModel, most: int) -> None:
        super().__init__(model)
        self._most = most

    def read(self, body: bytes, head_length: bytes | None) -> InferenceRequest:
        """Parse examples by feature."""
        self._places()
        return examples_of(self._model, "ClassificationRequest", unframed(body, self._most))

    def steps(self, body: bytes, head_length: bytes | None) -> Steps[InferenceRequest]:
        """Parse in a single step."""
        yield 0
        return self.read(body, head_length)

    def write(self, question: InferenceRequest, outputs: list[Array]) -> ReplicaResponse:
        """Write all labels with their scores for each example."""
        scores, classes = self._places()
        results: list[Message] = []
        for row, values in enumerate(outputs[scores].tolist()):
            labels = [str(index) for index in range(len(values))]
            if classes is not None:
                row_labels = outputs[classes].reshape(len(outputs[scores]), -1)[row]
                labels = [as_bytes(label).decode(errors="replace") for label in row_labels]
            results.append({"classes": [{"label": name, "score": score} for name, score in zip(labels, values, strict=False)]})
        return answer("ClassificationResponse", {"model_spec": spec_of(self._model), "result": {"classifications": results}})


class GrpcRegressCodec(tfserving.TfRegressCodec):
    """Parses and writes `Regress`."""

    def __init__(self, model: ServedModel, most: int) -> None:
        super().__init__(model)
        self._most = most

    def read(self, body: bytes, head_length: bytes | None) -> InferenceRequest:
        """Parse examples by feature."""
        self._check()
        return examples_of(self._model, "RegressionRequest", unframed(body, self._most))

    def steps(self, body: bytes, head_length: bytes | None) -> Steps[InferenceRequest]:
        """Parse in a single step."""
        yield 0
        return self.read(body, head_length)

    def write(self, question: InferenceRequest, outputs: list[Array]) -> ReplicaResponse:
        """Write one number for each example."""
        results = [{"value": value} for value in outputs[0].astype("f4").ravel().tolist()]
        return answer("RegressionResponse", {"model_spec": spec_of(self._model), "result": {"regressions": results}})


def answer(name: str, message: Message) -> ReplicaResponse:
    """Return a message of TensorFlow Serving as an answer."""
    encoded = definitions().schema.encode(f"{PACKAGE}.{name}", message)
    return ReplicaResponse(frame(encoded), headers=list(OK_HEADERS), content_type=CONTENT_TYPE)


def check_spec(model: ServedModel, spec: Message) -> None:
    """Raise 404 for another model, version, label or signature."""
    check_name(model, spec.get("name", ""), "")
    version = spec.get("version")
    if version is not None and str(version.get("value", 0)) != model.version:
        message = f"model {model.name!r} has no version {version.get('value', 0)} here"
        raise RequestError(404, message, fix=f"version {model.version} is served")
    label = spec.get("version_label")
    if label and label not in model.labels:
        message = f"model {model.name!r} has no label {label[:200]!r} here"
        raise RequestError(404, message, fix=f"version {model.version} is served")
    check_signature(spec.get("signature_name", ""))


def spec_of(model: ServedModel) -> Message:
    """Return the ModelSpec of an answer. TensorFlow Serving's versions are integers; any other version is omitted."""
    version = {"version": {"value": int(model.version)}} if model.version.isdigit() else {}
    return {"name": model.name, "signature_name": SIGNATURE, **version}


def array_of_tensor(spec: TensorSpec, tensor: Message) -> Array:
    """Convert a TensorProto to an input."""
    place, datatype = f"input {spec.name!r}", _WORDS.get(tensor.get("dtype", 0), "")
    if datatype != spec.datatype:
        message = f"{place} has dtype {tensor.get('dtype', 0)} ({datatype or 'unknown'})"
        raise bad(message, f"the model takes {spec.datatype} ({NUMBERS[spec.datatype]})")
    shape = tuple(dim.get("size", 0) for dim in tensor.get("tensor_shape", {}).get("dim", []))
    check_shape(spec, shape)
    count = math.prod(shape)
    content = tensor.get("tensor_content", b"")
    if len(content):
        return _from_content(datatype, content, count, place).reshape(shape)
    return _filled(_values(datatype, tensor.get(_FIELDS[datatype], [])), count, place).reshape(shape)


def _from_content(word: str, content: memoryview | bytes, count: int, place: str) -> Array:
    if word == "BYTES":
        message = f"{place}: strings in tensor_content"
        raise bad(message, "send string_val")
    size = 2 if word == "BF16" else DTYPES[word].itemsize
    if len(content) != size * count:
        message = f"{place}: {len(content)} bytes for {count} elements of {word}"
        raise bad(message, f"send {size * count} bytes")
    if word == "BF16":
        bits: Array = np.frombuffer(content, "<u2").astype("<u4") << 16
        return bits.view("<f4")
    array: Array = np.frombuffer(content, "u1") != 0 if word == "BOOL" else np.frombuffer(content, DTYPES[word])
    return array


def _values(word: str, values: Any) -> Array:
    if word == "BYTES":
        return of_texts([bytes(value) for value in values])
    if word in ("FP16", "BF16"):
        bits: Array = np.asarray(values, "i8").astype("<u2")
        halves: Array = bits.view("<f2") if word == "FP16" else (bits.astype("<u4") << 16).view("<f4")
        return halves
    array: Array = np.asarray(values).astype(DTYPES[word])
    return array


def _filled(values: Array, count: int, place: str) -> Array:
    """Repeat the last value for all missing ones, as TensorFlow does."""
    if len(values) == count:
        return values
    if not 0 < len(values) < count or count > _MOST_FILLED:
        message = f"{place} has {len(values)} values"
        raise bad(message, f"the shape needs {count}")
    return np.concatenate([values, np.repeat(values[-1:], count - len(values))])


def tensor_of(word: str, array: Array) -> Message:
    """Convert an output to a TensorProto.

    Values are in the field for their type, as in TensorFlow Serving; large arrays of integers are encoded as bytes.
    """
    header: Message = {"dtype": NUMBERS[word], "tensor_shape": {"dim": [{"size": length} for length in array.shape]}}
    if word == "BYTES":
        values: Any = [as_bytes(element) for element in array.ravel().tolist()]
    elif word in ("FP16", "BF16"):
        values = np.frombuffer(to_raw(word, array), "<u2").tolist()
    elif word in ("FP32", "FP64"):
        values = array.ravel()
    elif array.size > _MOST_FILLED:
        return {**header, "tensor_content": to_raw(word, array)}
    else:
        values = array.ravel().tolist()
    return {**header, _FIELDS[word]: values}


def examples_of(model: ServedModel, name: str, data: bytes | memoryview) -> InferenceRequest:
    """Parse a request with `tf.train` examples."""
    request = definitions().schema.decode(f"{PACKAGE}.{name}", data)
    check_spec(model, request.get("model_spec", {}))
    examples = request.get("input", {})
    example_list = examples.get("example_list_with_context") or examples.get("example_list") or {}
    context = _features(model, example_list.get("context", {}))
    rows = [{**context, **_features(model, example)} for example in example_list.get("examples", [])]
    return question_of(model, columns_of(model, rows, "examples"))


def _features(model: ServedModel, example: Message) -> dict[str, Any]:
    specs = model.signature.inputs
    features = example.get("features", {}).get("feature", {})
    return {name: _feature(specs[named(specs, name, "input")], feature) for name, feature in features.items()}


def _feature(spec: TensorSpec, feature: Message) -> Any:
    """Return the values of one example as nested lists of the input's shape without its first dimension."""
    kind = next(iter(feature), "")
    values = feature.get(kind, {}).get("value", [])
    if kind == "bytes_list":
        flat: list[Any] = [{"b64": base64.b64encode(item).decode()} for item in values]
    else:
        flat = np.asarray(values).tolist()
    shape = spec.shape[1:]
    if not shape:
        if len(flat) != 1:
            message = f"input {spec.name!r}: a feature of {len(flat)} values"
            raise bad(message, "send one value for each example")
        return flat[0]
    known = math.prod(length for length in shape if length >= 0)
    if sum(length < 0 for length in shape) > 1 or (-1 not in shape and len(flat) != known) or (known and len(flat) % known):
        message = f"input {spec.name!r}: a feature of {len(flat)} values"
        raise bad(message, f"the model takes {list(shape)} for each example")
    for length in reversed([len(flat) // max(known, 1) if item < 0 else item for item in shape[1:]]):
        flat = [flat[start : start + length] for start in range(0, len(flat), length)]
    return flat
