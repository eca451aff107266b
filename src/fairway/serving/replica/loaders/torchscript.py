"""TorchScript programs. They do not record types and shapes, so the inputs must be declared in `fairway.json`."""

from __future__ import annotations

from typing import Any


class TorchScriptModel:
    """A program saved by `torch.jit.save`."""

    platform = "pytorch_torchscript"

    def __init__(self, order: Any) -> None:
        import torch  # type: ignore[import-not-found,unused-ignore]  # noqa: PLC0415

        torch.set_num_threads(order.threads)
        self._torch = torch
        self._device = device(torch, order.device)
        self._module = torch.jit.load(order.entry, map_location=self._device).eval()
        self.inputs: list[dict[str, Any]] = order.written["inputs"]
        names = [value.debugName().partition(".")[0] for value in self._module.graph.inputs()][1:]
        if not self.inputs:
            suggestion = ", ".join(f'{{"name": "{name}", "datatype": "FP32", "shape": [-1, ...]}}' for name in names)
            raise ValueError(
                "a TorchScript program does not declare its inputs' types and shapes; write them into fairway.json beside it: "
                f'{{"format": "torchscript", "signature": {{"inputs": [{suggestion}]}}}}'
            )
        if len(names) < len(self.inputs):
            raise ValueError(f"fairway.json names {len(self.inputs)} inputs where the program takes {len(names)}: {names}")
        self.outputs: list[dict[str, Any]] = order.written["outputs"] or order.outputs(self.inputs, self.predict)

    def predict(self, inputs: list[Any]) -> list[Any]:
        """Run the program."""
        torch = self._torch
        tensors = []
        for spec, array in zip(self.inputs, inputs):
            tensor = torch.from_numpy(array if array.flags.writeable else array.copy()).to(self._device)
            tensors.append(tensor.bfloat16() if spec["datatype"] == "BF16" else tensor)
        with torch.inference_mode():
            outputs = self._module(*tensors)
        if isinstance(outputs, torch.Tensor):
            outputs = (outputs,)
        elif isinstance(outputs, dict):
            outputs = tuple(outputs.values())
        return [(output.float() if output.dtype == torch.bfloat16 else output).cpu().numpy() for output in outputs]


def device(torch: Any, asked: str) -> str:
    """Return the device for tensors: the value of FAIRWAY_DEVICE, or the GPU if there is one."""
    if asked != "auto":
        return asked
    return "cuda" if torch.cuda.is_available() else "cpu"


def load(order: Any) -> TorchScriptModel:
    """Load the program."""
    return TorchScriptModel(order)
