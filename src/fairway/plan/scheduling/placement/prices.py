"""What shares of a GPU are worth: the prices at which the mix fills GPUs without loss.

To pack the shares of the mix on as few GPUs as can be is a linear programme over the ways to fill one GPU. Its dual gives a price
to every size, such that no filling is worth more than one GPU. The most that a remainder can still be worth follows, and with
it the loss when a task goes where it spoils a better filling.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from fairway.plan.scheduling.shape import WHOLE

Numbers = NDArray[np.float64]

MOST_SIZES = 64
"""The commonest sizes are priced; the others weigh too little."""
MOST_ROUNDS = 400
CLOSE = 1e-6


class Prices:
    """The worth of every size and every remainder, in GPUs."""

    def __init__(self, demand: Mapping[int, float]) -> None:
        """`demand` is how many shares of each size (thousandths) there are."""
        common = sorted(demand, key=lambda size: (-demand[size] * size, size))[:MOST_SIZES]
        self._sizes = sorted(common, reverse=True)
        prices = _solve(self._sizes, np.array([demand[size] for size in self._sizes], np.float64))
        self.remainder, _ = _best_filling(self._sizes, prices)
        """The most that each remainder, 0 to 1000 thousandths, can be worth."""
        self._prices = dict(zip(self._sizes, prices.tolist(), strict=True))

    def of(self, size: int) -> float:
        """The price of a share; of a size that is not priced, what it could hold itself."""
        price = self._prices.get(size)
        return float(self.remainder[size]) if price is None else price

    def loss(self, free: int, need: int) -> float:
        """What is lost when a share goes to a device with so much free, in GPUs; never below zero."""
        return max(0.0, float(self.remainder[free] - self.remainder[free - need]) - self.of(need))


def _solve(sizes: list[int], demand: Numbers) -> Numbers:
    """Prices by column generation: the revised simplex method, with the best filling as the next column."""
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
    """The most that each remainder can be worth, and how many of each size make the best of a whole GPU."""
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
    left = WHOLE
    while left > 0:
        if last[left] < 0 or worth[left] <= worth[left - 1] + CLOSE / 100:
            left -= 1
            continue
        filling[last[left]] += 1
        left -= sizes[last[left]]
    return np.maximum.accumulate(worth), filling
