"""Reads the logs of pods while they run: when a pod is deleted or its node is lost, its log is lost with it.

Partial logs are in the record's folder as `.TASK#ATTEMPT.part` until the pod's end, when the complete log is read once more.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from pathlib import Path

from fairway.engines.kubernetes.objects import Pod
from fairway.errors import FairwayError

log = logging.getLogger("fairway.operator")

MOST = 256
"""Maximum number of logs followed at the same time; the logs of other pods are only read at their end."""
PAUSES = (2.0, 10.0, 60.0)
"""Back-off in seconds after a stream that broke. Each chunk that arrives resets it."""
LAST = 2.0
"""Seconds that the rest of a log may take to arrive after its pod's end."""

Read = Callable[[Pod], AsyncIterator[bytes]]
"""Reads the log of a pod's task from its beginning, as it is printed, until its end."""


class LogTails:
    """Follows the logs of running pods. Level-triggered: a second notice of the same pod has no effect."""

    def __init__(self, read: Read, place: Callable[[Pod], Path | None], most: int = MOST) -> None:
        self._read = read
        self._place = place
        """Where to write the log of a pod; None: the pod is not ours."""
        self._most = most
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._speaking: set[str] = set()
        """Pods with an open stream from which something has arrived."""

    def notice(self, key: str, before: Pod | None, now: Pod | None) -> None:
        """Handle the change of a pod; to be registered as listener of a mirror."""
        del before
        if now is None:
            task = self._tasks.pop(key, None)
            if task is not None:
                task.cancel()
            return
        if now.status.phase != "Running" or key in self._tasks or len(self._tasks) >= self._most:
            return
        place = self._place(now)
        if place is not None:
            task = asyncio.create_task(self._follow(key, now, place))
            self._tasks[key] = task
            task.add_done_callback(lambda _: self._tasks.pop(key, None) if self._tasks.get(key) is task else None)

    async def settled(self, key: str) -> None:
        """Wait until the rest of the log has arrived, after the pod has ended."""
        task = self._tasks.get(key)
        if task is not None and key in self._speaking:
            await asyncio.wait([task], timeout=LAST)

    async def _follow(self, key: str, pod: Pod, place: Path) -> None:
        place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        failures = 0
        with place.open("ab") as file:
            while failures <= len(PAUSES):
                size = file.tell()
                try:
                    await self._append(key, pod, file.tell(), file.write)
                except FairwayError as error:
                    log.debug("the log of %s is not followed: %s", pod.metadata.name, error)
                else:
                    return
                finally:
                    self._speaking.discard(key)
                    file.flush()
                failures = 1 if file.tell() > size else failures + 1
                await asyncio.sleep(PAUSES[min(failures, len(PAUSES)) - 1])

    async def _append(self, key: str, pod: Pod, known: int, write: Callable[[bytes], int]) -> None:
        """Append everything after the bytes that were read before."""
        at = 0
        async for piece in self._read(pod):
            self._speaking.add(key)
            fresh = piece[max(0, known - at) :]
            at += len(piece)
            if fresh:
                write(fresh)
