"""`fairway.export(model, example_inputs)`: a live PyTorch, Keras or JAX model as files that a service can load.

ONNX first, since it needs no framework to serve; where that is not possible, what the framework itself exports. What
was written is asked the same as the live model, and must answer the same. Frameworks are imported only when a model of
theirs is given; nothing here needs them.
"""

from __future__ import annotations

import json
import math
import os
import shutil
import sys
from pathlib import Path

from fairway.runtime import context, exporting_jax, exporting_keras, exporting_torch
from fairway.runtime.exported import Exported, ExportError, load

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from fairway.runtime.exported import Ask, Ways

ABOUT = "fairway.json"
RELATIVE, ABSOLUTE = 1e-3, 1e-4
"""How far an answer may be from the live model's: single precision in another order of summing, and no more."""


def export(
    model: Any,
    example_inputs: Any,
    *,
    name: str = "model",
    metrics: Mapping[str, float] | None = None,
    tolerance: float = RELATIVE,
) -> Path | None:
    """Write a live model into the output NAME as files that can be served; their folder.

    `example_inputs` is what the model is called with: an array or tensor, a tuple of them, or a dict by argument name. The
    first dimension is the batch, and may have any length afterwards where the model allows it. Only rank 0 writes; on all
    others nothing happens, and None comes back. `metrics` go with the version. Raises `ExportError` when what was written
    does not answer as the live model does, within `tolerance`.
    """
    if context.rank() not in (0, context.NO_RANK) or (context.rank() == context.NO_RANK and context.index() != 0):
        return None
    for key, value in (metrics or {}).items():
        if not math.isfinite(value):
            message = f"metrics[{key!r}] is {value}: a finite number is needed"
            raise ValueError(message)
    folder = context.output(name)
    aside = folder.parent / f".{folder.name}-exporting"
    shutil.rmtree(aside, ignore_errors=True)
    aside.mkdir()
    try:
        made, difference = _exported(model, example_inputs, aside, tolerance)
        about = {
            "format": made.format,
            "entry": made.entry,
            "signature": {"inputs": made.inputs, "outputs": made.outputs},
            "generates": False,
            "metrics": {key: float(value) for key, value in (metrics or {}).items()},
            "checked": None if difference is None else {"largest_difference": difference, "tolerance": tolerance},
        }
        (aside / ABOUT).write_text(json.dumps(about, indent=2) + "\n")
        _replace(aside, folder)
    finally:
        shutil.rmtree(aside, ignore_errors=True)
    return folder


def _exported(model: Any, example_inputs: Any, folder: Path, tolerance: float) -> tuple[Exported, float | None]:
    """The first way that works and answers as the live model; how far its answers were off, None when nobody could ask."""
    arrays, live, ways = _ways(model, example_inputs)
    said = []
    for way, write in ways:
        _empty(folder)
        try:
            made = write(folder)
            difference = _difference(made, arrays, live, tolerance) if made.ask is not None else None
        except Exception as problem:  # noqa: BLE001  whatever an exporter raises, the next way may do
            said.append(
                f"{way}: {type(problem).__name__}: {str(problem).strip().splitlines()[0] if str(problem).strip() else ''}"
            )
            continue
        for line in said:
            _say(f"not as {line}")
        checked = "it could not be checked here" if difference is None else f"its answers differ by at most {difference:.2g}"
        _say(f"the model is exported as {made.format}; {checked}")
        return made, difference
    message = "the model cannot be exported:\n  " + "\n  ".join(said)
    raise ExportError(message)


def _ways(model: Any, example_inputs: Any) -> Ways:
    """How a model of its kind is asked and written."""
    if "torch" in sys.modules and isinstance(model, sys.modules["torch"].nn.Module):
        return exporting_torch.ways(model, example_inputs)
    if "keras" in sys.modules and isinstance(model, sys.modules["keras"].Model):
        return exporting_keras.ways(model, example_inputs)
    if "jax" in sys.modules and callable(model):
        return exporting_jax.ways(model, example_inputs)
    message = f"{type(model).__name__} is no model that can be exported"
    raise TypeError(message + "; give a torch.nn.Module, a keras.Model, or a function of JAX arrays")


def _difference(made: Exported, arrays: list[Any], live: Ask, tolerance: float) -> float:
    """The largest difference to the live model's answers, for the example and for one row of it where any batch may come."""
    assert made.ask is not None
    largest = _compare(made.ask(arrays), live(arrays), tolerance)
    any_batch = all(each["shape"] and each["shape"][0] == -1 for each in made.inputs)
    if any_batch and all(len(array) > 1 for array in arrays):
        one = [array[:1] for array in arrays]
        largest = max(largest, _compare(made.ask(one), live(one), tolerance))
    return largest


def _compare(found: list[Any], wanted: list[Any], tolerance: float) -> float:
    numpy = load("numpy")
    if len(found) != len(wanted):
        message = f"it gives {len(found)} answers, and the live model {len(wanted)}"
        raise ExportError(message)
    largest = 0.0
    for ours, theirs in zip(found, wanted):
        if numpy.shape(ours) != numpy.shape(theirs):
            message = f"its answer has the shape {numpy.shape(ours)}, and the live model's {numpy.shape(theirs)}"
            raise ExportError(message)
        mine = numpy.asarray(ours, dtype=numpy.float64)
        other = numpy.asarray(theirs, dtype=numpy.float64)
        if not numpy.allclose(mine, other, rtol=tolerance, atol=min(ABSOLUTE, tolerance), equal_nan=True):
            off = float(numpy.nanmax(numpy.abs(mine - other)))
            message = f"its answers differ from the live model's by {off:.3g}; does it draw random numbers when it is asked?"
            raise ExportError(message)
        gap = numpy.abs(mine - other)
        largest = max(largest, float(numpy.nanmax(gap)) if gap.size and not numpy.isnan(gap).all() else 0.0)
    return largest


def _replace(aside: Path, folder: Path) -> None:
    """Put what was written in the place of what an earlier export left; other files of the output stay."""
    try:
        earlier = json.loads((folder / ABOUT).read_text()).get("files", [])
    except (OSError, ValueError):
        earlier = []
    for name in [each for each in earlier if isinstance(each, str) and ".." not in each]:
        path = folder / name
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        elif os.path.lexists(path):
            path.unlink()
    written = sorted(path.name for path in aside.iterdir())
    about = json.loads((aside / ABOUT).read_text())
    (aside / ABOUT).write_text(json.dumps({**about, "files": written}, indent=2) + "\n")
    for each in [*(name for name in written if name != ABOUT), ABOUT]:
        target = folder / each
        if target.is_dir():
            shutil.rmtree(target)
        os.replace(aside / each, target)


def _empty(folder: Path) -> None:
    for path in folder.iterdir():
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()


def _say(text: str) -> None:
    sys.stderr.write(f"fairway: {text}\n")
