"""Programs exported by torch.export."""

from __future__ import annotations

import os
from typing import Any


class TorchExportModel:
    """A program exported by torch.export: a graph and its weights."""

    platform = "pytorch_export"

    def __init__(self, order: Any) -> None:
        # Restrict pickled parts of a program to tensors; torch.export itself would unpickle anything.
        os.environ["TORCH_FORCE_WEIGHTS_ONLY_LOAD"] = "1"
        os.environ.pop("TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD", None)
        import torch  # type: ignore[import-not-found,unused-ignore]  # noqa: PLC0415

        torch.set_num_threads(order.threads)
        self._torch = torch
        self._words = order.words
        program = torch.export.load(order.entry)
        self._module = program.module()
        values = {node.name: node.meta.get("val") for node in program.graph.nodes}
        signature = program.graph_signature
        self.inputs = [self._told(name, values[name]) for name in signature.user_inputs]
        outputs = [values[name] for name in signature.user_outputs]
        self.outputs = [self._told(f"output_{index}", value) for index, value in enumerate(outputs)]

    def _told(self, name: str, value: Any) -> dict[str, Any]:
        datatype = self._words[str(value.dtype).rpartition(".")[2]]
        return {
            "name": name,
            "datatype": datatype,
            "shape": [length if isinstance(length, int) else -1 for length in value.shape],
        }

    def predict(self, inputs: list[Any]) -> list[Any]:
        """Run the graph."""
        torch = self._torch
        tensors = []
        for spec, array in zip(self.inputs, inputs):
            tensor = torch.from_numpy(array if array.flags.writeable else array.copy())
            tensors.append(tensor.bfloat16() if spec["datatype"] == "BF16" else tensor)
        with torch.no_grad():
            outputs = self._module(*tensors)
        if isinstance(outputs, torch.Tensor):
            outputs = (outputs,)
        elif isinstance(outputs, dict):
            outputs = tuple(outputs.values())
        return [output.float().numpy() if output.dtype == torch.bfloat16 else output.numpy() for output in outputs]


def load(order: Any) -> TorchExportModel:
    """Load the program."""
    return TorchExportModel(order)
