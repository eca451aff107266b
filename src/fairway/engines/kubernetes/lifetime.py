"""How long a process of the cluster lives: until a signal tells it to end."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Coroutine
from typing import Any


async def until_told(work: Coroutine[Any, Any, None]) -> None:
    """Do the work until SIGTERM or SIGINT; then it is cancelled, and what it raises by itself is raised here."""
    working = asyncio.create_task(work)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, working.cancel)
    try:
        await working
    except asyncio.CancelledError:
        return
