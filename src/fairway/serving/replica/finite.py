"""Checks outputs for NaN and infinity, reading them only once."""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np

from fairway.serving.replica.model.datatype import Array

_SUMMED = frozenset({"f", "d"})
"""Types for which numpy uses BLAS."""
_SMALL = 4096
"""Maximum elements for which the dot product is fastest; more could wake the threads of BLAS."""


def are_finite(outputs: Iterable[Array]) -> bool:
    """Whether all numbers in the outputs are finite; texts, booleans and integers always are."""
    for output in outputs:
        dtype = output.dtype
        if dtype.char in _SUMMED and output.size <= _SMALL:
            # A sum of squares propagates NaN and infinity. It may also overflow for large finite numbers, so check again.
            if not math.isfinite(np.vdot(output, output)) and not np.isfinite(output).all():
                return False
        elif dtype.kind == "f" and not np.isfinite(output).all():
            return False
    return True
