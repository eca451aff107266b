"""XGBoost models."""

from __future__ import annotations

import json
from typing import Any


def load(order: Any) -> Any:
    """Load the file as the kind of model that saved it: an estimator of `xgboost.sklearn`, or a Booster."""
    import xgboost  # type: ignore[import-untyped,import-not-found,unused-ignore]  # noqa: PLC0415

    loaded = xgboost.Booster(model_file=order.entry)
    kind = json.loads(loaded.attr("scikit_learn") or "{}").get("_estimator_type")
    if kind != "classifier":
        return booster(order, loaded)
    tabular = order.module("tabular")
    model = xgboost.XGBClassifier(n_jobs=order.threads)
    model.load_model(order.entry)
    return tabular.TreeModel(order, "xgboost", tabular.numbers(loaded.num_features(), "FP32"), tabular.methods(model))


def booster(order: Any, model: Any) -> Any:
    """Wrap a Booster; its objective determines whether `predict` returns probabilities or values."""
    import xgboost  # noqa: PLC0415

    tabular = order.module("tabular")
    model.set_param({"nthread": order.threads})

    def run(rows: Any) -> Any:
        matrix = xgboost.DMatrix(
            rows, feature_names=model.feature_names, feature_types=model.feature_types, nthread=order.threads,
            enable_categorical=True,
        )  # fmt: skip
        yield tabular.PREDICT, model.predict(matrix)

    return tabular.TreeModel(order, "xgboost", tabular.numbers(model.num_features(), "FP32"), run)
