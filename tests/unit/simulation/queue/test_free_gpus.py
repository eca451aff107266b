"""Nodes as counts of GPUs."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairway.errors import UsageError
from fairway.simulation.queue.free_gpus import EqualNodes, FreeGpus


def test_nodes_are_written_as_count_by_gpus() -> None:
    assert EqualNodes.parse("14x8") == EqualNodes(14, 8)
    assert EqualNodes(14, 8).total == 112
    assert EqualNodes(14, 8).changed(add=4, remove=1) == EqualNodes(17, 8)


@pytest.mark.parametrize("text", ["14", "x8", "14x", "0x8", "14x0", "axb", "-1x8"])
def test_what_is_not_nodes_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="14x8"):
        EqualNodes.parse(text)


def test_some_node_must_be_left() -> None:
    with pytest.raises(UsageError, match="leaves no nodes"):
        EqualNodes(2, 8).changed(remove=2)


def test_a_small_gang_gets_the_fullest_node_that_will_do() -> None:
    floor = FreeGpus(EqualNodes(3, 8))
    floor.take(((0, 3), (1, 6)))
    assert floor.find(2) == ((1, 2),)
    assert floor.find(4) == ((0, 4),)
    assert floor.find(8) == ((2, 8),)


def test_a_large_gang_gets_whole_nodes() -> None:
    floor = FreeGpus(EqualNodes(3, 8))
    assert floor.find(17) == ((0, 8), (1, 8), (2, 8))
    floor.take(((1, 1),))
    assert floor.find(16) == ((0, 8), (2, 8))
    assert floor.find(17) is None
    assert EqualNodes(3, 8).whole(17) == 24


@given(st.lists(st.integers(1, 20), max_size=20))
def test_nothing_is_handed_out_twice_and_all_comes_back(asked: list[int]) -> None:
    floor = FreeGpus(EqualNodes(3, 8))
    taken = []
    for gpus in asked:
        places = floor.find(gpus)
        if places is not None:
            floor.take(places)
            taken.append(places)
            assert min(floor.free) >= 0
            assert floor.idle == sum(floor.free) == 24 - sum(count for places in taken for _, count in places)
    for places in taken:
        floor.give(places)
    assert floor.free == [8, 8, 8]
