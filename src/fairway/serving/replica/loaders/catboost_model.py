"""CatBoost models."""

from __future__ import annotations

from typing import Any


def load(order: Any) -> Any:
    """Load a model file; return a classifier if the file has classes."""
    import catboost  # type: ignore[import-untyped,import-not-found,unused-ignore]  # noqa: PLC0415

    loaded = catboost.CatBoost()
    loaded.load_model(order.entry)
    if len(loaded.classes_):
        loaded = catboost.CatBoostClassifier()
        loaded.load_model(order.entry)
    return model(order, loaded)


def model(order: Any, found: Any) -> Any:
    """Wrap a model: its input is one array of numbers, or a column per feature if some features are categories or texts."""
    tabular = order.module("tabular")
    names = list(found.feature_names_)
    textual = {*found.get_cat_feature_indices(), *found.get_text_feature_indices()}
    inputs = tabular.numbers(len(names), "FP32")
    if textual:
        inputs = [
            {"name": name, "datatype": "BYTES" if index in textual else "FP32", "shape": [-1]} for index, name in enumerate(names)
        ]
    probable = hasattr(found, "predict_proba") and len(found.classes_) > 0

    def run(rows: Any) -> Any:
        values = found.predict(rows, thread_count=order.threads)
        yield tabular.PREDICT, values[:, 0] if values.ndim == 2 and values.shape[1] == 1 else values
        if probable:
            yield tabular.PROBABILITIES, found.predict_proba(rows, thread_count=order.threads)

    return tabular.TreeModel(order, "catboost", inputs, run)
