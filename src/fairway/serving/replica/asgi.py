"""The ASGI application: which path does what; bodies in, answers out."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from typing import TYPE_CHECKING, Protocol, TypeVar

import msgspec

from fairway.serving.exposition.family import OPENMETRICS, TEXT, accepts_openmetrics, render
from fairway.serving.replica.batching import Batcher
from fairway.serving.replica.bodies import Bodies, BodyLimits, GoneError, Receive, Scope, Send
from fairway.serving.replica.datatypes import Array
from fairway.serving.replica.decoding import Decoding
from fairway.serving.replica.door import Door
from fairway.serving.replica.metrics import Metrics
from fairway.serving.replica.model import Answer, Question, ServedModel, Stream, check_version, listed
from fairway.serving.replica.pace import Pace, SmallRequests
from fairway.serving.replica.problem import RequestError
from fairway.serving.replica.protocols import openinference, tfserving
from fairway.serving.replica.protocols.openinference import OpenInference
from fairway.serving.replica.protocols.pieces import LARGE, Steps, weight
from fairway.serving.replica.request_id import BEFORE_ID, FailureLog, Headers, echoed
from fairway.serving.replica.turns import BULK, Line
from fairway.version import __version__

if TYPE_CHECKING:  # most replicas need neither, and all should start fast
    from fairway.serving.replica.generating import Generating
    from fairway.serving.replica.sampling import Sampler
    from fairway.serving.replica.trace import ReplicaTracer

T = TypeVar("T")
Do = Callable[[Scope, Receive], Awaitable[Answer | Stream]]

_log = logging.getLogger("fairway.replica")
_COUNTED = 1 << 14
"""Bytes of JSON; what is decoded of less is too little to count."""
_TEXT_WORTH = 4
"""Bytes of a text in memory by bytes of it in a request, at the most."""
METRICS = "/metrics"
_INDEX = "/v2/repository/index"
"""A page that is asked for with POST; what its body says does not matter here."""


class Form(Protocol):
    """One way to put a question to the model: from a body to arrays, and from arrays to an answer."""

    def read(self, body: bytes, head_length: bytes | None) -> Question:
        """A question, or a `RequestError`."""
        ...

    def steps(self, body: bytes, head_length: bytes | None) -> Steps[Question]:
        """The same of large JSON, in steps."""
        ...

    def write(self, question: Question, outputs: list[Array]) -> Answer:
        """Its answer."""
        ...


class Asker(Protocol):
    """Who asked, and waits on the short way (`lane.py`)."""

    began: float
    phases: tuple[float, float]
    """When the whole request was there, and when it was read."""
    head_length: bytes | None
    headers: Headers
    disconnected: bool

    def hold(self, count: int) -> None:
        """Counts so many bytes more until it is answered."""
        ...

    def answer(self, answer: Answer) -> None:
        """Takes the answer, once."""
        ...


class App:
    """Answers the requests to one model.

    Promises: every request gets one answer, in JSON where something is wrong; whatever it holds, the next one is answered too.
    """

    def __init__(
        self,
        model: ServedModel,
        batcher: Batcher,
        metrics: Metrics,
        limits: BodyLimits,
        now: Callable[[], float],
        generating: Generating | None = None,
        sampler: Sampler | None = None,
    ) -> None:
        self._model = model
        self._batcher = batcher
        self._metrics = metrics
        self.bodies = Bodies(limits)
        self._small = SmallRequests()
        self._decoding = Decoding(self.bodies.held, self.bodies.no_room, Pace(self._small))
        self.bulk = Line(Pace(self._small))
        """Connections with large bodies."""
        self.early = Line()
        """Connections that sent requests before the last answer."""
        self._sampler = sampler
        self._created = int(now())
        self._began = time.monotonic()
        self.draining = False
        self.tracer: ReplicaTracer | None = None
        """Set where traces are asked for."""
        self._failures = FailureLog(time.monotonic)
        self.door: Door | None = None
        """Set where the port is one of loopback."""
        self.last = 0.0
        """When the last request came, by `time.perf_counter`."""
        self._questions: dict[str, Do] = {}
        """Paths that take a POST with a question to the model; these are counted."""
        self._refusals: dict[str, Callable[[RequestError], Answer]] = {}
        """How those of them say that something is wrong which do not say it as all others do."""
        self.lane: dict[bytes, Form] = {}
        """Those of them that may go the short way."""
        self._pages: dict[str, Callable[[], Answer]] = {}
        """Paths that take a GET."""
        self._add_openinference()
        self._add_tfserving()
        if generating is not None:
            self._add_openai(generating)
        self._pages |= {"/openapi.json": self._openapi, "/docs": _docs}

    @property
    def busy(self) -> bool:
        """Whether anybody waits for an answer."""
        return self._metrics.in_flight > 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] != "http":
            return
        began = self.last = time.perf_counter()
        try:
            self.check(scope["headers"])
        except RequestError as error:
            await self._send(refusal(error), send)
            return
        do = self._questions.get(scope["path"])
        if do is None or scope["method"] != "POST":
            self._small.seen(began)
            await self._send(self._page(scope), send)
            return
        metrics = self._metrics
        metrics.in_flight += 1
        try:
            answer = await self._asked(do, scope, receive)
            if isinstance(answer, Stream):
                answer.headers = (*answer.headers, *echoed(scope["headers"]))
                await self._stream(answer, receive, send)
                metrics.answered(answer.status, time.perf_counter() - began)
            else:
                metrics.answered(answer.status, time.perf_counter() - began)
                self._note(scope["headers"], answer)
                await self._send(answer, send)
            if self.tracer is not None:
                self.tracer.note(scope["headers"], answer.status, began, time.perf_counter())
        except GoneError:
            pass
        finally:
            self.bodies.done()
            metrics.in_flight -= 1

    def check(self, headers: list[tuple[bytes, bytes]]) -> None:
        """403 for what may not ask at all."""
        if self.door is not None:
            self.door.check(headers)

    async def _asked(self, do: Do, scope: Scope, receive: Receive) -> Answer | Stream:
        try:
            return await do(scope, receive)
        except RequestError as error:
            return self._refusals.get(scope["path"], refusal)(error)
        except GoneError:
            raise
        except Exception:  # noqa: BLE001  # ours; the server must live on
            return _mistake()

    def _note(self, headers: Headers, answer: Answer) -> None:
        """Give a client that asked directly its id back, and log what failed."""
        line = echoed(headers)
        if line:
            answer.headers = [*answer.headers, *line]
        if answer.status >= 500:
            self._failures.note(headers, answer.status, answer.body)

    async def _send(self, answer: Answer, send: Send) -> None:
        headers = [(b"content-type", answer.content_type), (b"content-length", b"%d" % len(answer.body)), *answer.headers]
        if self.draining:
            headers.append((b"connection", b"close"))
        await send({"type": "http.response.start", "status": answer.status, "headers": headers})
        await send({"type": "http.response.body", "body": answer.body})

    async def _stream(self, stream: Stream, receive: Receive, send: Send) -> None:
        """Send pieces as they come, until the end or until the client goes away; either way their source is closed."""
        headers = [(b"content-type", stream.content_type), *stream.headers]
        if self.draining:
            headers.append((b"connection", b"close"))
        await send({"type": "http.response.start", "status": stream.status, "headers": headers})
        pump = asyncio.create_task(_pump(stream, send))
        gone = asyncio.create_task(_gone(receive))
        try:
            await asyncio.wait({pump, gone}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            gone.cancel()
            pump.cancel()
            await asyncio.gather(pump, gone, return_exceptions=True)
        if not pump.cancelled():
            pump.result()

    def _page(self, scope: Scope) -> Answer:
        path, method = scope["path"], scope["method"]
        page = self._pages.get(path)
        if page is not None and (method in ("GET", "HEAD") or path == _INDEX):
            return self._prometheus(scope) if path == METRICS else page()
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
            if len(parts) > 5 and parts[4] == "labels" and (label := parts[5].partition(":")[0]) not in self._model.labels:
                return RequestError(
                    404, f"model {name!r} has no label {label!r} here", fix=f"version {self._model.version} is served"
                )
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
            "/fairway/load": self._load,
            METRICS: self._prometheus,
        }
        for base in (f"/v2/models/{model.name}", f"/v2/models/{model.name}/versions/{model.version}"):
            self._pages |= {base: self._metadata, f"{base}/ready": self._ready}
            if model.signature.inputs:
                self._take(f"{base}/infer", OpenInference(model))

    def _add_tfserving(self) -> None:
        model = self._model
        bases = [f"/v1/models/{model.name}", f"/v1/models/{model.name}/versions/{model.version}"]
        for base in [*bases, *(f"/v1/models/{model.name}/labels/{label}" for label in model.labels)]:
            # The same path is OpenAI's for one model: one object with the keys of both.
            self._pages[base] = lambda: told({**tfserving.status(model), **listed(model, self._created)})
            self._pages[f"{base}/metadata"] = lambda: told(tfserving.metadata(model))
            if not model.signature.inputs:
                continue
            self._take(f"{base}:predict", tfserving.Predict(model))
            self._take(f"{base}:classify", tfserving.Classify(model))
            self._take(f"{base}:regress", tfserving.Regress(model))

    def _add_openai(self, generating: Generating) -> None:
        from fairway.serving.replica.protocols import openai  # noqa: PLC0415  # most replicas do without

        model = self._model
        routes: dict[str, Do] = {}
        if model.generates:
            routes["completions"] = self._with_body(openai.read_completion, generating.write)
            routes["chat/completions"] = self._with_body(openai.read_chat, generating.write)
        if model.embeds:
            routes["embeddings"] = self._with_body(openai.read_embeddings, generating.embed)
        models = {"object": "list", "data": [listed(model, self._created)]}
        for base in ("/openai/v1", "/v1"):
            self._pages[f"{base}/models"] = lambda: told(models)
            for name, do in routes.items():
                self._questions[f"{base}/{name}"] = do
                self._refusals[f"{base}/{name}"] = generating.refusal
        self._pages[f"/openai/v1/models/{model.name}"] = lambda: told(listed(model, self._created))

    def _with_body(self, read: Callable[[bytes, ServedModel], T], answer: Callable[[T], Awaitable[Answer | Stream]]) -> Do:
        async def do(scope: Scope, receive: Receive) -> Answer | Stream:
            body, _ = await self.bodies.read(scope, receive)
            if len(body) <= LARGE:
                self._see(body, time.perf_counter())
                return await answer(read(body, self._model))
            with self._decoding.whole(len(body)):
                asked = read(body, self._model)
            self.bodies.hold(_TEXT_WORTH * len(body))
            del body
            return await answer(asked)

        return do

    def _ready(self) -> Answer:
        if self.draining:
            return refusal(RequestError(503, "this replica is ending"))
        return Answer(b"")

    def _metadata(self) -> Answer:
        return told(openinference.metadata(self._model, self._batcher.verdict))

    def _openapi(self) -> Answer:
        from fairway.serving.replica.openapi.document import document  # noqa: PLC0415  # the first request can wait for it

        return told(document(self._model, self._pages.keys(), self._questions.keys()))

    def _load(self) -> Answer:
        return told(self._metrics.load(self._batcher.waiting, time.monotonic() - self._began, self._batcher.verdict))

    def _prometheus(self, scope: Scope | None = None) -> Answer:
        model, batcher = self._model, self._batcher
        accept = next((value for name, value in scope["headers"] if name == b"accept"), None) if scope else None
        families = self._metrics.families(model.name, model.version, batcher.waiting, batcher.verdict)
        openmetrics = accepts_openmetrics(accept)
        return Answer(render(families, openmetrics=openmetrics), content_type=OPENMETRICS if openmetrics else TEXT)

    def _take(self, path: str, form: Form) -> None:
        """Let questions of this form come in at a path."""

        async def do(scope: Scope, receive: Receive) -> Answer:
            body, head_length = await self.bodies.read(scope, receive)
            if is_large(body, head_length):
                return await self._slowly(form, body, head_length, scope["headers"])
            came = time.perf_counter()
            self._see(body, came)
            question = form.read(body, head_length)
            if head_length is None and len(body) > _COUNTED:
                self.bodies.hold(weight(question.inputs))
            read = time.perf_counter()
            outputs = await self._batcher.ask(question.inputs, question.rows)
            ran = time.perf_counter()
            answer = self._written(form, question, outputs, scope["headers"])
            self._metrics.times.add_phases(read - came, ran - read, time.perf_counter() - ran)
            return answer

        self._questions[path] = do
        self.lane[path.encode()] = form

    def _see(self, body: bytes, at: float) -> None:
        """Let work on large requests pause for this one, if it is small."""
        if len(body) < BULK:
            self._small.seen(at)

    async def _slowly(self, form: Form, body: bytes, head_length: bytes | None, headers: Headers) -> Answer:
        """The same for large JSON, which is decoded beside other requests."""
        came = time.perf_counter()
        future: asyncio.Future[Question] = asyncio.get_running_loop().create_future()

        def done(found: Question | RequestError) -> None:
            if future.done():
                return
            if isinstance(found, RequestError):
                future.set_exception(found)
            else:
                future.set_result(found)

        job = self._decoding.start(len(body), form.steps(body, head_length), done, future.done)
        del body
        try:
            question = await future
            read = time.perf_counter()
            outputs = await self._batcher.ask(question.inputs, question.rows)
            ran = time.perf_counter()
            answer = self._written(form, question, outputs, headers)
            self._metrics.times.add_phases(read - came, ran - read, time.perf_counter() - ran)
            return answer
        finally:
            job.free()

    def _written(self, form: Form, question: Question, outputs: list[Array], headers: Headers) -> Answer:
        if question.wanted:
            size = sum([outputs[place].nbytes for place, binary in question.wanted if not binary])
        else:
            size = sum([each.nbytes for each in outputs])
        if size > self.bodies.limits.json:
            message = f"the outputs take {size} bytes, and {self.bodies.limits.json} may go as JSON"
            fix = "ask for binary outputs (binary_data_output) or for fewer rows, or start the replica with a larger --max-json"
            raise RequestError(413, message, fix=fix)
        answer = form.write(question, outputs)
        if self._sampler is not None:
            self._sampler.see(question.inputs, outputs, headers)
        return answer

    def quick(self, form: Form, body: bytes, asker: Asker) -> None:
        """The same for a request on the short way, without a task of its own."""
        self.last = asker.began
        metrics = self._metrics
        metrics.in_flight += 1

        def finish(found: list[Array] | RequestError) -> None:
            self._finish(form, question, found, asker)

        try:
            if is_large(body, asker.head_length):
                self._quick_slowly(form, body, asker)
                return
            self._see(body, asker.began)
            came = time.perf_counter()
            question = form.read(body, asker.head_length)
            if asker.head_length is None and len(body) > _COUNTED:
                asker.hold(weight(question.inputs))
            read = time.perf_counter()
            asker.phases = came, read
            self._batcher.submit(question.inputs, question.rows, finish, read)
        except RequestError as error:
            self._finish(form, None, error, asker)
        except Exception:  # noqa: BLE001  # ours; the server must live on
            _log.exception("a request could not be read")
            self._finish(form, None, RequestError(500, "the server made a mistake, and wrote it into its log"), asker)

    def _quick_slowly(self, form: Form, body: bytes, asker: Asker) -> None:
        """Large JSON on the short way."""
        came = time.perf_counter()

        def done(question: Question | RequestError) -> None:
            asker.phases = came, time.perf_counter()

            def finish(found: list[Array] | RequestError) -> None:
                job.free()
                self._finish(form, None if isinstance(question, RequestError) else question, found, asker)

            if isinstance(question, RequestError):
                finish(question)
                return
            try:
                self._batcher.submit(question.inputs, question.rows, finish)
            except RequestError as error:
                finish(error)

        job = self._decoding.start(len(body), form.steps(body, asker.head_length), done, lambda: asker.disconnected)

    def _finish(self, form: Form, question: Question | None, found: list[Array] | RequestError, asker: Asker) -> None:
        ran = time.perf_counter()
        try:
            if question is None or isinstance(found, RequestError):
                assert isinstance(found, RequestError)
                answer = refusal(found)
            else:
                answer = self._written(form, question, found, asker.headers)
        except RequestError as error:
            answer = refusal(error)
        except Exception:  # noqa: BLE001  # ours; the server must live on
            answer = _mistake()
        metrics, now = self._metrics, time.perf_counter()
        metrics.in_flight -= 1
        if question is None:
            metrics.answered(answer.status, now - asker.began)
        else:
            metrics.asked(answer.status, asker.began, asker.phases, ran, now)
        headers = asker.headers
        if answer.status >= 500 or len(headers) < 2 or headers[-2][0] != BEFORE_ID:
            self._note(headers, answer)
        if self.tracer is not None:
            phases = None if question is None else (*asker.phases, ran)
            self.tracer.note(asker.headers, answer.status, asker.began, now, phases)
        asker.answer(answer)


def is_large(body: bytes, head_length: bytes | None) -> bool:
    """Whether the JSON of a body is decoded in steps."""
    if len(body) <= LARGE or head_length is None:
        return len(body) > LARGE
    return head_length.isdigit() and len(head_length) < 20 and int(head_length) > LARGE


async def _pump(stream: Stream, send: Send) -> None:
    async with aclosing(stream.pieces) as pieces:
        async for piece in pieces:
            if piece:
                await send({"type": "http.response.body", "body": piece, "more_body": True})
    await send({"type": "http.response.body", "body": b""})


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _mistake() -> Answer:
    _log.exception("a request could not be answered")
    return refusal(RequestError(500, "the server made a mistake, and wrote it into its log"))


def _docs() -> Answer:
    from fairway.serving.replica.openapi.page import HTML, docs  # noqa: PLC0415  # the same

    text, policy = docs()
    headers = [(b"content-security-policy", policy), (b"x-content-type-options", b"nosniff"), (b"cache-control", b"no-cache")]
    return Answer(text, headers=headers, content_type=HTML)


def told(value: object) -> Answer:
    """A value as JSON."""
    return Answer(msgspec.json.encode(value))


def refusal(error: RequestError) -> Answer:
    """An error as the protocols have it."""
    headers = list(error.headers)
    if error.retry_after:
        headers.append((b"retry-after", b"%d" % max(1, round(error.retry_after))))
    return Answer(msgspec.json.encode({"error": error.words}), error.status, headers)
