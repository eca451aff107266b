"""TensorFlow Serving's REST interface: predict by rows or by columns, classify, regress, status and metadata."""

from __future__ import annotations

import base64
from typing import Any

import msgspec

from fairway.serving.replica.model.datatype import Array, as_bytes
from fairway.serving.replica.model.served_model import InferenceRequest, ReplicaResponse, ServedModel
from fairway.serving.replica.protocols.json_piece import Steps, finish
from fairway.serving.replica.protocols.json_tensor import FLOATS, read_tensors
from fairway.serving.replica.protocols.nonfinite_token import encoded
from fairway.serving.replica.protocols.tfserving_row import (
    SIGNATURE,
    TfExamplesRequest,
    TfPredictRequest,
    check_params,
    check_signature,
    columns_of,
    examples_question,
    large_examples,
    large_predict,
    named_columns,
    question_of,
)  # fmt: skip
from fairway.serving.replica.request_error import bad
from fairway.state.model import TensorSpec

_DTYPES = {
    "BOOL": "DT_BOOL", "UINT8": "DT_UINT8", "UINT16": "DT_UINT16", "UINT32": "DT_UINT32", "UINT64": "DT_UINT64",
    "INT8": "DT_INT8", "INT16": "DT_INT16", "INT32": "DT_INT32", "INT64": "DT_INT64",
    "FP16": "DT_HALF", "FP32": "DT_FLOAT", "FP64": "DT_DOUBLE",
    "BF16": "DT_BFLOAT16", "BYTES": "DT_STRING",
}  # fmt: skip


class TfPredictCodec:
    """`:predict`."""

    def __init__(self, model: ServedModel) -> None:
        self._model = model
        self._decoder = msgspec.json.Decoder(TfPredictRequest)

    def read(self, body: bytes, head_length: bytes | None) -> InferenceRequest:
        """Parse rows (`instances`) or columns (`inputs`)."""
        request: TfPredictRequest = finish(read_tensors(self._decoder, body))
        check_signature(request.signature_name)
        check_params(request.params)
        if request.instances is not msgspec.UNSET:
            if request.inputs is not msgspec.UNSET:
                raise bad("the request has both instances and inputs", "keep one")
            return question_of(self._model, columns_of(self._model, request.instances, "instances"))
        if request.inputs is msgspec.UNSET:
            raise bad("the request has neither instances nor inputs", 'send {"instances": [...]} or {"inputs": ...}')
        question = question_of(self._model, named_columns(self._model, request.inputs))
        question.columnar = True
        return question

    def steps(self, body: bytes, head_length: bytes | None) -> Steps[InferenceRequest]:
        """Parse a large request in steps."""
        return large_predict(self._model, body)

    def write(self, question: InferenceRequest, outputs: list[Array]) -> ReplicaResponse:
        """Write predictions by row, or outputs by name, in the same form as the request."""
        specs = self._model.signature.outputs
        columns = [nested(spec, output) for spec, output in zip(specs, outputs, strict=True)]
        if question.columnar:
            named_: object = columns[0] if len(columns) == 1 else dict(zip((spec.name for spec in specs), columns, strict=True))
            return ReplicaResponse(encoded({"outputs": named_}, outputs))
        if len(columns) == 1:
            return ReplicaResponse(encoded({"predictions": columns[0]}, outputs))
        names = [spec.name for spec in specs]
        rows = [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]
        return ReplicaResponse(encoded({"predictions": rows}, outputs, by_rows=True))


class TfClassifyCodec:
    """`:classify`: labels with scores. For models with one output of scores by class, and optionally the classes' names."""

    def __init__(self, model: ServedModel) -> None:
        self._model = model
        self._decoder = msgspec.json.Decoder(TfExamplesRequest)

    def read(self, body: bytes, head_length: bytes | None) -> InferenceRequest:
        """Parse examples by feature."""
        self._places()
        return examples_question(self._model, finish(read_tensors(self._decoder, body)))

    def steps(self, body: bytes, head_length: bytes | None) -> Steps[InferenceRequest]:
        """Parse a large request in steps."""
        self._places()
        return large_examples(self._model, body)

    def write(self, question: InferenceRequest, outputs: list[Array]) -> ReplicaResponse:
        """Write all labels with their scores for each example."""
        scores, classes = self._places()
        result = []
        for row, values in enumerate(outputs[scores].tolist()):
            labels = [str(index) for index in range(len(values))]
            if classes is not None:
                labels = [
                    as_bytes(label).decode(errors="replace") for label in outputs[classes].reshape(len(outputs[scores]), -1)[row]
                ]
            result.append([list(pair) for pair in zip(labels, values, strict=False)])
        return ReplicaResponse(encoded({"result": result}, [outputs[scores]]))

    def _places(self) -> tuple[int, int | None]:
        outputs = self._model.signature.outputs
        scores = [index for index, spec in enumerate(outputs) if spec.datatype in FLOATS and len(spec.shape) == 2]
        classes = [index for index, spec in enumerate(outputs) if spec.datatype == "BYTES"]
        if len(scores) != 1 or len(classes) > 1:
            raise bad("the model is not a classifier: it has no single output of scores by class", "use :predict")
        return scores[0], classes[0] if classes else None


class TfRegressCodec:
    """`:regress`: one number for each example. For models whose only output is that number."""

    def __init__(self, model: ServedModel) -> None:
        self._model = model
        self._decoder = msgspec.json.Decoder(TfExamplesRequest)

    def read(self, body: bytes, head_length: bytes | None) -> InferenceRequest:
        """Parse examples by feature."""
        self._check()
        return examples_question(self._model, finish(read_tensors(self._decoder, body)))

    def steps(self, body: bytes, head_length: bytes | None) -> Steps[InferenceRequest]:
        """Parse a large request in steps."""
        self._check()
        return large_examples(self._model, body)

    def _check(self) -> None:
        outputs = self._model.signature.outputs
        if len(outputs) != 1 or outputs[0].datatype not in FLOATS or outputs[0].shape[1:] not in ((), (1,)):
            raise bad("the model is not a regression: it does not return one number per row", "use :predict")

    def write(self, question: InferenceRequest, outputs: list[Array]) -> ReplicaResponse:
        """Write the numbers."""
        return ReplicaResponse(encoded({"result": outputs[0].ravel().tolist()}, outputs))


def status(model: ServedModel) -> dict[str, object]:
    """Return the status of the served version."""
    state = {"version": model.version, "state": "AVAILABLE", "status": {"error_code": "OK", "error_message": ""}}
    return {"model_version_status": [state]}


def metadata(model: ServedModel) -> dict[str, object]:
    """Return the signature in TensorFlow Serving's format."""
    signature = {
        "inputs": {spec.name: _told(spec) for spec in model.signature.inputs},
        "outputs": {spec.name: _told(spec) for spec in model.signature.outputs},
        "method_name": "tensorflow/serving/predict",
    }
    return {
        "model_spec": {"name": model.name, "signature_name": "", "version": model.version},
        "metadata": {"signature_def": {"signature_def": {SIGNATURE: signature}}},
    }


def _told(spec: TensorSpec) -> dict[str, object]:
    shape = {"dim": [{"size": str(length), "name": ""} for length in spec.shape], "unknown_rank": False}
    return {"dtype": _DTYPES[spec.datatype], "tensor_shape": shape, "name": spec.name}


def nested(spec: TensorSpec, output: Array) -> Any:
    """Return an output as nested lists."""
    if spec.datatype != "BYTES":
        return output.tolist()
    texts = [_shown(as_bytes(element)) for element in output.ravel().tolist()]
    for length in reversed(output.shape[1:]):
        texts = [texts[start : start + length] for start in range(0, len(texts), length)]
    return texts if output.ndim else texts[0]


def _shown(text: bytes) -> Any:
    """Return text unchanged, and bytes that are not UTF-8 as base64."""
    try:
        return text.decode()
    except UnicodeDecodeError:
        return {"b64": base64.b64encode(text).decode()}
