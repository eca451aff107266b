"""Pickled models: scikit-learn estimators and models of libraries with the same interface. Loading one runs its author's code."""

from __future__ import annotations

import zipfile
from typing import Any


def load(order: Any) -> Any:
    """Load the model, and wrap it according to its library."""
    if not order.trusted:
        raise ValueError("loading a pickle can execute arbitrary code; to allow it, add --allow-pickle")
    if zipfile.is_zipfile(order.entry):
        raise ValueError("torch.save wrote weights or a whole module; export it: fairway.export, torch.export or torch.jit.save")
    try:
        import joblib  # type: ignore[import-untyped,import-not-found,unused-ignore]  # noqa: PLC0415
    except ImportError:
        import pickle  # noqa: PLC0415, TID251

        with open(order.entry, "rb") as file:
            model = pickle.load(file)
    else:
        model = joblib.load(order.entry)
    library = type(model).__module__.partition(".")[0]
    if type(model).__name__ == "Booster" and library in ("xgboost", "lightgbm"):
        return order.module(library + "_model").booster(order, model)
    if library == "catboost":
        return order.module("catboost_model").model(order, model)
    return order.module("tabular").estimator(order, model)
