"""Prices of GPU shares: the dual prices at which the mix fills GPUs without loss.

Packing the shares of the mix on the fewest GPUs is a linear programme over the ways to fill one GPU. Its dual assigns a price to
every size, such that no filling is worth more than one GPU. From the prices follow the maximum value of a remainder, and the
loss when a task prevents a better filling.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from fairway.plan.scheduling.gang import WHOLE

Numbers = NDArray[np.float64]

MOST_SIZES = 64
"""Maximum number of sizes with prices, the most frequent ones; the others have too little weight."""
MOST_ROUNDS = 400
CLOSE = 1e-6


class SharePrices:
    """The value of every size and every remainder, in GPUs."""

    def __init__(self, demand: Mapping[int, float]) -> None:
        """`demand` is the number of shares of each size (in thousandths)."""
        common = sorted(demand, key=lambda size: (-demand[size] * size, size))[:MOST_SIZES]
        self._sizes = sorted(common, reverse=True)
        prices = _solve(self._sizes, np.array([demand[size] for size in self._sizes], np.float64))
        self.remainder, _ = _best_filling(self._sizes, prices)
        """The maximum value of each remainder, 0 to 1000 thousandths."""
        self._prices = dict(zip(self._sizes, prices.tolist(), strict=True))

    def of(self, size: int) -> float:
        """Return the price of a share; for a size without a price, the value of what it could hold itself."""
        price = self._prices.get(size)
        return float(self.remainder[size]) if price is None else price

    def loss(self, free: int, need: int) -> float:
        """Return the loss, in GPUs, of placing a share on a device with this much free; never negative."""
        return max(0.0, float(self.remainder[free] - self.remainder[free - need]) - self.of(need))


def _solve(sizes: list[int], demand: Numbers) -> Numbers:
    """Compute prices by column generation: the revised simplex method, with the best filling as the next column."""
    count = len(sizes)
    if not count:
        return np.zeros(0)
    fillings = np.diag([float(WHOLE // size) for size in sizes])
    inverse = np.linalg.inv(fillings)
    amounts = inverse @ demand
    for _ in range(MOST_ROUNDS):
        prices: Numbers = np.maximum(inverse.sum(axis=0), 0.0)
        worth, filling = _best_filling(sizes, prices)
        if worth[WHOLE] <= 1.0 + CLOSE:
            break
        direction = inverse @ filling
        limits = np.full(count, np.inf)
        np.divide(amounts, direction, out=limits, where=direction > CLOSE)
        leaves = int(limits.argmin())
        pivot = inverse[leaves] / direction[leaves]
        amounts = amounts - limits[leaves] * direction
        amounts[leaves] = limits[leaves]
        inverse = inverse - np.outer(direction, pivot)
        inverse[leaves] = pivot
    return prices / max(1.0, float(worth[WHOLE]))


def _best_filling(sizes: list[int], prices: Numbers) -> tuple[Numbers, Numbers]:
    """Return the maximum value of each remainder, and the number of each size in the best filling of a whole GPU."""
    worth = np.zeros(WHOLE + 1)
    last = np.full(WHOLE + 1, -1)
    for number, (size, price) in enumerate(zip(sizes, prices.tolist(), strict=True)):
        if price <= CLOSE:
            continue
        for _ in range(WHOLE // size):
            better = worth[:-size] + price > worth[size:] + CLOSE / 100
            if not better.any():
                break
            worth[size:][better] = (worth[:-size] + price)[better]
            last[size:][better] = number
    filling = np.zeros(len(sizes))
    remaining = WHOLE
    while remaining > 0:
        if last[remaining] < 0 or worth[remaining] <= worth[remaining - 1] + CLOSE / 100:
            remaining -= 1
            continue
        filling[last[remaining]] += 1
        remaining -= sizes[last[remaining]]
    return np.maximum.accumulate(worth), filling
