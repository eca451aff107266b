"""Loads a model with the runtime for its format."""

from __future__ import annotations

from fairway.serving.replica.folder import Found
from fairway.serving.replica.runtimes.onnx import OnnxRuntime
from fairway.serving.replica.runtimes.process import WorkerRuntime
from fairway.serving.replica.runtimes.runtime import Runtime


def load(found: Found, python: str, threads: int) -> Runtime:
    """Load the model: ONNX in this process, all others under the user's interpreter."""
    return OnnxRuntime(found.entry, threads) if found.runtime == "onnx" else WorkerRuntime(found, python, threads)
