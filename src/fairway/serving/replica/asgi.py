"""The ASGI application: which path does what; bodies in, answers out."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass
from typing import Any

import msgspec

from fairway.serving.replica.batching import Batcher
from fairway.serving.replica.metrics import Metrics
from fairway.serving.replica.model import Answer, ServedModel, check_version
from fairway.serving.replica.problem import RequestError
from fairway.serving.replica.protocols import openinference
from fairway.serving.replica.protocols.openinference import OpenInference
from fairway.version import __version__

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Do = Callable[[Scope, Receive], Awaitable[Answer]]

_log = logging.getLogger("fairway.replica")
_SWEEP = 1.0
_INDEX = "/v2/repository/index"
"""A page that is asked for with POST; what its body says does not matter here."""


@dataclass(frozen=True, slots=True)
class BodyLimits:
    """What a request's body may be."""

    size: int = 64 << 20
    seconds: float = 30.0
    """How long it may take to arrive."""


class GoneError(Exception):
    """The client went away; nobody waits for an answer."""


class App:
    """Answers the requests to one model.

    Promises: every request gets one answer, in JSON where something is wrong; whatever it holds, the next one is answered too.
    """

    def __init__(self, model: ServedModel, batcher: Batcher, metrics: Metrics, limits: BodyLimits) -> None:
        self._model = model
        self._batcher = batcher
        self._metrics = metrics
        self._bodies = Bodies(limits)
        self._openinference = OpenInference(model)
        self._began = time.monotonic()
        self.draining = False
        self.last = 0.0
        """When the last request came, by `time.perf_counter`."""
        self._questions: dict[str, Do] = {}
        """Paths that take a POST with a question to the model; these are counted."""
        self._pages: dict[str, Callable[[], Answer]] = {}
        """Paths that take a GET."""
        self._add_openinference()

    @property
    def busy(self) -> bool:
        """Whether anybody waits for an answer."""
        return self._metrics.in_flight > 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] != "http":
            return
        began = self.last = time.perf_counter()
        do = self._questions.get(scope["path"])
        if do is None or scope["method"] != "POST":
            await self._send(self._page(scope), send)
            return
        metrics = self._metrics
        metrics.in_flight += 1
        try:
            answer = await self._asked(do, scope, receive)
            metrics.answered(answer.status, time.perf_counter() - began)
            await self._send(answer, send)
        except GoneError:
            pass
        finally:
            metrics.in_flight -= 1

    async def _asked(self, do: Do, scope: Scope, receive: Receive) -> Answer:
        try:
            return await do(scope, receive)
        except RequestError as error:
            return refusal(error)
        except GoneError:
            raise
        except Exception:  # noqa: BLE001  # ours; the server must live on
            _log.exception("a request could not be answered")
            return refusal(RequestError(500, "the server made a mistake, and wrote it into its log"))

    async def _send(self, answer: Answer, send: Send) -> None:
        headers = [(b"content-type", answer.content_type), (b"content-length", b"%d" % len(answer.body)), *answer.headers]
        if self.draining:
            headers.append((b"connection", b"close"))
        await send({"type": "http.response.start", "status": answer.status, "headers": headers})
        await send({"type": "http.response.body", "body": answer.body})

    def _page(self, scope: Scope) -> Answer:
        path, method = scope["path"], scope["method"]
        page = self._pages.get(path)
        if page is not None and (method in ("GET", "HEAD") or path == _INDEX):
            return page()
        if page is not None or path in self._questions:
            allowed = "GET" if page is not None else "POST"
            message = f"{method} is not for {path}"
            return refusal(RequestError(405, message, fix=f"use {allowed}", headers=((b"allow", allowed.encode()),)))
        return refusal(self._unknown(path))

    def _unknown(self, path: str) -> RequestError:
        parts = path.split("/")
        if len(parts) > 3 and parts[2] == "models" and parts[1] in ("v1", "v2"):
            name = parts[3].partition(":")[0]
            if name != self._model.name:
                return RequestError(404, f"no model {name!r} here", fix=f"{self._model.name!r} is served")
            if len(parts) > 5 and parts[4] == "versions":
                try:
                    check_version(self._model, parts[5].partition(":")[0])
                except RequestError as error:
                    return error
        return RequestError(404, f"nothing is at {path}", fix="docs/protocols.md has the paths")

    # The paths of the Open Inference Protocol.

    def _add_openinference(self) -> None:
        model = self._model
        about = {"name": "fairway", "version": __version__, "extensions": ["binary_tensor_data", "model_repository"]}
        entry = {"name": model.name, "version": model.version, "state": "READY", "reason": ""}
        self._pages |= {
            "/v2": lambda: told(about),
            "/v2/health/live": lambda: Answer(b""),
            "/v2/health/ready": self._ready,
            _INDEX: lambda: told([entry]),
            "/v2/models": lambda: told({"models": [model.name]}),
            "/fairway/load": lambda: told(self._metrics.load(self._batcher.waiting, time.monotonic() - self._began)),
            "/metrics": self._prometheus,
        }
        for base in (f"/v2/models/{model.name}", f"/v2/models/{model.name}/versions/{model.version}"):
            self._pages |= {base: lambda: told(openinference.metadata(model)), f"{base}/ready": self._ready}
            self._questions[f"{base}/infer"] = self._infer

    def _ready(self) -> Answer:
        if self.draining:
            return refusal(RequestError(503, "this replica is ending"))
        return Answer(b"")

    def _prometheus(self) -> Answer:
        text = self._metrics.text(self._model.name, self._model.version, self._batcher.waiting)
        return Answer(text.encode(), content_type=b"text/plain; version=0.0.4; charset=utf-8")

    async def _infer(self, scope: Scope, receive: Receive) -> Answer:
        body, head_length = await self._bodies.read(scope, receive)
        question = self._openinference.read(body, head_length)
        outputs = await self._batcher.submit(question.inputs, question.rows)
        return self._openinference.write(question, outputs)


class Bodies:
    """Reads bodies that are neither too large nor too slow."""

    def __init__(self, limits: BodyLimits) -> None:
        self._limits = limits
        self._reading: dict[asyncio.Task[Any], float] = {}
        self._slow: set[asyncio.Task[Any]] = set()
        self._sweeping = False

    async def read(self, scope: Scope, receive: Receive) -> tuple[bytes, bytes | None]:
        """The body, and the length of its JSON where the request is a binary one."""
        head_length = self._head_length(scope["headers"])
        task = asyncio.current_task()
        assert task is not None
        self._reading[task] = time.monotonic()
        if not self._sweeping:
            self._sweeping = True
            asyncio.get_running_loop().call_later(_SWEEP, self._sweep)
        try:
            message = await receive()
            body: bytes = message.get("body", b"")
            if message.get("more_body", False):
                body = await self._rest(body, receive)
            elif message["type"] != "http.request":
                raise GoneError
        except asyncio.CancelledError:
            if task not in self._slow:
                raise
            self._slow.discard(task)
            task.uncancel()
            message_ = f"the body did not arrive within {self._limits.seconds:g} s"
            raise RequestError(408, message_, headers=((b"connection", b"close"),)) from None
        finally:
            del self._reading[task]
        return body, head_length

    def _head_length(self, headers: list[tuple[bytes, bytes]]) -> bytes | None:
        found: bytes | None = None
        for name, value in headers:
            if name == b"content-length":
                if int(value) > self._limits.size:
                    raise self._too_large()
            elif name == openinference.LENGTH_HEADER:
                if found is not None:
                    raise RequestError(400, "Inference-Header-Content-Length is given twice")
                found = value
            elif name == b"content-encoding" and value.lower() != b"identity":
                message = f"content-encoding {value.decode('latin-1')!r} is not understood"
                raise RequestError(415, message, fix="send the body as it is")
        return found

    async def _rest(self, first: bytes, receive: Receive) -> bytes:
        parts, size = [first], len(first)
        more = True
        while more:
            message = await receive()
            if message["type"] != "http.request":
                raise GoneError
            parts.append(message.get("body", b""))
            size += len(parts[-1])
            if size > self._limits.size:
                raise self._too_large()
            more = message.get("more_body", False)
        return b"".join(parts)

    def _too_large(self) -> RequestError:
        message = f"the body is larger than {self._limits.size} bytes"
        return RequestError(413, message, fix="send fewer rows at once, or start the replica with a larger --max-body")

    def _sweep(self) -> None:
        """Stop waiting for bodies that do not come."""
        now = time.monotonic()
        for task, began in self._reading.items():
            if now - began > self._limits.seconds and task not in self._slow:
                self._slow.add(task)
                task.cancel()
        self._sweeping = bool(self._reading)
        if self._sweeping:
            asyncio.get_running_loop().call_later(_SWEEP, self._sweep)


def told(value: object) -> Answer:
    """A value as JSON."""
    return Answer(msgspec.json.encode(value))


def refusal(error: RequestError) -> Answer:
    """An error as the protocols have it."""
    headers = list(error.headers)
    if error.retry_after:
        headers.append((b"retry-after", b"%d" % max(1, round(error.retry_after))))
    return Answer(msgspec.json.encode({"error": error.words}), error.status, headers)
