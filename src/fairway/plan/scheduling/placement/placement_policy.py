"""The interface of placement policies."""

from __future__ import annotations

from collections.abc import Hashable
from typing import NamedTuple, Protocol

import numpy as np

from fairway.plan.scheduling.score_input import Flags, Ints, NodeScoreState, ScoreRows

NEVER = np.int32(-(2**31))
"""The score of a place that does not fit."""


class ScoreColumn(NamedTuple):
    """The scores of one node state for each row of `ScoreRows`."""

    scores: Ints
    picks: Ints | None = None
    """For shares of one device: the position of the chosen device. None means the fullest that fits."""


class PlacementPolicy(Protocol):
    """Scores places; the highest score wins, and among equals the first node.

    The scores of a state never change, so they are cached.
    """

    ordered: bool
    """Whether the order of equal devices matters. If not, states that differ only in the order share their scores."""
    tagged: bool
    """Whether the kinds of tasks on the node matter."""

    @property
    def key(self) -> Hashable:
        """Policies of one class with equal keys give equal scores."""

    def column(self, specs: ScoreRows, state: NodeScoreState) -> ScoreColumn:
        """Return the node's score for each of `specs`; `NEVER` where it does not fit."""

    def pick(self, row: Ints, salt: int) -> int:
        """Return the chosen node, given all scores in order of rank. `salt` is a checksum of the cluster's state."""


class ScoreOnlyPolicy:
    """A policy defined by its scores alone."""

    ordered = False
    tagged = False

    @property
    def key(self) -> Hashable:
        """The empty key: all policies of the class are equal."""
        return ()

    def pick(self, row: Ints, salt: int) -> int:
        """Return the position of the highest score, the first among equals."""
        return int(row.argmax())


def masked(scores: np.ndarray[tuple[int], np.dtype[np.int64]], fits: Flags) -> Ints:
    """Return the scores with `NEVER` where the task does not fit."""
    return np.where(fits, scores, NEVER).astype(np.int32)
