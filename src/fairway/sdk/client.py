"""`Client` and `AsyncClient`: the same methods, blocking and awaited.

client = fairway.Client()
job = client.submit("job.yaml", workers=4)
client.wait(job)
fairway.Client(context="lab").submit("job.yaml")        # the same file, on a cluster

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

from fairway.errors import NotFoundError, UnavailableError, UsageError
from fairway.sdk import async_reply
from fairway.sdk.job import ClientMethods
from fairway.sdk.method.call import ApiCall, FinishedCall, Steps, StreamedCall, advance
from fairway.sdk.run import attach
from fairway.sdk.transport import local_path, retry
from fairway.sdk.transport.cluster import ClusterConnection
from fairway.sdk.transport.daemon import DaemonConnection
from fairway.sdk.transport.http import LostReplyError

R = TypeVar("R")


class _SharedClient(ClientMethods):
    """The common base of both clients."""

    def __init__(self, *, home: str | os.PathLike[str] = "", namespace: str = "", context: str | os.PathLike[str] = "") -> None:
        """Create a client of the daemon of `home` (default: `FAIRWAY_HOME`), which is started when first needed; or of a cluster.

        `context` is a context of the kubeconfig, the path of a kubeconfig, or `local`. Without it `FAIRWAY_CONTEXT` applies, else
        this machine. The context chosen by `fairway use` applies to commands only: a program names its own.
        """
        selected_context = os.fspath(context) or ("" if home else os.environ.get("FAIRWAY_CONTEXT", "")) or local_path.LOCAL
        given_namespace = namespace or os.environ.get("FAIRWAY_NAMESPACE", "")
        self.on_cluster = selected_context != local_path.LOCAL
        self.daemon: DaemonConnection | ClusterConnection
        if not self.on_cluster:
            self.daemon, self.namespace = DaemonConnection(os.fspath(home)), given_namespace or "default"
            return
        if home:
            message = f"a client uses either a home ({os.fspath(home)}) or a cluster ({selected_context}), not both"
            raise UsageError(message, fix="leave one of them out")
        self.daemon = ClusterConnection(*local_path.find_context(selected_context))
        self.namespace = given_namespace or self.daemon.target.namespace

    def __repr__(self) -> str:
        """Return the context or home, and the namespace."""
        if isinstance(self.daemon, ClusterConnection):
            return f"{type(self).__name__}(context={self.daemon.target.context!r}, namespace={self.namespace!r})"
        return f"{type(self).__name__}(home={self.daemon.home!r}, namespace={self.namespace!r})"


class Client(_SharedClient):
    """The blocking client. It holds no connection, so threads may share it."""

    def perform(self, steps: Steps[R]) -> R:
        """Run a method's steps to the end and return its value."""
        answer: bytes | Exception | None = None
        while not isinstance(step := advance(steps, answer), FinishedCall):
            try:
                answer = self._ask(step)
            except Exception as error:  # noqa: BLE001 - the method may handle it
                answer = error
        attach(step.value, self)
        return step.value

    def listen(self, lines: StreamedCall[R]) -> Iterator[R]:
        """Yield the decoded lines of the reply as they arrive."""
        call = lines.call
        reply = self.daemon.request(call.method, call.path, call.query, call.body, kind=call.kind)
        try:
            for line in reply.lines():
                value = lines.read(line)
                if value is not None:
                    attach(value, self)
                    yield value
        finally:
            reply.close()

    def _ask(self, call: ApiCall) -> bytes:
        if not call.once:
            return self._ask_once(call)
        namespace = str(call.query["namespace"])
        return retry.persist(lambda: self._ask_once(call), self.daemon, call.method, call.path, namespace)

    def _ask_once(self, call: ApiCall) -> bytes:
        deadline = None if call.patience is None else time.monotonic() + call.patience
        try:
            reply = self.daemon.request(call.method, call.path, call.query, call.body, kind=call.kind, timeout=call.patience)
        except UnavailableError:
            if call.until is None or not self.on_cluster:
                raise
            # The followed object still exists: the caller requests it again once the cluster answers.
            self.daemon.start()
            return b""
        if call.until is None:
            return reply.read()
        try:
            for line in reply.lines():
                if call.until(line):
                    return line
                if deadline is not None:
                    reply.set_timeout(max(0.001, deadline - time.monotonic()))
        except UnavailableError:
            # The connection to the daemon broke; the followed object still exists.
            return b""
        finally:
            reply.close()
        return b""


class AsyncClient(_SharedClient):
    """The asyncio client: the methods of `Client`, awaited."""

    async def perform(self, steps: Steps[R]) -> R:
        """Run a method's steps to the end and return its value."""
        answer: bytes | Exception | None = None
        while not isinstance(step := await self._advance(steps, answer), FinishedCall):
            try:
                answer = await self._ask(step)
            except Exception as error:  # noqa: BLE001 - the method may handle it
                answer = error
        attach(step.value, self)
        return step.value

    async def _advance(self, steps: Steps[R], answer: bytes | Exception | None) -> ApiCall | FinishedCall[R]:
        """Advance in a thread for a cluster: files are read and packed between the calls, which may take long."""
        return await asyncio.to_thread(advance, steps, answer) if self.on_cluster else advance(steps, answer)

    async def listen(self, lines: StreamedCall[R]) -> AsyncIterator[R]:
        """Yield the decoded lines of the reply as they arrive."""
        answer = await async_reply.open_answer(self.daemon, lines.call)
        try:
            async for line in answer.lines():
                value = lines.read(line)
                if value is not None:
                    attach(value, self)
                    yield value
        finally:
            await answer.close()

    async def __aenter__(self) -> AsyncClient:
        """Return the client: there is nothing to open."""
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Do nothing: there is nothing to close."""

    async def _ask(self, call: ApiCall) -> bytes:
        patience = retry.RetryBudget(self.daemon.patience)
        while True:
            try:
                return await self._ask_once(call)
            except LostReplyError as error:
                if not call.once:
                    raise
                pause = patience.after(error)
            except NotFoundError:
                if call.method == "DELETE" and patience.first is not None:
                    return retry.deleted(call.path)
                raise
            await asyncio.sleep(pause)
            patience.check(back=await asyncio.to_thread(retry.may_ask_again, self.daemon, str(call.query["namespace"])))

    async def _ask_once(self, call: ApiCall) -> bytes:
        async with asyncio.timeout(call.patience):
            try:
                answer = await async_reply.open_answer(self.daemon, call)
            except UnavailableError:
                if call.until is None or not self.on_cluster:
                    raise
                await asyncio.to_thread(self.daemon.start)
                return b""
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
