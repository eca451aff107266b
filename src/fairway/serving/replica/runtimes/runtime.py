"""What every runtime promises to the batcher and to the protocols."""

from __future__ import annotations

from typing import Protocol

from fairway.serving.replica.datatypes import Array
from fairway.state.model import Signature


class Runtime(Protocol):
    """One loaded model.

    Promises:
    1. `run` takes arrays in the order of `signature.inputs` and gives them in the order of `signature.outputs`.
    2. What is wrong with an input is a `ModelError` for that call alone; the next call works.
    """

    platform: str
    """What the protocols call it: `onnx_onnxv1` ..."""
    signature: Signature
    batches: bool
    """Whether rows of several requests may be run together: every tensor has a free first dimension."""
    quick: bool
    """Whether `run` may be called on the loop's thread when the model is fast: it waits for nobody else."""

    def run(self, inputs: list[Array]) -> list[Array]:
        """Run the model once."""
        ...

    def close(self) -> None:
        """Give back what it holds."""
        ...


def takes_batches(signature: Signature) -> bool:
    """Whether every input and output has a first dimension of any length."""
    tensors = (*signature.inputs, *signature.outputs)
    return bool(signature.inputs) and all(tensor.shape and tensor.shape[0] == -1 for tensor in tensors)
