"""scikit-learn estimators in skops files."""

from __future__ import annotations

from typing import Any


def load(order: Any) -> Any:
    """Load the estimator. Types that skops does not trust are loaded only with consent."""
    import skops.io  # type: ignore[import-untyped,import-not-found,unused-ignore]  # noqa: PLC0415

    untrusted = skops.io.get_untrusted_types(file=order.entry)
    if untrusted and not order.trusted:
        named = ", ".join(sorted(untrusted))
        raise ValueError(
            f"it holds types that skops does not trust: {named}; register it with --allow-pickle if you trust its author"
        )
    return order.module("tabular").estimator(order, skops.io.load(order.entry, trusted=untrusted))
