"""Export a PyTorch module: ONNX through `torch.onnx`, else a program of `torch.export`."""

from __future__ import annotations

import contextlib
import copy
import inspect
import io
import logging
import warnings
from functools import partial

from fairway.runtime.model_export.exported_model import ExportedModel, ask_onnx, installed, load, tensor

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from typing import Any

    from fairway.runtime.model_export.exported_model import Way, Ways

_LARGE = 1_500_000_000
"""Size of the weights in bytes above which they are stored in a file next to the graph: a graph is limited to two gigabytes."""
_WRAPPERS = ("DistributedDataParallel", "DataParallel")
"""Wrappers used for training, which are not part of the model."""


def ways(model: Any, example_inputs: Any) -> Ways:
    """See `exporting._ways`."""
    while type(model).__name__ in _WRAPPERS:
        model = model.module
    live = _TorchExporter(model, example_inputs)
    # Any batch size before the example's only, and formats that need no torch to serve before those that do.
    methods: list[Way] = []
    for kind, write in (("onnx", live.to_onnx), ("torch-export", live.to_program)):
        if kind != "onnx" or installed("onnx", "onnxscript"):
            methods += [
                (f"{kind} (any batch)", partial(write, any_batch=True)),
                (f"{kind} (this batch)", partial(write, any_batch=False)),
            ]
    return [_array(example_tensor) for example_tensor in live.tensors], live.ask, methods


class _TorchExporter:
    """A module with example inputs."""

    def __init__(self, model: Any, example: Any) -> None:
        self._torch = load("torch")
        self._model = model
        self._named = isinstance(example, dict)
        self._names, tensors = self._read(example)
        # With an example of one row, the exporter would assume that the batch size is always one.
        if all(value.dim() and len(value) == 1 for value in tensors):
            tensors = [self._torch.cat([value, value]) for value in tensors]
        devices = {value.device.type for value in (*model.parameters(), *model.buffers())}
        if devices - {"cpu"}:
            # A server may not have such a device, and rounding differences of a device are not errors of the export.
            self._model = copy.deepcopy(model).to("cpu")
        self.tensors = [value.detach().to("cpu") for value in tensors]

    def ask(self, arrays: list[Any]) -> list[Any]:
        """Return the answers of the live module."""
        with self._answering():
            return [_array(answer) for answer in self._answers(self._model, self._given(arrays))]

    def to_onnx(self, folder: Path, any_batch: bool) -> ExportedModel:
        """Write ONNX."""
        path = folder / "model.onnx"
        size = sum(parameter.numel() * parameter.element_size() for parameter in self._model.parameters())
        with self._answering():
            answers = self._answers(self._model, self.tensors)
            positional, named = self._call(self.tensors)
            self._torch.onnx.export(
                self._model,
                positional,
                str(path),
                kwargs=named,
                input_names=self._names,
                output_names=_output_names(answers),
                dynamo=True,
                dynamic_shapes=self._shapes(any_batch),
                external_data=size > _LARGE,
                verbose=False,
            )
        inputs, outputs = self._described(answers, any_batch)
        return ExportedModel("onnx", path.name, inputs, outputs, ask_onnx(path, self._names))

    def to_program(self, folder: Path, any_batch: bool) -> ExportedModel:
        """Write a torch.export program."""
        path = folder / "model.pt2"
        with self._answering():
            answers = self._answers(self._model, self.tensors)
            positional, named = self._call(self.tensors)
            program = self._torch.export.export(self._model, positional, named, dynamic_shapes=self._shapes(any_batch))
            self._torch.export.save(program, str(path))

        def ask(arrays: list[Any]) -> list[Any]:
            loaded = self._torch.export.load(str(path)).module()
            with self._torch.no_grad():
                return [_array(answer) for answer in self._answers(loaded, self._given(arrays))]

        inputs, outputs = self._described(answers, any_batch)
        return ExportedModel("torch-export", path.name, inputs, outputs, ask)

    def _read(self, example: Any) -> tuple[list[str], list[Any]]:
        if self._named:
            names, tensors = [str(name) for name in example], list(example.values())
        else:
            tensors = list(example) if isinstance(example, (tuple, list)) else [example]
            accepted = inspect.signature(self._model.forward).parameters.values()
            plain = [
                parameter.name
                for parameter in accepted
                if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)
            ]
            names = [plain[position] if position < len(plain) else f"input_{position}" for position in range(len(tensors))]
        invalid = [name for name, parameter in zip(names, tensors) if not isinstance(parameter, self._torch.Tensor)]
        if invalid or not tensors:
            message = (
                f"example_inputs must be tensors: {', '.join(invalid) + ' is not a tensor' if invalid else 'there are none'}"
            )
            raise TypeError(message)
        return names, tensors

    def _call(self, tensors: list[Any]) -> tuple[tuple[Any, ...], dict[str, Any] | None]:
        return ((), dict(zip(self._names, tensors))) if self._named else (tuple(tensors), None)

    def _given(self, arrays: list[Any]) -> list[Any]:
        return [self._torch.from_numpy(array.copy()).to(like.dtype) for array, like in zip(arrays, self.tensors)]

    def _answers(self, model: Any, tensors: list[Any]) -> list[Any]:
        """Return the tensors of an answer in order, whatever its structure."""
        positional, named = self._call(tensors)
        leaves = self._torch.utils._pytree.tree_leaves(model(*positional, **(named or {})))  # noqa: SLF001  no public way yet
        return [leaf for leaf in leaves if isinstance(leaf, self._torch.Tensor)]

    def _shapes(self, any_batch: bool) -> Any:
        if not any_batch:
            return None
        batch = self._torch.export.Dim("batch")
        shapes = [{0: batch} if example_tensor.dim() else None for example_tensor in self.tensors]
        return dict(zip(self._names, shapes)) if self._named else tuple(shapes)

    def _described(self, answers: list[Any], any_batch: bool) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        inputs = [tensor(name, value, any_batch) for name, value in zip(self._names, self.tensors)]
        return inputs, [tensor(name, value, any_batch) for name, value in zip(_output_names(answers), answers)]

    @contextlib.contextmanager
    def _answering(self) -> Iterator[None]:
        """Set the module to inference for the block: no dropout, no gradients; the previous state is restored.

        The output and warnings of exporters are suppressed.
        """
        training = [module for module in self._model.modules() if module.training]
        logger = logging.getLogger("torch.onnx")
        level = logger.level
        logger.setLevel(logging.ERROR)
        self._model.eval()
        try:
            with self._torch.no_grad(), warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
                warnings.simplefilter("ignore")
                yield
        finally:
            logger.setLevel(level)
            for module in training:
                module.training = True


def _output_names(answers: list[Any]) -> list[str]:
    return ["output"] if len(answers) == 1 else [f"output_{index}" for index in range(len(answers))]


def _array(each: Any) -> Any:
    each = each.detach().cpu()
    # numpy has no such type.
    return each.float().numpy() if str(each.dtype) == "torch.bfloat16" else each.numpy()
