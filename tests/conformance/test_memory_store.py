"""The in-memory store that tests use keeps the port's contract too."""

from __future__ import annotations

import pytest

from fairway.testing.conformance.store_conformance import StoreConformance
from fairway.testing.fake.memory_store import MemoryStore


class TestMemoryStore(StoreConformance):
    @pytest.fixture
    def store(self) -> MemoryStore:
        return MemoryStore()
