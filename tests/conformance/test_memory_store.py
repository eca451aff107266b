"""The store that tests use instead keeps it too."""

from __future__ import annotations

import pytest

from fairway.testing.conformance.store_conformance import StoreConformance
from fairway.testing.fake.memory_store import MemoryStore


class TestMemoryStore(StoreConformance):
    @pytest.fixture
    def store(self) -> MemoryStore:
        return MemoryStore()
