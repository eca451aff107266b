"""Runs a program for the engine itself, such as an installer, and passes on its output as it comes."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

Say = Callable[[str], None]
"""Receives one line of progress."""

_TAIL = 15
_LINE_LIMIT = 64 * 1024


async def run(argv: Sequence[str], *, cwd: Path, env: Mapping[str, str], say: Say) -> tuple[int, list[str]]:
    """Run a program; return the exit code and the last lines of both outputs together.

    The program has no input. When this coroutine is cancelled, its process group is killed.
    """
    process = await asyncio.create_subprocess_exec(
        *argv,
        cwd=cwd,
        env=env,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        start_new_session=True,
        limit=_LINE_LIMIT,
    )
    tail: deque[str] = deque(maxlen=_TAIL)
    try:
        output = process.stdout
        while output is not None and (line := await _line(output)) is not None:
            if line:
                tail.append(line)
                say(line)
        return await process.wait(), list(tail)
    finally:
        if process.returncode is None:
            # The whole group: installers start compilers.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()


async def _line(output: asyncio.StreamReader) -> str | None:
    """Return the next line without its end; None after the last. A line that is too long is split."""
    try:
        raw = await output.readuntil(b"\n")
    except asyncio.IncompleteReadError as error:
        if not error.partial:
            return None
        raw = error.partial
    except asyncio.LimitOverrunError as error:
        raw = await output.read(max(1, error.consumed))
    return raw.decode("utf-8", "replace").rstrip()
