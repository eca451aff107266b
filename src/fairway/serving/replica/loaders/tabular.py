"""Models for rows of features: one array of numbers, one text per row, or columns by name. Used by other loaders."""

from __future__ import annotations

import sys
import warnings
from typing import Any

import numpy as np

INPUT = "input"
PREDICT = "predict"
PROBABILITIES = "predict_proba"


class TabularModel:
    """A model with methods that take rows. Its outputs are determined by running it on zeros."""

    def __init__(
        self, order: Any, platform: str, inputs: list[dict[str, Any]], run: Any, columns: Any = None, known: Any = None
    ) -> None:
        """Wrap a model.

        `run` takes the rows and yields (name, values) of each output. `columns` are the feature names, if the model has them.
        `known` are the outputs, if they are known without running the model.
        """
        self._run = run
        self._columns = columns
        self.platform = platform
        self.inputs = order.written["inputs"] or inputs
        if not self.inputs:
            raise ValueError("it does not declare its number of features; write the inputs into fairway.json")
        self._names: list[str] = []
        self.outputs: list[dict[str, Any]] = order.written["outputs"] or known or []
        if not self.outputs:
            self.outputs = order.outputs(self.inputs, self.predict)
            for output, name in zip(self.outputs, self._names):
                output["name"] = name

    def predict(self, inputs: list[Any]) -> list[Any]:
        """Run all methods."""
        results = list(self._run(self._rows(inputs)))
        self._names = [name for name, _ in results]
        return [plain(values) for _, values in results]

    def _rows(self, inputs: list[Any]) -> Any:
        if len(self.inputs) > 1:
            return frame({spec["name"]: column(array, spec) for spec, array in zip(self.inputs, inputs)})
        (array,) = inputs
        if self.inputs[0]["datatype"] == "BYTES":
            texts = np.array([_text(text) for text in array.ravel()], dtype=object).reshape(array.shape)
            return texts if texts.ndim > 1 else list(texts)
        if self._columns is not None and len(self._columns) == array.shape[1] and _has_pandas():
            return frame(dict(zip(self._columns, array.T)))
        return array


class TreeModel(TabularModel):
    """A tree model: its library computes each row independently, so rows of several requests may run together."""

    independent = True


def numbers(count: Any, word: str = "FP64") -> list[dict[str, Any]]:
    """Return one input with this many features."""
    return [{"name": INPUT, "datatype": word, "shape": [-1, int(count)]}] if count else []


def methods(model: Any) -> Any:
    """Return a function that calls the model's `predict` and `predict_proba`, or else `transform`."""
    names = [name for name in (PREDICT, PROBABILITIES) if hasattr(model, name)]
    if not names and hasattr(model, "transform"):
        names = ["transform"]
    if not names:
        raise ValueError(f"a {type(model).__name__} has neither predict nor transform")

    def run(rows: Any) -> Any:
        for name in names:
            values = getattr(model, name)(rows)
            if isinstance(values, list) and name == PROBABILITIES:
                for index, probabilities in enumerate(values):  # a classifier with several outputs
                    yield f"{name}_{index}", probabilities
            else:
                yield name, values

    return run


def estimator(order: Any, model: Any, platform: str = "sklearn") -> TabularModel:
    """Wrap a model with scikit-learn's interface."""
    _bound(model, order.threads)
    first = model
    while hasattr(first, "steps") and first.steps:
        first = first.steps[0][1]
    if getattr(first, "analyzer", None) is not None:
        inputs = [{"name": INPUT, "datatype": "BYTES", "shape": [-1]}]
    else:
        inputs = numbers(getattr(model, "n_features_in_", None))
    # Rows have no feature names when pandas is not installed.
    warnings.filterwarnings("ignore", message="X does not have valid feature names")
    outputs = _outputs_of_classes(order, model) if len(order.written["inputs"]) > 1 else None
    return TabularModel(order, platform, inputs, methods(model), getattr(model, "feature_names_in_", None), outputs)


def _outputs_of_classes(order: Any, model: Any) -> Any:
    """Return the outputs of a classifier, whose columns may reject zeros and empty texts; None for other models."""
    classes = getattr(model, "classes_", None)
    if classes is None or isinstance(classes, list) or np.asarray(classes).ndim != 1:
        return None
    outputs = [{"name": PREDICT, "datatype": order.word(np.asarray(classes)), "shape": [-1]}]
    if hasattr(model, PROBABILITIES):
        outputs.append({"name": PROBABILITIES, "datatype": "FP64", "shape": [-1, len(classes)]})
    return outputs


def _bound(model: Any, threads: int) -> None:
    """Set the number of threads of a model that has such a parameter to that of the replica."""
    try:
        if any(name.rpartition("__")[2] == "n_jobs" for name in model.get_params()):
            model.set_params(**{name: threads for name in model.get_params() if name.rpartition("__")[2] == "n_jobs"})
    except Exception as error:  # noqa: BLE001  # a model that rejects the parameter keeps its own number
        sys.stderr.write(f"worker: the number of threads cannot be set: {error}\n")


def frame(columns: Any) -> Any:
    """Return a data frame of these columns."""
    import pandas  # type: ignore[import-untyped,import-not-found,unused-ignore]  # noqa: PLC0415

    return pandas.DataFrame(columns)


def _has_pandas() -> bool:
    import importlib.util  # noqa: PLC0415

    return "pandas" in sys.modules or importlib.util.find_spec("pandas") is not None


def column(array: Any, told: dict[str, Any]) -> Any:
    """Convert an input to one column or array, with texts as `str`."""
    if array.dtype == object:
        array = np.array([_text(value) for value in array.ravel()], dtype=object).reshape(array.shape)
    return array.reshape(-1) if len(told["shape"]) <= 2 and told["shape"][1:] in ([], [1]) else array


def _text(value: Any) -> Any:
    try:
        return value.decode() if isinstance(value, bytes) else value
    except UnicodeDecodeError as error:
        raise ValueError(f"a text is not valid UTF-8: {error}") from None


def plain(values: Any) -> Any:
    """Convert a sparse matrix, a data frame or a list to an array."""
    if hasattr(values, "toarray"):
        values = values.toarray()
    array = np.asarray(values)
    if array.dtype.kind == "O" and array.size and all(isinstance(value, (bool, np.bool_)) for value in array.ravel()):
        array = array.astype(bool)
    return array
