"""`fairway.export(model, example_inputs)`: write a live PyTorch, Keras or JAX model as files that a service can load.

ONNX is tried first, since it needs no framework to serve; if that is not possible, the framework's own format is used. The
exported model is run with the same inputs as the live model, and must give the same answers. A framework is imported only when a
model of it is given; nothing here needs one.
"""

from __future__ import annotations

import json
import math
import os
import shutil
import sys
from pathlib import Path

from fairway.runtime import task_context
from fairway.runtime.model_export import jax_exporter, keras_exporter, torch_exporter
from fairway.runtime.model_export.exported_model import ExportedModel, ExportError, load

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from fairway.runtime.model_export.exported_model import Ask, Ways

ABOUT = "fairway.json"
RELATIVE, ABSOLUTE = 1e-3, 1e-4
"""Allowed difference to the live model's answers: that of single precision with another order of summation."""


def export(
    model: Any,
    example_inputs: Any,
    *,
    name: str = "model",
    metrics: Mapping[str, float] | None = None,
    tolerance: float = RELATIVE,
) -> Path | None:
    """Write a live model into the output NAME as files that can be served, and return their folder.

    `example_inputs` are the arguments of a call of the model: an array or tensor, a tuple of them, or a dict by argument name.
    The first dimension is the batch, and may have any length afterwards if the model allows it. Only rank 0 writes; other ranks
    do nothing and get None. `metrics` are stored with the version. Raises `ExportError` when the exported model does not give the
    live model's answers within `tolerance`.
    """
    if task_context.rank() not in (0, task_context.NO_RANK) or (
        task_context.rank() == task_context.NO_RANK and task_context.index() != 0
    ):
        return None
    for key, value in (metrics or {}).items():
        if not math.isfinite(value):
            message = f"metrics[{key!r}] is {value}: a finite number is needed"
            raise ValueError(message)
    folder = task_context.output(name)
    temporary = folder.parent / f".{folder.name}-exporting"
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir()
    try:
        exported, difference = _exported(model, example_inputs, temporary, tolerance)
        about = {
            "format": exported.format,
            "entry": exported.entry,
            "signature": {"inputs": exported.inputs, "outputs": exported.outputs},
            "generates": False,
            "metrics": {key: float(value) for key, value in (metrics or {}).items()},
            "checked": None if difference is None else {"largest_difference": difference, "tolerance": tolerance},
        }
        (temporary / ABOUT).write_text(json.dumps(about, indent=2) + "\n")
        _replace(temporary, folder)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return folder


def _exported(model: Any, example_inputs: Any, folder: Path, tolerance: float) -> tuple[ExportedModel, float | None]:
    """Return the result of the first export method that works and gives the live model's answers.

    The second value is the largest difference of its answers, None if the exported model could not be run here.
    """
    arrays, live, methods = _ways(model, example_inputs)
    failures = []
    for method, write in methods:
        _empty(folder)
        try:
            exported = write(folder)
            difference = _difference(exported, arrays, live, tolerance) if exported.ask is not None else None
        except Exception as problem:  # noqa: BLE001  whatever an exporter raises, the next method may work
            failures.append(
                f"{method}: {type(problem).__name__}: {str(problem).strip().splitlines()[0] if str(problem).strip() else ''}"
            )
            continue
        for line in failures:
            _say(f"not exported as {line}")
        checked = "it could not be checked here" if difference is None else f"its answers differ by at most {difference:.2g}"
        _say(f"the model is exported as {exported.format}; {checked}")
        return exported, difference
    message = "the model cannot be exported:\n  " + "\n  ".join(failures)
    raise ExportError(message)


def _ways(model: Any, example_inputs: Any) -> Ways:
    """Return the functions to run and to export a model, by its framework."""
    if "torch" in sys.modules and isinstance(model, sys.modules["torch"].nn.Module):
        return torch_exporter.ways(model, example_inputs)
    if "keras" in sys.modules and isinstance(model, sys.modules["keras"].Model):
        return keras_exporter.ways(model, example_inputs)
    if "jax" in sys.modules and callable(model):
        return jax_exporter.ways(model, example_inputs)
    message = f"{type(model).__name__} is not a model that can be exported"
    raise TypeError(message + "; give a torch.nn.Module, a keras.Model, or a function of JAX arrays")


def _difference(made: ExportedModel, arrays: list[Any], live: Ask, tolerance: float) -> float:
    """Return the largest difference to the live model's answers.

    It compares the answers for the example and, if any batch size is allowed, for one row of it.
    """
    assert made.ask is not None
    largest = _compare(made.ask(arrays), live(arrays), tolerance)
    any_batch = all(description["shape"] and description["shape"][0] == -1 for description in made.inputs)
    if any_batch and all(len(array) > 1 for array in arrays):
        first_row = [array[:1] for array in arrays]
        largest = max(largest, _compare(made.ask(first_row), live(first_row), tolerance))
    return largest


def _compare(found: list[Any], wanted: list[Any], tolerance: float) -> float:
    numpy = load("numpy")
    if len(found) != len(wanted):
        message = f"it returns {len(found)} outputs, but the live model returns {len(wanted)}"
        raise ExportError(message)
    largest = 0.0
    for actual, expected in zip(found, wanted):
        if numpy.shape(actual) != numpy.shape(expected):
            message = f"its output has shape {numpy.shape(actual)}, but the live model's has shape {numpy.shape(expected)}"
            raise ExportError(message)
        actual_values = numpy.asarray(actual, dtype=numpy.float64)
        expected_values = numpy.asarray(expected, dtype=numpy.float64)
        if not numpy.allclose(actual_values, expected_values, rtol=tolerance, atol=min(ABSOLUTE, tolerance), equal_nan=True):
            off = float(numpy.nanmax(numpy.abs(actual_values - expected_values)))
            message = f"its answers differ from the live model's by {off:.3g}; does it use random numbers during inference?"
            raise ExportError(message)
        differences = numpy.abs(actual_values - expected_values)
        largest = max(
            largest, float(numpy.nanmax(differences)) if differences.size and not numpy.isnan(differences).all() else 0.0
        )
    return largest


def _replace(aside: Path, folder: Path) -> None:
    """Replace the files of an earlier export by the new ones; other files of the output are kept."""
    try:
        earlier = json.loads((folder / ABOUT).read_text()).get("files", [])
    except (OSError, ValueError):
        earlier = []
    for name in [entry for entry in earlier if isinstance(entry, str) and ".." not in entry]:
        path = folder / name
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        elif os.path.lexists(path):
            path.unlink()
    written = sorted(path.name for path in aside.iterdir())
    about = json.loads((aside / ABOUT).read_text())
    (aside / ABOUT).write_text(json.dumps({**about, "files": written}, indent=2) + "\n")
    for entry in [*(name for name in written if name != ABOUT), ABOUT]:
        target = folder / entry
        if target.is_dir():
            shutil.rmtree(target)
        os.replace(aside / entry, target)


def _empty(folder: Path) -> None:
    for path in folder.iterdir():
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()


def _say(text: str) -> None:
    sys.stderr.write(f"fairway: {text}\n")
