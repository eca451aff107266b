"""MLflow models, loaded by MLflow itself: any flavour, including Python code of the model's author."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

_PLAIN = {
    "boolean": "BOOL", "integer": "INT32", "long": "INT64", "float": "FP32", "double": "FP64", "string": "BYTES",
    "binary": "BYTES",
}  # fmt: skip


class PyfuncModel:
    """A model whose inputs are declared in `MLmodel` or `fairway.json`. Its outputs are determined by running it on zeros."""

    platform = "mlflow"

    def __init__(self, order: Any) -> None:
        if not order.trusted:
            raise ValueError("MLflow's loader executes code of the model; to allow it, add --allow-pickle")
        os.environ.setdefault("MLFLOW_TRACKING_URI", os.path.join(os.environ.get("TMPDIR", "/tmp"), "mlruns"))
        os.environ["MLFLOW_DISABLE_ENV_MANAGER_CONDA_WARNING"] = "true"
        import mlflow.pyfunc  # type: ignore[import-untyped,import-not-found,unused-ignore]  # noqa: PLC0415

        self._order = order
        self._tabular = order.module("tabular")
        self._model = mlflow.pyfunc.load_model(order.entry)
        schema = self._model.metadata.get_input_schema()
        self._columns = schema is None or not schema.is_tensor_spec()
        self.inputs: list[dict[str, Any]] = order.written["inputs"] or self._told(schema)
        if not self.inputs:
            raise ValueError(
                "its MLmodel has no signature; log it with one (infer_signature), or write the inputs into fairway.json"
            )
        output_schema = self._model.metadata.get_output_schema()
        named = [spec.name for spec in output_schema.inputs] if output_schema is not None else []
        self._only = str(named[0]) if len(named) == 1 and named[0] is not None else self._tabular.PREDICT
        """The name of an output that has none."""
        self._names: list[str] = []
        self.outputs: list[dict[str, Any]] = order.outputs(self.inputs, self.predict)
        for output, name in zip(self.outputs, self._names):
            output["name"] = name

    def _told(self, schema: Any) -> list[dict[str, Any]]:
        inputs = []
        for index, spec in enumerate(schema.inputs if schema is not None else ()):
            name = str(spec.name if spec.name is not None else "input" if len(schema.inputs) == 1 else f"input-{index}")
            if schema.is_tensor_spec():
                datatype = "BYTES" if spec.type.kind in "OSU" else self._order.words[spec.type.name]
                inputs.append({"name": name, "datatype": datatype, "shape": list(spec.shape)})
            else:
                datatype = _PLAIN.get(getattr(spec.type, "name", ""), "BYTES")
                inputs.append({"name": name, "datatype": datatype, "shape": [-1]})
        return inputs

    def predict(self, inputs: list[Any]) -> list[Any]:
        """Run `predict` on a data frame, or on arrays if the signature has tensors."""
        named = {spec["name"]: self._tabular.column(array, spec) for spec, array in zip(self.inputs, inputs)}
        if self._columns:
            argument: Any = self._tabular.frame(named)
        else:
            argument = named if len(named) > 1 else next(iter(named.values()))
        return self._outputs(self._model.predict(argument))

    def _outputs(self, values: Any) -> list[Any]:
        if hasattr(values, "columns"):
            values = {str(name): values[name].to_numpy() for name in values.columns}
        if not isinstance(values, dict):
            values = {self._only: values}
        self._names = list(values)
        return [self._tabular.plain(np.asarray(value)) for value in values.values()]


def load(order: Any) -> PyfuncModel:
    """Load the model."""
    return PyfuncModel(order)
