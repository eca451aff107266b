"""How a PyTorch module becomes files: ONNX through `torch.onnx`, else a program of `torch.export`."""

from __future__ import annotations

import contextlib
import inspect
import io
import logging
import warnings
from functools import partial

from fairway.runtime.exported import Exported, ask_onnx, installed, load, tensor

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from typing import Any

    from fairway.runtime.exported import Way, Ways

_LARGE = 1_500_000_000
"""Bytes of weights above which they lie in a file beside the graph: a graph may have two gigabytes."""
_WRAPPERS = ("DistributedDataParallel", "DataParallel")
"""What wraps a module for training is no part of the model."""


def ways(model: Any, example_inputs: Any) -> Ways:
    """See `exporting._ways`."""
    while type(model).__name__ in _WRAPPERS:
        model = model.module
    live = _Live(model, example_inputs)
    # Any batch before this one only, and what needs no torch to be served before what does.
    found: list[Way] = []
    for kind, write in (("onnx", live.to_onnx), ("torch-export", live.to_program)):
        if kind != "onnx" or installed("onnx", "onnxscript"):
            found += [
                (f"{kind} (any batch)", partial(write, any_batch=True)),
                (f"{kind} (this batch)", partial(write, any_batch=False)),
            ]
    return [_array(each) for each in live.tensors], live.ask, found


class _Live:
    """A module with an example of what it is asked."""

    def __init__(self, model: Any, example: Any) -> None:
        self._torch = load("torch")
        self._model = model
        self._named = isinstance(example, dict)
        self._names, tensors = self._read(example)
        # An example of one row would make the exporter take the batch for always one.
        if all(each.dim() and len(each) == 1 for each in tensors):
            tensors = [self._torch.cat([each, each]) for each in tensors]
        self._device = next((each.device for each in (*model.parameters(), *model.buffers())), self._torch.device("cpu"))
        self.tensors = [each.detach().to(self._device) for each in tensors]

    def ask(self, arrays: list[Any]) -> list[Any]:
        """What the live module answers."""
        with self._answering():
            return [_array(each) for each in self._answers(self._model, self._given(arrays))]

    def to_onnx(self, folder: Path, any_batch: bool) -> Exported:
        """Write ONNX."""
        path = folder / "model.onnx"
        size = sum(each.numel() * each.element_size() for each in self._model.parameters())
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
        return Exported("onnx", path.name, inputs, outputs, ask_onnx(path, self._names))

    def to_program(self, folder: Path, any_batch: bool) -> Exported:
        """Write a program of torch.export."""
        path = folder / "model.pt2"
        with self._answering():
            answers = self._answers(self._model, self.tensors)
            positional, named = self._call(self.tensors)
            program = self._torch.export.export(self._model, positional, named, dynamic_shapes=self._shapes(any_batch))
            self._torch.export.save(program, str(path))

        def ask(arrays: list[Any]) -> list[Any]:
            loaded = self._torch.export.load(str(path)).module()
            with self._torch.no_grad():
                return [_array(each) for each in self._answers(loaded, self._given(arrays))]

        inputs, outputs = self._described(answers, any_batch)
        return Exported("torch-export", path.name, inputs, outputs, ask)

    def _read(self, example: Any) -> tuple[list[str], list[Any]]:
        if self._named:
            names, tensors = [str(name) for name in example], list(example.values())
        else:
            tensors = list(example) if isinstance(example, (tuple, list)) else [example]
            accepted = inspect.signature(self._model.forward).parameters.values()
            plain = [each.name for each in accepted if each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD)]
            names = [plain[place] if place < len(plain) else f"input_{place}" for place in range(len(tensors))]
        wrong = [name for name, each in zip(names, tensors) if not isinstance(each, self._torch.Tensor)]
        if wrong or not tensors:
            message = f"example_inputs must be tensors: {', '.join(wrong) + ' is none' if wrong else 'there is nothing'}"
            raise TypeError(message)
        return names, tensors

    def _call(self, tensors: list[Any]) -> tuple[tuple[Any, ...], dict[str, Any] | None]:
        return ((), dict(zip(self._names, tensors))) if self._named else (tuple(tensors), None)

    def _given(self, arrays: list[Any]) -> list[Any]:
        return [self._torch.from_numpy(array.copy()).to(self._device) for array in arrays]

    def _answers(self, model: Any, tensors: list[Any]) -> list[Any]:
        """The tensors of an answer, in order, however it is built."""
        positional, named = self._call(tensors)
        leaves = self._torch.utils._pytree.tree_leaves(model(*positional, **(named or {})))  # noqa: SLF001  no public way yet
        return [each for each in leaves if isinstance(each, self._torch.Tensor)]

    def _shapes(self, any_batch: bool) -> Any:
        if not any_batch:
            return None
        batch = self._torch.export.Dim("batch")
        shapes = [{0: batch} if each.dim() else None for each in self.tensors]
        return dict(zip(self._names, shapes)) if self._named else tuple(shapes)

    def _described(self, answers: list[Any], any_batch: bool) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        inputs = [tensor(name, each, any_batch) for name, each in zip(self._names, self.tensors)]
        return inputs, [tensor(name, each, any_batch) for name, each in zip(_output_names(answers), answers)]

    @contextlib.contextmanager
    def _answering(self) -> Iterator[None]:
        """As it is when it answers: no dropout, no gradients; afterwards as it was. Exporters talk a lot; nobody hears it."""
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
    return ["output"] if len(answers) == 1 else [f"output_{place}" for place in range(len(answers))]


def _array(each: Any) -> Any:
    each = each.detach().cpu()
    # numpy has no type for it.
    return each.float().numpy() if str(each.dtype) == "torch.bfloat16" else each.numpy()
