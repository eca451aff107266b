"""The SQLite store keeps the port's contract."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from fairway.stores.sqlite.store import SqliteStore
from fairway.testing.conformance.store_conformance import StoreConformance


class TestSqliteStore(StoreConformance):
    @pytest.fixture
    def store(self, tmp_path: Path) -> Iterator[SqliteStore]:
        store = SqliteStore(tmp_path / "fairway.db")
        yield store
        store.close()
