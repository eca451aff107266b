"""Run a process of the cluster until a signal ends it."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Coroutine
from typing import Any


async def until_told(work: Coroutine[Any, Any, None]) -> None:
    """Run the work until SIGTERM or SIGINT cancels it. An exception that the work raises is raised here."""
    working = asyncio.create_task(work)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, working.cancel)
    try:
        await working
    except asyncio.CancelledError:
        return
