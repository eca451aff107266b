"""LightGBM models."""

from __future__ import annotations

from typing import Any


def load(order: Any) -> Any:
    """Load the Booster of a text file."""
    import lightgbm  # type: ignore[import-untyped,import-not-found,unused-ignore]  # noqa: PLC0415

    return booster(order, lightgbm.Booster(model_file=order.entry))


def booster(order: Any, model: Any) -> Any:
    """Wrap a Booster; its objective determines whether `predict` returns probabilities or values."""
    tabular = order.module("tabular")

    def run(rows: Any) -> Any:
        yield tabular.PREDICT, model.predict(rows, num_threads=order.threads)

    return tabular.TreeModel(order, "lightgbm", tabular.numbers(model.num_feature()), run)
