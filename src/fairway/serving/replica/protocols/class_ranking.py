"""Outputs as their best classes: `value:index`, or `value:index:label` if the classes have names."""

from __future__ import annotations

import math

import numpy as np

from fairway.serving.replica.model.datatype import Array, of_texts
from fairway.serving.replica.request_error import bad
from fairway.state.model import TensorSpec

MOST_ELEMENTS = 1 << 20
"""Maximum elements of an output to sort: more would take too long, and each becomes a text."""


def best_classes(spec: TensorSpec, values: Array, count: int, *, rows: bool, labels: tuple[str, ...] = ()) -> Array:
    """Return the best classes of each row as BYTES, best first; all classes if there are fewer than `count`.

    As in Triton, the classes of a row are all its elements, and equal values are ordered by index.
    """
    if spec.datatype in ("BYTES", "BOOL"):
        message = f"output {spec.name!r} has datatype {spec.datatype}, which has no order"
        raise bad(message, "request the output itself")
    shape = values.shape
    batch = shape[:1] if rows and shape else ()
    width = math.prod(shape[len(batch) :])
    table = values.reshape(math.prod(batch), width)
    class_count = min(count, width)
    if table.size > MOST_ELEMENTS:
        message = f"output {spec.name!r}: the best of {table.size} elements"
        raise bad(message, f"request the classes of at most {MOST_ELEMENTS} elements at once, or the output itself")
    floats = values.dtype.kind == "f"
    # Integers are inverted, because unsigned numbers and the smallest signed number have no negative.
    keys = -table.astype(np.float64) if floats else np.invert(table)
    order = np.argsort(keys, axis=1, kind="stable")[:, :class_count]
    texts = []
    for row, indices in zip(table.tolist(), order.tolist(), strict=True):
        for index in indices:
            value = row[index]
            text = f"{value:f}:{index}" if floats else f"{value}:{index}"
            texts.append(f"{text}:{labels[index]}".encode() if index < len(labels) else text.encode())
    return of_texts(texts).reshape((*batch, class_count))
