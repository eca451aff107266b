"""`Client` and `AsyncClient`: the same verbs, once blocking and once awaited.

client = fairway.Client()
job = client.submit("job.yaml", workers=4)
client.wait(job)

async with fairway.AsyncClient() as client:
    job = await client.submit(train, workers=2, args=(0.1,))
    print(await client.result(job))
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Iterator
from types import TracebackType
from typing import TypeVar

from fairway.errors import UnavailableError
from fairway.sdk import streams
from fairway.sdk.calls import Verbs
from fairway.sdk.daemon import Daemon
from fairway.sdk.verb import Call, Lines, Steps

R = TypeVar("R")


class _Face(Verbs):
    """What both clients are made of."""

    def __init__(self, *, home: str | os.PathLike[str] = "", namespace: str = "") -> None:
        """A client of the daemon of `home` (default: `FAIRWAY_HOME`); it is started when first needed."""
        self.namespace = namespace or os.environ.get("FAIRWAY_NAMESPACE", "") or "default"
        self.daemon = Daemon(os.fspath(home))

    def __repr__(self) -> str:
        """Where it acts."""
        return f"{type(self).__name__}(home={self.daemon.home!r}, namespace={self.namespace!r})"


class Client(_Face):
    """Talks to Fairway and waits for its answers. It holds no connection, so threads may share it."""

    def run(self, steps: Steps[R]) -> R:
        """Run a verb to its end."""
        try:
            call = next(steps)
            while True:
                try:
                    answer = self._ask(call)
                except Exception as error:  # noqa: BLE001 - the verb may know what to do
                    call = steps.throw(error)
                else:
                    call = steps.send(answer)
        except StopIteration as end:
            result: R = end.value
            return result

    def listen(self, lines: Lines[R]) -> Iterator[R]:
        """What comes, as it comes."""
        call = lines.call
        reply = self.daemon.request(call.method, call.path, call.query, call.body, kind=call.kind)
        try:
            for line in reply.lines():
                value = lines.read(line)
                if value is not None:
                    yield value
        finally:
            reply.close()

    def _ask(self, call: Call) -> bytes:
        deadline = None if call.patience is None else time.monotonic() + call.patience
        reply = self.daemon.request(call.method, call.path, call.query, call.body, kind=call.kind, timeout=call.patience)
        if call.until is None:
            return reply.read()
        try:
            for line in reply.lines():
                if call.until(line):
                    return line
                if deadline is not None:
                    reply.set_timeout(max(0.001, deadline - time.monotonic()))
        except UnavailableError:
            # The daemon went away while it told its story; what it tells of did not.
            return b""
        finally:
            reply.close()
        return b""


class AsyncClient(_Face):
    """The same, awaited."""

    async def run_async(self, steps: Steps[R]) -> R:
        """Run a verb to its end."""
        try:
            call = next(steps)
            while True:
                try:
                    answer = await self._ask(call)
                except Exception as error:  # noqa: BLE001 - the verb may know what to do
                    call = steps.throw(error)
                else:
                    call = steps.send(answer)
        except StopIteration as end:
            result: R = end.value
            return result

    async def listen_async(self, lines: Lines[R]) -> AsyncIterator[R]:
        """What comes, as it comes."""
        answer = await streams.open_answer(self.daemon, lines.call.encode())
        try:
            async for line in answer.lines():
                value = lines.read(line)
                if value is not None:
                    yield value
        finally:
            await answer.close()

    async def __aenter__(self) -> AsyncClient:
        """For the habit: there is nothing to open."""
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """For the habit: there is nothing to close."""

    async def _ask(self, call: Call) -> bytes:
        async with asyncio.timeout(call.patience):
            answer = await streams.open_answer(self.daemon, call.encode())
            try:
                if call.until is None:
                    return await answer.read()
                async for line in answer.lines():
                    if call.until(line):
                        return line
            except UnavailableError:
                if call.until is None:
                    raise
            finally:
                await answer.close()
        return b""
