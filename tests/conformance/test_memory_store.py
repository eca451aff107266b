"""The store that tests use instead keeps it too."""

from __future__ import annotations

import pytest

from fairway.testing.fakes import MemoryStore
from fairway.testing.store_conformance import StoreConformance


class TestMemoryStore(StoreConformance):
    @pytest.fixture
    def store(self) -> MemoryStore:
        return MemoryStore()
