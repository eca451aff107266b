"""Loads a model with the runtime for its format."""

from __future__ import annotations

from fairway.serving.replica.model.version_folder import ModelFolderContent
from fairway.serving.replica.runtimes.onnx_runtime import OnnxRuntime
from fairway.serving.replica.runtimes.runtime import ModelRuntime
from fairway.serving.replica.runtimes.worker_runtime import WorkerRuntime


def load(found: ModelFolderContent, python: str, threads: int) -> ModelRuntime:
    """Load the model: ONNX in this process, all others under the user's interpreter."""
    return OnnxRuntime(found.entry, threads) if found.runtime == "onnx" else WorkerRuntime(found, python, threads)
