"""Ranges of indices, alone and shared."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fairway.runtime.shards import Shard, shards


def ranges(found: list[Shard]) -> list[tuple[int, int]]:
    return [(shard.start, shard.stop) for shard in found]


def test_alone_every_item_comes_once_in_order(tmp_path: Path) -> None:
    made = shards(10, size=4)
    assert [list(shard) for shard in made] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    assert list(tmp_path.iterdir()) == []
    assert made.done() == [[0, 10]]
    assert len(made) == 3


@given(st.integers(0, 200), st.integers(1, 50), st.none() | st.integers())
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_all_items_exactly_once_whatever_the_numbers(items: int, size: int, seed: int | None) -> None:
    assert sorted(i for shard in shards(items, size, seed=seed) for i in shard) == list(range(items))


def test_a_seed_mixes_the_order_another_way_each_epoch() -> None:
    orders = [ranges(list(shards(100, 5, seed=1, epoch=epoch))) for epoch in (0, 0, 1)]
    assert orders[0] == orders[1]
    assert orders[0] != orders[2]
    assert sorted(orders[0]) == sorted(orders[2])


def test_two_workers_share(in_job: Path) -> None:
    one, two = iter(shards(100, 10)), iter(shards(100, 10))
    first = [next(one), next(two), next(one), next(one)]
    assert ranges(first) == [(0, 10), (10, 20), (20, 30), (30, 40)]
    one.close()  # type: ignore[attr-defined]
    rest = list(two)
    assert (30, 40) in ranges(rest), "what the first worker left in the middle was lost"
    assert sorted(ranges(first[1:3]) + ranges(rest)) == [(n, n + 10) for n in range(10, 100, 10)]


def test_a_restart_goes_on_where_it_was(in_job: Path) -> None:
    worker = iter(shards(50, 10))
    next(worker)
    next(worker)
    del worker
    again = shards(50, 10)
    assert again.done() == [[0, 10]]
    assert sorted(ranges(list(again))) == [(n, n + 10) for n in range(10, 50, 10)]
    assert list(shards(50, 10)) == []
    assert len(list(shards(50, 10, epoch=1))) == 5


@pytest.mark.parametrize("inside", [True, False])
def test_going_back_to_what_a_checkpoint_saw(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, inside: bool
) -> None:
    if inside:
        request.getfixturevalue("in_job")
    first = shards(50, 10, seed=3, done=[])
    worker = iter(first)
    for _ in range(3):
        next(worker)
    kept = first.done()
    assert sum(end - start for start, end in kept) == 20
    list(worker)
    assert first.done() == [[0, 50]]
    monkeypatch.setenv("FAIRWAY_ATTEMPT", "1")
    again = shards(50, 10, seed=3, done=kept)
    assert again.done() == kept
    seen = sorted(i for shard in again for i in shard)
    assert seen == [i for i in range(50) if not any(start <= i < end for start, end in kept)]


def test_while_others_hold_the_rest_a_stop_ends_the_waiting(in_job: Path) -> None:
    busy = iter(shards(10, 10))
    next(busy)
    (in_job / "attempt" / "stop").touch()
    assert list(shards(10, 10)) == []


@pytest.mark.parametrize(("items", "size"), [(-1, 1), (1, 0)])
def test_numbers_that_make_no_sense(items: int, size: int) -> None:
    with pytest.raises(ValueError, match="at least"):
        shards(items, size)


def test_a_shard_knows_itself() -> None:
    (shard,) = shards(3, 5)
    assert len(shard) == 3
    assert repr(shard) == "Shard(0, 3)"
    shard.renew()
