"""Whose turn it is: weights that come out exactly, and senders who stay where they are. No I/O, no chance."""

from __future__ import annotations

import math
from collections.abc import Mapping
from hashlib import blake2b

from fairway.state.route import WHOLE


class Turns:
    """Gives turns in proportion to weights, as evenly as can be: over one round of the weights, exactly.

    Each time everybody gains his weight, and who has most pays the sum. What everybody has is kept when weights
    change, so that one who is due stays due however often they do.
    """

    __slots__ = ("_due",)

    def __init__(self) -> None:
        self._due: dict[int, int] = {}

    def next(self, weights: Mapping[int, int]) -> int:
        """Whose turn it is; there is at least one weight, and none is negative."""
        due = self._due
        if due.keys() != weights.keys():
            self._due = due = self._carried(weights)
        total = 0
        best, most = -1, -math.inf
        for name, weight in weights.items():
            total += weight
            due[name] = mine = due[name] + weight
            if mine > most and weight:
                best, most = name, mine
        if best < 0:
            # All have nothing: equal turns.
            return self.next(dict.fromkeys(weights, 1))
        due[best] -= total
        return best

    def _carried(self, weights: Mapping[int, int]) -> dict[int, int]:
        """What those who stay have, brought back to a sum of nothing."""
        kept = {name: self._due.get(name, 0) for name in weights}
        first = next(iter(kept))
        kept[first] -= sum(kept.values())
        return kept


class Share:
    """Says yes to a part of the times, evenly."""

    __slots__ = ("_due",)

    def __init__(self) -> None:
        self._due = 0

    def take(self, share: int) -> bool:
        """Whether this one is of the share (parts of `WHOLE`)."""
        self._due += share
        if self._due >= WHOLE:
            self._due -= WHOLE
            return True
        return False


def stay(value: bytes, weights: Mapping[int, int]) -> int:
    """Where a sender stays: in proportion to the weights over all senders, and the same for equal weights.

    Every revision draws a number for the sender, the better the larger its weight, and the best wins (weighted rendezvous):
    a revision that grows only wins senders, one that shrinks only loses them.
    """
    best, most = -1, -math.inf
    for name, weight in weights.items():
        if weight <= 0:
            continue
        digest = blake2b(b"%d:%b" % (name, value), digest_size=8).digest()
        drawn = (int.from_bytes(digest, "big") + 1) / (2**64 + 1)
        score = -weight / math.log(drawn)
        if score > most:
            best, most = name, score
    return best if best >= 0 else next(iter(weights))
