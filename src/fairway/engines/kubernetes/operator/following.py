"""Logs that are followed: the pods of a run as they come, each from its first byte, until the run is over."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import AsyncIterator, Callable, Collection
from dataclasses import dataclass, field, replace
from typing import Protocol

from fairway.app.ports import LogChunk, LogQuery
from fairway.engines.kubernetes.objects import Pod
from fairway.engines.kubernetes.operator import naming
from fairway.engines.kubernetes.operator.observe import TASK
from fairway.errors import FairwayError
from fairway.state.job import Job, JobKey
from fairway.state.task import TaskKey

log = logging.getLogger("fairway.operator")

AHEAD = 64
"""Pieces that wait for a slow reader; then the nodes are not read on."""
AGAIN = 2.0
"""Seconds until a node that did not give a log is asked again, when nothing is heard before."""


class Source(Protocol):
    """Where logs come from."""

    def stream(self, pod: Pod, query: LogQuery) -> AsyncIterator[bytes]:
        """From the node, as it is printed; raises `FairwayError` when it breaks off."""
        ...

    def now(self) -> float:
        """The time, as `LogQuery.since` has it."""
        ...

    def read(self, key: TaskKey) -> bytes | None:
        """From the record; None while the pod may print."""
        ...


class _Shown:
    """What one task's attempt printed, on its way to the reader: lines that match, where a pattern was given.

    A log that is read from its beginning is taken up at the byte where it was. One of which only the end was asked for is
    taken up at the time, to the second.
    """

    def __init__(self, key: TaskKey, query: LogQuery, found: asyncio.Queue[LogChunk | None]) -> None:
        self.query = query
        """What to ask the node for."""
        self._key = key
        self._found = found
        self._pattern = re.compile(query.grep.encode()) if query.grep else None
        self._rest = b""
        self._whole = query.tail is None and query.since is None
        self._printed = self._skip = 0
        self._heard = 0.0

    async def some(self, data: bytes, now: float) -> None:
        """What came now."""
        self._heard = now
        fresh = data[self._skip :]
        self._skip -= len(data) - len(fresh)
        self._printed += len(fresh)
        await self._show(fresh)

    def again(self) -> None:
        """The node is asked once more."""
        if self._whole:
            self._skip = self._printed
        elif self._heard:
            self.query = replace(self.query, tail=None, since=self._heard)

    async def rest_of(self, kept: bytes) -> None:
        """The whole log is known: show what was not."""
        if self._whole:
            await self._show(kept[self._printed :])
        elif not self._heard and self.query.tail is not None:
            lines = kept.splitlines(keepends=True)
            await self._show(b"".join(lines[-self.query.tail :]) if self.query.tail else b"")
        if self._rest and self._pattern is not None and self._pattern.search(self._rest):
            await self._put(self._rest)

    async def _show(self, data: bytes) -> None:
        if self._pattern is not None:
            *lines, self._rest = (self._rest + data).split(b"\n")
            data = b"".join(line + b"\n" for line in lines if self._pattern.search(line))
        await self._put(data)

    async def _put(self, data: bytes) -> None:
        if data:
            await self._found.put(LogChunk(self._key.task, self._key.attempt, data))


@dataclass(eq=False)
class _Follower:
    """Somebody who follows one run."""

    news: asyncio.Event = field(default_factory=asyncio.Event)
    over: bool = False


class Following:
    """Everybody who follows a run's logs. `tell` when one of its pods has changed, `end` when the run is over."""

    def __init__(self, source: Source, pods: Callable[[JobKey], Collection[Pod]]) -> None:
        self._source = source
        self._pods = pods
        self._followers: dict[JobKey, set[_Follower]] = {}

    def tell(self, run: JobKey) -> None:
        """Look again."""
        for follower in self._followers.get(run, ()):
            follower.news.set()

    def end(self, run: JobKey) -> None:
        """Nothing more will come than what is there."""
        for follower in self._followers.get(run, ()):
            follower.over = True
        self.tell(run)

    async def logs(self, job: Job, query: LogQuery) -> AsyncIterator[LogChunk]:
        """What the tasks asked for print, until the run is over and all of it is read."""
        follower, found = _Follower(), asyncio.Queue[LogChunk | None](AHEAD)
        self._followers.setdefault(job.key, set()).add(follower)
        work = asyncio.create_task(self._read_all(job.key, query, follower, found))
        try:
            while (chunk := await found.get()) is not None:
                yield chunk
            await work
        finally:
            work.cancel()
            await asyncio.gather(work, return_exceptions=True)
            self._followers[job.key].discard(follower)
            if not self._followers[job.key]:
                del self._followers[job.key]

    async def _read_all(self, run: JobKey, query: LogQuery, follower: _Follower, found: asyncio.Queue[LogChunk | None]) -> None:
        reading: dict[TaskKey, asyncio.Task[None]] = {}
        least = self._newest(run, query)
        try:
            async with asyncio.TaskGroup() as group:
                while True:
                    follower.news.clear()
                    for key in self._tasks(run, query):
                        if key not in reading and key.attempt >= least.get(key.task, 0):
                            reading[key] = group.create_task(self._read(key, query, follower, found))
                    if follower.over:
                        break
                    await follower.news.wait()
        finally:
            await found.put(None)

    def _tasks(self, run: JobKey, query: LogQuery) -> list[TaskKey]:
        keys = (naming.task_key(pod.metadata.namespace, pod.metadata.labels) for pod in self._pods(run))
        chosen = [key for key in keys if key and query.role in ("", key.role) and query.index in (None, key.index)]
        if query.attempt is not None and query.attempt >= 0:
            chosen = [key for key in chosen if key.attempt == query.attempt]
        return sorted(chosen, key=lambda key: (key.attempt, key.role, key.index))

    def _newest(self, run: JobKey, query: LogQuery) -> dict[str, int]:
        """The attempt of each task with which it begins: the newest there is, unless all were asked for."""
        if query.attempt == -1:
            return {}
        return {key.task: key.attempt for key in self._tasks(run, query)}

    async def _read(self, key: TaskKey, query: LogQuery, follower: _Follower, found: asyncio.Queue[LogChunk | None]) -> None:
        """One task's attempt, to its end. What breaks off is taken up where it was."""
        show = _Shown(key, query, found)
        while True:
            kept = await asyncio.to_thread(self._source.read, key)
            if kept is not None:
                await show.rest_of(kept)
                return
            pod = self._pod(key)
            if pod is None or (follower.over and not _has_begun(pod)):
                return
            if not _has_begun(pod):
                await self._pause(follower, None)
                continue
            await self._stream(pod, show)
            if follower.over:
                kept = await asyncio.to_thread(self._source.read, key)
                await show.rest_of(kept or b"")
                return
            # It has ended, and the record gets it in a moment; or the connection broke.
            await self._pause(follower, AGAIN)

    async def _stream(self, pod: Pod, show: _Shown) -> None:
        """What the node has beyond what was shown."""
        asked = show.query
        try:
            async for data in self._source.stream(pod, asked):
                await show.some(data, self._source.now())
        except FairwayError as error:
            log.debug("the log of %s broke off: %s", pod.metadata.name, error)
        finally:
            show.again()

    def _pod(self, key: TaskKey) -> Pod | None:
        name = naming.pod_name(key)
        return next((pod for pod in self._pods(key.run) if pod.metadata.name == name), None)

    @staticmethod
    async def _pause(follower: _Follower, longest: float | None) -> None:
        """Until something changes, or for so long."""
        try:
            async with asyncio.timeout(longest):
                await follower.news.wait()
        except TimeoutError:
            return
        # Whoever looks for new pods clears it; others that wait must not spin meanwhile.
        await asyncio.sleep(0)


def _has_begun(pod: Pod) -> bool:
    """Whether the task's container runs or has run."""
    for status in pod.status.container_statuses:
        if status.name == TASK:
            return status.state.running is not None or status.state.terminated is not None
    return pod.over
