"""Which points are shown when there are too many."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairway.app.port.port import ChangeSet, MetricPoint
from fairway.stores.sqlite import metric
from fairway.stores.sqlite.metric import picks, share_out
from fairway.stores.sqlite.store import SqliteStore
from fairway.testing.conformance.store_conformance import make_job


def test_rare_curves_are_kept_whole() -> None:
    assert share_out([100_000, 100, 3], 2000) == [1897, 100, 3]
    assert share_out([10, 20], 100) == [10, 20]
    assert share_out([50, 50], 11) == [5, 6]
    assert share_out([], 5) == []


@given(st.lists(st.integers(0, 500), max_size=8), st.integers(-3, 600))
def test_shares_fill_the_limit_and_no_more(counts: list[int], limit: int) -> None:
    shares = share_out(counts, limit)
    assert all(0 <= share <= count for share, count in zip(shares, counts, strict=True))
    assert sum(shares) == min(sum(counts), max(0, limit))


@given(st.integers(2, 5000), st.data())
def test_picks_are_even_and_end_with_the_last(count: int, data: st.DataObject) -> None:
    share = data.draw(st.integers(1, count))
    found = picks(count, share)
    assert len(set(found)) == share
    assert found == sorted(found)
    assert found[-1] == count - 1
    assert share == 1 or found[0] == 0
    gaps = {later - earlier for earlier, later in pairwise(found)}
    assert not gaps or max(gaps) - min(gaps) <= 1


def test_evaluations_stay_beside_many_steps(tmp_path: Path) -> None:
    store, job = SqliteStore(tmp_path / "fairway.db"), make_job()
    steps = [MetricPoint(float(step), step, {"loss": 1.0}, "worker-0") for step in range(3000)]
    evaluations = [MetricPoint(step + 0.5, step, {"accuracy": 0.5}, "evaluator-0") for step in range(0, 3000, 1000)]
    store.commit(ChangeSet(jobs=(job,), points=tuple((job.key, point) for point in [*steps, *evaluations])))
    metric_points = store.points_of(job.key, limit=100)
    assert len(metric_points) == 100
    assert [point for point in metric_points if "accuracy" in point.metrics] == evaluations
    store.close()


@pytest.mark.parametrize("batch", [1, 7, 500])
def test_an_endless_curve_stays_short_even_and_current(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, batch: int) -> None:
    monkeypatch.setattr(metric, "MOST", 50)
    store, job = SqliteStore(tmp_path / "fairway.db"), make_job()
    store.commit(ChangeSet(jobs=(job,)))
    points = [MetricPoint(float(step), step, {"loss": float(step)}, "worker-0") for step in range(1234)]
    for begin in range(0, len(points), batch):
        store.commit(ChangeSet(points=tuple((job.key, point) for point in points[begin : begin + batch])))
        metric_points = store.points_of(job.key)
        known = points[: begin + batch]
        assert len(metric_points) <= 51
        assert metric_points[0] == points[0]
        assert metric_points[-1] == known[-1]
        steps = [point.step or 0 for point in metric_points]
        assert len({later - earlier for earlier, later in pairwise(steps[:-1])}) <= 1
        assert len(metric_points) >= min(len(known), 25)
    assert [point.step for point in store.points_of(job.key, limit=2)] == [0, 1233]
    assert [point.step for point in store.points_of(job.key, limit=1)] == [1233]
    store.close()


def test_points_kept_by_an_older_version_are_gone_on_with(tmp_path: Path) -> None:
    store, job = SqliteStore(tmp_path / "fairway.db"), make_job()
    old = [MetricPoint(float(step), step, {"loss": 1.0}) for step in range(5)]
    store.commit(ChangeSet(jobs=(job,), points=tuple((job.key, point) for point in old)))
    for column in ("stride", "seen", "last_time", "last_step", "last_data"):
        store._connection.execute(f"ALTER TABLE curve DROP COLUMN {column}")
    for column in ("logs_until", "record_until"):
        store._connection.execute(f"DROP INDEX job_by_{column}")
        store._connection.execute(f"ALTER TABLE job DROP COLUMN {column}")
    for table in ("queue", "memory", "service", "tracked", "receipt"):
        store._connection.execute(f"DROP TABLE {table}")
    store._connection.execute("PRAGMA user_version = 1")
    store.close()
    again, new = SqliteStore(tmp_path / "fairway.db"), MetricPoint(9.0, 9, {"loss": 0.5})
    again.commit(ChangeSet(points=((job.key, new),)))
    assert again.points_of(job.key) == [*old, new]
    again.close()
