"""Choice of the revision for a request: exact weights, exact shares, and sticky senders. No I/O, no randomness."""

from __future__ import annotations

import math
from collections.abc import Mapping
from hashlib import blake2b

from fairway.state.serving.route import WHOLE


class WeightedTurns:
    """Smooth weighted round robin: as even as possible, and exact over one round of the weights.

    On every turn each candidate gains its weight; the one with the highest balance wins and pays the sum of the weights.
    Balances are kept when weights change, so a candidate that is due stays due however often they change.
    """

    __slots__ = ("_due",)

    def __init__(self) -> None:
        self._due: dict[int, int] = {}

    def next(self, weights: Mapping[int, int]) -> int:
        """Return the candidate whose turn it is; there is at least one weight, and none is negative."""
        due = self._due
        if due.keys() != weights.keys():
            self._due = due = self._carried(weights)
        total = 0
        best, highest = -1, -math.inf
        for name, weight in weights.items():
            total += weight
            due[name] = balance = due[name] + weight
            if balance > highest and weight:
                best, highest = name, balance
        if best < 0:
            # All weights are zero: equal turns.
            return self.next(dict.fromkeys(weights, 1))
        due[best] -= total
        return best

    def _carried(self, weights: Mapping[int, int]) -> dict[int, int]:
        """Return the balances of the candidates that remain, adjusted to sum to zero."""
        kept = {name: self._due.get(name, 0) for name in weights}
        first = next(iter(kept))
        kept[first] -= sum(kept.values())
        return kept


class RequestShare:
    """Selects a fixed share of the requests, evenly spread."""

    __slots__ = ("_due",)

    def __init__(self) -> None:
        self._due = 0

    def take(self, share: int) -> bool:
        """Return whether this request belongs to the share (in parts of `WHOLE`)."""
        self._due += share
        if self._due >= WHOLE:
            self._due -= WHOLE
            return True
        return False


def stay(value: bytes, weights: Mapping[int, int]) -> int:
    """Return the revision of a sticky sender: in proportion to the weights over all senders, and stable for equal weights.

    Weighted rendezvous hashing: each revision draws a score for the sender, the better the larger its weight, and the best one
    wins. A revision whose weight grows only gains senders; one whose weight shrinks only loses them.
    """
    best, highest = -1, -math.inf
    for name, weight in weights.items():
        if weight <= 0:
            continue
        digest = blake2b(b"%d:%b" % (name, value), digest_size=8).digest()
        drawn = (int.from_bytes(digest, "big") + 1) / (2**64 + 1)
        score = -weight / math.log(drawn)
        if score > highest:
            best, highest = name, score
    return best if best >= 0 else next(iter(weights))
