"""What a policy is."""

from __future__ import annotations

from collections.abc import Hashable
from typing import NamedTuple, Protocol

import numpy as np

from fairway.plan.scheduling.placement.specs import Flags, Ints, Specs, State

NEVER = np.int32(-(2**31))
"""The score of a place that does not fit."""


class Column(NamedTuple):
    """What a node in some state is worth to each row of `Specs`."""

    scores: Ints
    picks: Ints | None = None
    """For shares of one device: the position of that device. None means the fullest that fits."""


class Policy(Protocol):
    """Scores places; the highest wins, and among equals the node that comes first.

    The scores of a state never change: they are kept and used again.
    """

    ordered: bool
    """Whether the order of equal devices matters. If not, states that differ only in it share their scores."""
    tagged: bool
    """Whether the kinds of tasks on the node matter."""

    @property
    def key(self) -> Hashable:
        """Policies of one class with equal keys score alike."""

    def column(self, specs: Specs, state: State) -> Column:
        """What the node is worth to each of `specs`; `NEVER` where it does not fit."""

    def pick(self, row: Ints, salt: int) -> int:
        """Which node, given the scores of all in order of rank. `salt` is a number that the cluster's state makes."""


class Scored:
    """A policy that needs nothing but scores."""

    ordered = False
    tagged = False

    @property
    def key(self) -> Hashable:
        """Nothing sets it apart from others of its class."""
        return ()

    def pick(self, row: Ints, salt: int) -> int:
        """The highest; the first among equals."""
        return int(row.argmax())


def masked(scores: np.ndarray[tuple[int], np.dtype[np.int64]], fits: Flags) -> Ints:
    """Scores with `NEVER` where it does not fit."""
    return np.where(fits, scores, NEVER).astype(np.int32)
