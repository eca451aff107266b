"""The interface of runtimes for the batcher and the protocols."""

from __future__ import annotations

from typing import Protocol

from fairway.serving.replica.model.datatype import Array
from fairway.state.model import ModelSignature


class ModelRuntime(Protocol):
    """One loaded model.

    Promises:
    1. `run` takes arrays in the order of `signature.inputs` and returns them in the order of `signature.outputs`.
    2. An invalid input raises `ModelError` for that call only; the next call works.
    """

    platform: str
    """Its name in the protocols: `onnx_onnxv1` ..."""
    signature: ModelSignature
    batches: bool
    """Whether rows of several requests may run together: every tensor has a free first dimension."""
    quick: bool
    """Whether `run` of a fast model may be called on the event loop's thread: it does not wait for another process."""

    def run(self, inputs: list[Array]) -> list[Array]:
        """Run the model once."""
        ...

    def close(self) -> None:
        """Release its resources."""
        ...


def takes_batches(signature: ModelSignature) -> bool:
    """Whether every input and output has a free first dimension."""
    tensors = (*signature.inputs, *signature.outputs)
    return bool(signature.inputs) and all(tensor.shape and tensor.shape[0] == -1 for tensor in tensors)
