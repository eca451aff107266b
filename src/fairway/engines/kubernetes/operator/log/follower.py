"""Follows logs: reads the pods of a run as they appear, each from its first byte, until the run is over."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import AsyncIterator, Callable, Collection
from dataclasses import dataclass, field, replace
from typing import Protocol

from fairway.app.port.port import LogChunk, LogQuery
from fairway.engines.kubernetes.objects import Pod
from fairway.engines.kubernetes.operator.pod import name as pod_name
from fairway.engines.kubernetes.operator.pod.report import TASK
from fairway.errors import FairwayError
from fairway.state.job import JobKey, JobState
from fairway.state.task import TaskKey

log = logging.getLogger("fairway.operator")

AHEAD = 64
"""Number of chunks buffered for a slow reader; when that many wait, the nodes are not read any further."""
AGAIN = 2.0
"""Seconds until a log stream that broke is opened again, unless a change of the run's pods is seen before."""


class LogSource(Protocol):
    """Where logs are read from."""

    def stream(self, pod: Pod, query: LogQuery) -> AsyncIterator[bytes]:
        """Read the log from the node as it is printed. Raises `FairwayError` when the stream breaks."""
        ...

    def now(self) -> float:
        """Return the current time, on the clock of `LogQuery.since`."""
        ...

    def read(self, key: TaskKey) -> bytes | None:
        """Read the log from the record; None while the pod may still print."""
        ...


class _LogCursor:
    """The output of one task's attempt on its way to the reader, filtered by the query's pattern if it has one.

    A log that is read from its beginning is resumed at the byte where it broke off. A log of which only the end was requested is
    resumed by time, to the second.
    """

    def __init__(self, key: TaskKey, query: LogQuery, found: asyncio.Queue[LogChunk | None]) -> None:
        self.query = query
        """The query for the node."""
        self._key = key
        self._found = found
        self._pattern = re.compile(query.grep.encode()) if query.grep else None
        self._rest = b""
        self._whole = query.tail is None and query.since is None
        self._printed = self._skip = 0
        self._heard = 0.0

    async def some(self, data: bytes, now: float) -> None:
        """Show data that has arrived."""
        self._heard = now
        fresh = data[self._skip :]
        self._skip -= len(data) - len(fresh)
        self._printed += len(fresh)
        await self._show(fresh)

    def again(self) -> None:
        """Prepare for reading from the node again."""
        if self._whole:
            self._skip = self._printed
        elif self._heard:
            self.query = replace(self.query, tail=None, since=self._heard)

    async def rest_of(self, kept: bytes) -> None:
        """Show what was not shown yet of the whole log."""
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
class _LogReader:
    """A reader that follows one run."""

    news: asyncio.Event = field(default_factory=asyncio.Event)
    over: bool = False


class LogFollowers:
    """All readers that follow logs. Call `tell` when a pod of a run has changed, and `end` when the run is over."""

    def __init__(self, source: LogSource, pods: Callable[[JobKey], Collection[Pod]]) -> None:
        self._source = source
        self._pods = pods
        self._followers: dict[JobKey, set[_LogReader]] = {}

    def tell(self, run: JobKey) -> None:
        """Wake the readers of the run."""
        for follower in self._followers.get(run, ()):
            follower.news.set()

    def end(self, run: JobKey) -> None:
        """Mark the run as over: no further output will appear."""
        for follower in self._followers.get(run, ()):
            follower.over = True
        self.tell(run)

    async def logs(self, job: JobState, query: LogQuery) -> AsyncIterator[LogChunk]:
        """Yield the output of the requested tasks until the run is over and everything is read."""
        follower, chunks = _LogReader(), asyncio.Queue[LogChunk | None](AHEAD)
        self._followers.setdefault(job.key, set()).add(follower)
        work = asyncio.create_task(self._read_all(job.key, query, follower, chunks))
        try:
            while (chunk := await chunks.get()) is not None:
                yield chunk
            await work
        finally:
            work.cancel()
            await asyncio.gather(work, return_exceptions=True)
            self._followers[job.key].discard(follower)
            if not self._followers[job.key]:
                del self._followers[job.key]

    async def _read_all(self, run: JobKey, query: LogQuery, follower: _LogReader, found: asyncio.Queue[LogChunk | None]) -> None:
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
        keys = (pod_name.task_key(pod.metadata.namespace, pod.metadata.labels) for pod in self._pods(run))
        chosen = [key for key in keys if key and query.role in ("", key.role) and query.index in (None, key.index)]
        if query.attempt is not None and query.attempt >= 0:
            chosen = [key for key in chosen if key.attempt == query.attempt]
        return sorted(chosen, key=lambda key: (key.attempt, key.role, key.index))

    def _newest(self, run: JobKey, query: LogQuery) -> dict[str, int]:
        """Return the attempt of each task with which reading starts: the newest, unless all were requested."""
        if query.attempt == -1:
            return {}
        return {key.task: key.attempt for key in self._tasks(run, query)}

    async def _read(self, key: TaskKey, query: LogQuery, follower: _LogReader, found: asyncio.Queue[LogChunk | None]) -> None:
        """Read one task's attempt to its end. A stream that breaks is resumed where it was."""
        show = _LogCursor(key, query, found)
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
            # Either the task has ended and its log will be in the record soon, or the connection broke.
            await self._pause(follower, AGAIN)

    async def _stream(self, pod: Pod, show: _LogCursor) -> None:
        """Read from the node what was not shown yet."""
        query = show.query
        try:
            async for data in self._source.stream(pod, query):
                await show.some(data, self._source.now())
        except FairwayError as error:
            log.debug("the log stream of %s was interrupted: %s", pod.metadata.name, error)
        finally:
            show.again()

    def _pod(self, key: TaskKey) -> Pod | None:
        name = pod_name.pod_name(key)
        return next((pod for pod in self._pods(key.run) if pod.metadata.name == name), None)

    @staticmethod
    async def _pause(follower: _LogReader, longest: float | None) -> None:
        """Wait until a pod of the run changes, or for at most this long."""
        try:
            async with asyncio.timeout(longest):
                await follower.news.wait()
        except TimeoutError:
            return
        # The task that looks for new pods clears the event; readers that wait must not spin until then.
        await asyncio.sleep(0)


def _has_begun(pod: Pod) -> bool:
    """Whether the task's container runs or has run."""
    for status in pod.status.container_statuses:
        if status.name == TASK:
            return status.state.running is not None or status.state.terminated is not None
    return pod.over
