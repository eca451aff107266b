"""Runs ONNX models with onnxruntime in this process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from fairway.errors import UsageError
from fairway.serving.replica.model.datatype import Array, as_bytes, of_texts
from fairway.serving.replica.request_error import ModelError
from fairway.serving.replica.runtimes.runtime import takes_batches
from fairway.state.model import ModelSignature, TensorSpec

_WORDS = {
    "tensor(bool)": "BOOL",
    "tensor(uint8)": "UINT8",
    "tensor(uint16)": "UINT16",
    "tensor(uint32)": "UINT32",
    "tensor(uint64)": "UINT64",
    "tensor(int8)": "INT8",
    "tensor(int16)": "INT16",
    "tensor(int32)": "INT32",
    "tensor(int64)": "INT64",
    "tensor(float16)": "FP16",
    "tensor(float)": "FP32",
    "tensor(double)": "FP64",
    "tensor(string)": "BYTES",
}


class OnnxRuntime:
    """A session of onnxruntime. Its model is data: it contains no code of the user."""

    platform = "onnx_onnxv1"
    quick = True

    def __init__(self, path: Path, threads: int = 1) -> None:
        try:
            import onnxruntime as ort  # type: ignore[import-untyped,import-not-found,unused-ignore] # noqa: PLC0415  not needed by other runtimes
        except ImportError:
            message = "onnxruntime is not installed"
            raise UsageError(message, fix="pip install 'fairway[serve]'") from None
        options = ort.SessionOptions()
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        # Spinning idle threads would use CPU time of other processes on the core.
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        options.log_severity_level = 3
        try:
            self._session = ort.InferenceSession(str(path), options, providers=_providers(ort.get_available_providers()))
        except Exception as error:  # onnxruntime has no common exception; on any error the model cannot be loaded
            message = f"{path}: onnxruntime cannot load it: {error}"
            raise UsageError(message, fix="check it with onnx.checker, or export it again") from error
        self.signature = ModelSignature(
            tuple(_spec(spec) for spec in self._session.get_inputs()), tuple(_spec(spec) for spec in self._session.get_outputs())
        )
        self._input_names = [spec.name for spec in self.signature.inputs]
        self._output_names = [spec.name for spec in self.signature.outputs]
        self._texts_in = any(spec.datatype == "BYTES" for spec in self.signature.inputs)
        self._texts_out = any(spec.datatype == "BYTES" for spec in self.signature.outputs)
        self.batches = takes_batches(self.signature)
        self._run = self._session.run

    def run(self, inputs: list[Array]) -> list[Array]:
        """Run the session."""
        if self._texts_in:
            inputs = [_decoded(array) if array.dtype == object else array for array in inputs]
        try:
            outputs: list[Array] = self._run(self._output_names, dict(zip(self._input_names, inputs, strict=True)))
        except Exception as error:  # onnxruntime's exceptions have no other common class
            # Shapes and types were checked before, so only the values of an input can be invalid.
            status = 400 if type(error).__name__ == "InvalidArgument" else 500
            message = f"the model failed: {_short(error)}"
            raise ModelError(status, message) from error
        if self._texts_out:
            outputs = [_encoded(array) if array.dtype.kind in "OU" else array for array in outputs]
        return outputs

    def close(self) -> None:
        """Do nothing: nothing outlives the process."""


def _providers(available: list[str]) -> list[str]:
    return [provider for provider in ("CUDAExecutionProvider", "CPUExecutionProvider") if provider in available]


def _spec(node: Any) -> TensorSpec:
    if node.type not in _WORDS:
        message = f"the model's {node.name!r} is a {node.type}"
        raise UsageError(message, fix="export it with plain tensors in and out (no maps, sequences or bfloat16)")
    return TensorSpec(node.name, _WORDS[node.type], tuple(length if isinstance(length, int) else -1 for length in node.shape))


def _decoded(array: Array) -> Array:
    """Convert texts for onnxruntime, which supports only UTF-8."""
    texts = np.empty(array.size, object)
    try:
        texts[:] = [as_bytes(element).decode() for element in array.ravel().tolist()]
    except UnicodeDecodeError as error:
        message = f"the model takes text, but an element is not valid UTF-8: {error}"
        raise ModelError(400, message) from None
    return texts.reshape(array.shape)


def _encoded(array: Array) -> Array:
    return of_texts([as_bytes(element) for element in array.ravel().tolist()]).reshape(array.shape)


def _short(error: Exception) -> str:
    text = " ".join(str(error).split())
    return text if len(text) <= 500 else f"{text[:500]}..."
