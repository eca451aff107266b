"""Shared code of the client's tests."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

PATIENCE = 60.0


async def until(is_so: Callable[[], object]) -> None:
    """Wait until the condition holds; it may be asynchronous."""
    async with asyncio.timeout(PATIENCE):
        while True:
            found = is_so()
            if asyncio.iscoroutine(found):
                found = await found
            if found:
                return
            await asyncio.sleep(0.02)


def pod(name: str, **labels: str) -> dict:
    """Return a pod that only our scheduler would place."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": labels},
        "spec": {
            "schedulerName": "fairway",
            "automountServiceAccountToken": False,
            "terminationGracePeriodSeconds": 0,
            "containers": [{"name": "main", "image": "none"}],
        },
    }
