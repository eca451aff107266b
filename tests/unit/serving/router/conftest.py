"""A router in the test's own process, on its production event loop, with replicas controlled by the test."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import uvloop

sys.path.insert(0, str(Path(__file__).parent))  # makes `router_stage.py` importable for the tests in this folder


def pytest_asyncio_loop_factories(config: pytest.Config, item: pytest.Item) -> dict[str, object]:
    return {"uvloop": uvloop.new_event_loop}


@pytest.fixture
async def stage() -> AsyncIterator[object]:
    from router_stage import Stage

    made = Stage()
    await made.start()
    yield made
    await made.end()
