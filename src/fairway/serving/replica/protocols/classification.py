"""Outputs as their best classes: `value:index`, or `value:index:label` where the classes have names."""

from __future__ import annotations

import math

import numpy as np

from fairway.serving.replica.datatypes import Array, of_texts
from fairway.serving.replica.problem import bad
from fairway.state.model import TensorSpec

MOST_ELEMENTS = 1 << 20
"""Elements of an output that is sorted: more would take too long, and each becomes a text."""


def best_classes(spec: TensorSpec, values: Array, count: int, *, rows: bool, labels: tuple[str, ...] = ()) -> Array:
    """The best classes of each row as BYTES, the best first; all where there are fewer.

    As with Triton the classes of a row are all its elements, and equal values are ordered by index.
    """
    if spec.datatype in ("BYTES", "BOOL"):
        message = f"output {spec.name!r} has datatype {spec.datatype}, which has no order"
        raise bad(message, "ask for the output itself")
    shape = values.shape
    lead = shape[:1] if rows and shape else ()
    width = math.prod(shape[len(lead) :])
    table = values.reshape(math.prod(lead), width)
    most = min(count, width)
    if table.size > MOST_ELEMENTS:
        message = f"output {spec.name!r}: the best of {table.size} elements"
        raise bad(message, f"ask for the classes of {MOST_ELEMENTS} elements at the most at once, or for the output itself")
    floats = values.dtype.kind == "f"
    # An integer is inverted: the negative of an unsigned number, or of the least signed one, is none.
    keys = -table.astype(np.float64) if floats else np.invert(table)
    order = np.argsort(keys, axis=1, kind="stable")[:, :most]
    texts = []
    for row, places in zip(table.tolist(), order.tolist(), strict=True):
        for place in places:
            value = row[place]
            text = f"{value:f}:{place}" if floats else f"{value}:{place}"
            texts.append(f"{text}:{labels[place]}".encode() if place < len(labels) else text.encode())
    return of_texts(texts).reshape((*lead, most))
