"""Whether outputs hold NaN or infinity, at the price of reading them once."""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np

from fairway.serving.replica.datatypes import Array

_SUMMED = frozenset({"f", "d"})
"""Types whose products BLAS adds up."""
_SMALL = 4096
"""Elements up to which that is the fastest; more could wake the threads of BLAS."""


def are_finite(outputs: Iterable[Array]) -> bool:
    """Whether every number in the outputs is finite; texts, booleans and integers always are."""
    for output in outputs:
        dtype = output.dtype
        if dtype.char in _SUMMED and output.size <= _SMALL:
            # NaN and infinity stay in a sum of squares. A finite number that is too large for one is looked at again.
            if not math.isfinite(np.vdot(output, output)) and not np.isfinite(output).all():
                return False
        elif dtype.kind == "f" and not np.isfinite(output).all():
            return False
    return True
