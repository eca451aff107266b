"""Which rows each worker predicts."""

from __future__ import annotations

import json

import pytest

from fairway.runtime import task_contract
from fairway.serving.predict.__main__ import taken


@pytest.mark.parametrize(("count", "size", "workers"), [(1000, 100, 3), (5, 2, 4), (0, 10, 2), (7, 10, 1)])
def test_workers_that_share_no_folder_take_every_row_once(
    monkeypatch: pytest.MonkeyPatch, count: int, size: int, workers: int
) -> None:
    monkeypatch.setenv(task_contract.APART, "1")
    monkeypatch.setenv(task_contract.ROLE, "worker")
    monkeypatch.setenv(task_contract.PEERS, json.dumps({"worker": ["a:1"] * workers}))
    found = []
    for index in range(workers):
        monkeypatch.setenv(task_contract.INDEX, str(index))
        found += [row for shard in taken(count, size) for row in shard]
    assert sorted(found) == list(range(count))


def test_others_share_them_out_as_they_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(task_contract.APART, raising=False)
    monkeypatch.delenv(task_contract.SHARED_DIR, raising=False)
    assert [(shard.start, shard.stop) for shard in taken(5, 2)] == [(0, 2), (2, 4), (4, 5)]
