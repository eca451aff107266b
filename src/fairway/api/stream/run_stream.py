"""Streams: the logs of a run as text, and all its changes as lines of JSON."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from typing import Any, Generic, TypeVar

from fairway.app.application import Application
from fairway.app.port.port import LogChunk, LogQuery
from fairway.errors import FairwayError
from fairway.state.job import JobState
from fairway.views.text.log_format import LogMerger, LogStamper
from fairway.views.text.output_format import to_json

HOLD = 0.1
"""Seconds that an unfinished line waits for its remainder while other tasks print."""
PACE = 0.1
"""Minimum seconds between two states of a run that differ only in progress."""

_Item = TypeVar("_Item")


async def plain_logs(chunks: AsyncIterator[LogChunk], *, headings: bool = False) -> AsyncIterator[bytes]:
    """Yield bytes as they were printed. A later attempt begins with a heading; with `headings`, the first one too."""
    last: dict[str, int] = {}
    whole = True
    try:
        async for chunk in chunks:
            if (headings and last != {chunk.task: chunk.attempt}) or _is_later(chunk, last):
                yield _heading(chunk) if whole else b"\n" + _heading(chunk)
            last = {chunk.task: chunk.attempt}
            whole = chunk.data.endswith(b"\n") if chunk.data else whole
            yield chunk.data
    finally:
        await _close(chunks)


async def stamped(chunks: AsyncIterator[LogChunk]) -> AsyncIterator[LogChunk]:
    """Yield the same chunks with the time before each line."""
    stampers: dict[tuple[str, int], LogStamper] = {}
    try:
        async for chunk in chunks:
            stamper = stampers.setdefault((chunk.task, chunk.attempt), LogStamper())
            yield replace(chunk, data=stamper.feed(chunk.data, chunk.time))
    finally:
        await _close(chunks)


async def mixed_logs(chunks: AsyncIterator[LogChunk], mixer: LogMerger, *, headings: bool = False) -> AsyncIterator[bytes]:
    """Yield lines of several tasks, each with its task's name; unfinished lines are delayed for a moment."""
    attempts: dict[str, int] = {}
    source = _PollableIterator(chunks)
    try:
        while True:
            if not await source.ready(HOLD if mixer.holding else None):
                yield mixer.flush()
                continue
            chunk = source.take()
            if chunk is None:
                yield mixer.flush()
                return
            heads = (headings and attempts.get(chunk.task) != chunk.attempt) or _is_later(chunk, attempts)
            attempts[chunk.task] = chunk.attempt
            if heads:
                yield mixer.feed(chunk.task, _heading(chunk))
            yield mixer.feed(chunk.task, chunk.data)
    finally:
        await source.close()


async def watch(
    application: Application, job: JobState, query: LogQuery | None, show: Callable[[JobState], Any]
) -> AsyncIterator[bytes]:
    """Yield `{"job": ..}` at once and at each change, `{"log": ..}` as output is printed, and `{"end": ..}` last."""
    shown = to_json(show(job))
    yield _named("job", shown)
    logs = _PollableIterator(application.logs(job, query)) if query is not None else None
    states = _PollableIterator(_states(application, job))
    clock = asyncio.get_running_loop().time
    reported, shown_at = job, clock()
    newest = job
    try:
        while logs is not None or not newest.phase.over:
            behind = newest != reported
            await _any_ready([logs, states], PACE if behind else None)
            if logs is not None and logs.done:
                chunk = logs.take()
                if chunk is None:
                    logs = None
                else:
                    yield _line({"log": _told(chunk)})
            if states.done:
                newest = states.take() or newest
            if newest != reported and (newest.phase is not reported.phase or clock() - shown_at >= PACE):
                reported, shown_at = newest, clock()
                shown = to_json(show(newest))
                yield _named("job", shown)
        # Without logs, no time has passed since the last state was sent, so its view can be reused.
        yield _named("end", shown if query is None and newest == reported else to_json(show(newest)))
    except FairwayError as problem:  # The response has begun, so the error is sent as a line of it.
        yield _line({"error": problem.as_dict()})
    finally:
        await states.close()
        if logs is not None:
            await logs.close()


async def _states(application: Application, job: JobState) -> AsyncIterator[JobState]:
    while not job.phase.over:
        job = await application.changed(job)
        yield job


def _told(chunk: LogChunk) -> dict[str, Any]:
    stream = {"stream": "stderr"} if chunk.stderr else {}
    skipped = {"skipped": chunk.skipped} if chunk.skipped else {}
    return {"task": chunk.task, "attempt": chunk.attempt, **stream, **skipped, **_piece(chunk.data)}


def _piece(data: bytes) -> dict[str, str]:
    """Return bytes as text; if they cannot be decoded exactly (or a character was cut in two), as base64 in addition."""
    try:
        return {"text": data.decode("utf-8")}
    except UnicodeDecodeError:
        return {"text": data.decode("utf-8", "replace"), "base64": base64.b64encode(data).decode("ascii")}


class _PollableIterator(Generic[_Item]):
    """Reads an iterator with timeouts without cancelling the pending read."""

    def __init__(self, source: AsyncIterator[_Item]) -> None:
        self._source = source
        self._next: asyncio.Task[_Item | None] | None = None
        self._ended = False

    @property
    def task(self) -> asyncio.Task[_Item | None]:
        if self._next is None:
            self._next = asyncio.create_task(self._step())
        return self._next

    @property
    def done(self) -> bool:
        """Whether `take` returns immediately, with an item or the end."""
        return self._next is not None and self._next.done()

    @property
    def ended(self) -> bool:
        """Whether the iterator has ended."""
        return self._ended

    async def ready(self, timeout: float | None) -> bool:
        """Wait until there is an item to take; return False on timeout."""
        await asyncio.wait({self.task}, timeout=timeout)
        return self.done

    def take(self) -> _Item | None:
        """Return the next item; None at the end."""
        assert self._next is not None
        item = self._next.result()
        self._next = None
        self._ended = item is None
        return item

    async def close(self) -> None:
        if self._next is not None:
            self._next.cancel()
            await asyncio.gather(self._next, return_exceptions=True)
        await _close(self._source)

    async def _step(self) -> _Item | None:
        async for item in self._source:
            return item
        return None


async def _any_ready(waiters: list[_PollableIterator[Any] | None], timeout: float | None) -> None:
    tasks = {waiter.task for waiter in waiters if waiter is not None and not waiter.ended}
    await asyncio.wait(tasks, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)


async def _close(source: AsyncIterator[Any]) -> None:
    close = getattr(source, "aclose", None)
    if close is not None:
        await close()


def _is_later(chunk: LogChunk, attempts: dict[str, int]) -> bool:
    """Return whether the task was restarted since the given attempts."""
    return chunk.attempt > attempts.get(chunk.task, chunk.attempt)


def _heading(chunk: LogChunk) -> bytes:
    return f"==> {chunk.task}, attempt {chunk.attempt} <==\n".encode()


def _named(name: str, json: bytes) -> bytes:
    return b'{"%s":%s}\n' % (name.encode(), json)


def _line(value: dict[str, Any]) -> bytes:
    return to_json(value) + b"\n"
