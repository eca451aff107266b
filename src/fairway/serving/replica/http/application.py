"""The ASGI application: routes requests to their handlers."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from typing import TYPE_CHECKING, TypeVar

from fairway.serving.replica.batching.batcher import Batcher, Finish
from fairway.serving.replica.batching.special_request import submit_special
from fairway.serving.replica.finite import are_finite
from fairway.serving.replica.http.content_encoding import COMPRESSED_FROM, AnswerCompressor
from fairway.serving.replica.http.inference_codec import InferenceCodec, PendingRequest
from fairway.serving.replica.http.info_page import InfoPages, refusal
from fairway.serving.replica.http.json_decoder import IncrementalJsonDecoder
from fairway.serving.replica.http.origin_check import OriginCheck
from fairway.serving.replica.http.pacer import LargeRequestPacer, SmallRequestClock
from fairway.serving.replica.http.request_body import BodyLimits, BodyReader, ClientDisconnectedError, Receive, Scope, Send
from fairway.serving.replica.http.turn_queue import BULK, TurnQueue
from fairway.serving.replica.model.datatype import Array
from fairway.serving.replica.model.served_model import InferenceRequest, ReplicaResponse, ServedModel, StreamingResponse
from fairway.serving.replica.protocols import tfserving
from fairway.serving.replica.protocols.grpc.grpc_service import GrpcMethods
from fairway.serving.replica.protocols.grpc.message_frame import is_compressed
from fairway.serving.replica.protocols.json_piece import LARGE, weight
from fairway.serving.replica.protocols.mlflow import MlflowInvocations
from fairway.serving.replica.protocols.open_inference import OpenInferenceCodec
from fairway.serving.replica.protocols.triton_extension import Control
from fairway.serving.replica.request_error import RequestError
from fairway.serving.replica.request_id import BEFORE_ID, FailureLog, Headers, echoed
from fairway.serving.replica.telemetry.replica_metrics import ReplicaMetrics

if TYPE_CHECKING:  # most replicas need none of these, and all should start fast
    from fairway.serving.replica.telemetry.replica_tracer import ReplicaTracer
    from fairway.serving.replica.telemetry.request_sampler import RequestSampler
    from fairway.serving.replica.text_generation import TextGenerator

T = TypeVar("T")
Do = Callable[[Scope, Receive], Awaitable[ReplicaResponse | StreamingResponse]]

_log = logging.getLogger("fairway.replica")
_COUNTED = 1 << 14
"""Bytes of a JSON body up to which its decoded arrays are too small to count."""
_TEXT_WORTH = 4
"""Upper bound of the bytes of a text in memory per byte in the request."""


class ReplicaApplication:
    """Answers the requests to one model.

    Promises: every request gets one answer, as JSON when it is an error; no request prevents later ones from being answered.
    """

    def __init__(
        self,
        model: ServedModel,
        batcher: Batcher,
        metrics: ReplicaMetrics,
        limits: BodyLimits,
        now: Callable[[], float],
        generating: TextGenerator | None = None,
        sampler: RequestSampler | None = None,
    ) -> None:
        self._model = model
        self._batcher = batcher
        self._metrics = metrics
        self.bodies = BodyReader(limits)
        self._small = SmallRequestClock()
        self._decoding = IncrementalJsonDecoder(self.bodies.held, self.bodies.no_room, LargeRequestPacer(self._small))
        self.bulk = TurnQueue(LargeRequestPacer(self._small))
        """Connections with large bodies, which are read in turns."""
        self.early = TurnQueue()
        """Connections with pipelined requests, which are started in turns."""
        self._sampler = sampler
        self.draining = False
        self.tracer: ReplicaTracer | None = None
        """Set when tracing is enabled."""
        self._failures = FailureLog(time.monotonic)
        self.gone = False
        """Whether the model's process has ended, after which no request can be answered."""
        self.door: OriginCheck | None = None
        """Set when the port is bound to loopback."""
        self.last = 0.0
        """When the last request arrived, by `time.perf_counter`."""
        self._questions: dict[str, Do] = {}
        """Handlers of the POST paths for inference; these requests are counted."""
        self._refusals: dict[str, Callable[[RequestError], ReplicaResponse]] = {}
        """Error writers for those paths that do not use the default format of errors."""
        self.lane: dict[bytes, InferenceCodec] = {}
        """Protocols of those paths that may take the fast path (`fast_path.py`)."""
        self._pages = InfoPages(model, batcher, metrics, now, lambda: self.draining, self._questions.keys())
        self.compressor = AnswerCompressor()
        if model.signature.inputs:
            self._add_predictions()
        self.grpc = GrpcMethods(model, batcher, metrics, limits.size, lambda: self.draining, now)
        self._calls = self.grpc.calls()
        for path, form in self.grpc.forms().items():
            self._take(path, form)
        if generating is not None:
            self._add_openai(generating)

    @property
    def busy(self) -> bool:
        """Whether an answer is outstanding."""
        return self._metrics.in_flight > 0 or self.compressor.running > 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
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
            call = self._calls.get(scope["path"]) if scope["method"] == "POST" else None
            try:
                if call is not None:
                    await self._send(await self._called(call, scope, receive), send)
                else:
                    await self._send(await self._besides(scope, receive), send, scope["headers"])
            except ClientDisconnectedError:
                pass
            return
        metrics = self._metrics
        metrics.in_flight += 1
        try:
            answer = await self._asked(do, scope, receive)
            if isinstance(answer, StreamingResponse):
                answer.headers = (*answer.headers, *echoed(scope["headers"]))
                await self._stream(answer, receive, send)
                metrics.answered(answer.status, time.perf_counter() - began)
            else:
                metrics.answered(answer.status, time.perf_counter() - began)
                self._note(scope["headers"], answer)
                await self._send(answer, send, scope["headers"])
            if self.tracer is not None:
                self.tracer.note(scope["headers"], answer.status, began, time.perf_counter())
        except ClientDisconnectedError:
            pass
        finally:
            self.bodies.done()
            metrics.in_flight -= 1

    def check(self, headers: list[tuple[bytes, bytes]]) -> None:
        """Raise 403 when the client is not allowed, and 503 once the model is gone.

        A 503 makes a router retry on another replica.
        """
        if self.gone:
            raise RequestError(503, "the model's process has ended, and this replica is shutting down", retry_after=1.0)
        if self.door is not None:
            self.door.check(headers)

    async def _asked(self, do: Do, scope: Scope, receive: Receive) -> ReplicaResponse | StreamingResponse:
        try:
            return await do(scope, receive)
        except RequestError as error:
            return self._refusals.get(scope["path"], refusal)(error)
        except ClientDisconnectedError:
            raise
        except Exception:  # noqa: BLE001  # a bug in the server must not stop it
            return _mistake()

    def _note(self, headers: Headers, answer: ReplicaResponse) -> None:
        """Return the request id to a client that connects directly, and log failures."""
        line = echoed(headers)
        if line:
            answer.headers = [*answer.headers, *line]
        if answer.status >= 500:
            self._failures.note(headers, answer.status, answer.body)

    async def _called(self, call: Callable[[bytes], ReplicaResponse], scope: Scope, receive: Receive) -> ReplicaResponse:
        """Handle a gRPC method that returns metadata; it is not counted."""
        try:
            body, _ = await self.bodies.read(scope, receive)
            return call(body)
        except RequestError as error:
            return refusal(error)
        finally:
            self.bodies.done()

    async def _besides(self, scope: Scope, receive: Receive) -> ReplicaResponse:
        """Handle a request that is not inference."""
        control = self._pages.control(scope)
        try:
            return self._pages.answer(scope) if control is None else await self._controlled(control, scope, receive)
        except RequestError as error:
            return refusal(error)

    async def _controlled(self, control: Control, scope: Scope, receive: Receive) -> ReplicaResponse:
        try:
            body, _ = await self.bodies.read(scope, receive)
            return control(body)
        finally:
            self.bodies.done()

    async def _send(self, answer: ReplicaResponse, send: Send, asked: list[tuple[bytes, bytes]] | None = None) -> None:
        if asked is not None and len(answer.body) >= COMPRESSED_FROM:
            answer = await self.compressor.compress(answer, asked)
        headers = [(b"content-type", answer.content_type), (b"content-length", b"%d" % len(answer.body)), *answer.headers]
        if self.draining:
            headers.append((b"connection", b"close"))
        await send({"type": "http.response.start", "status": answer.status, "headers": headers})
        await send({"type": "http.response.body", "body": answer.body})

    async def _stream(self, stream: StreamingResponse, receive: Receive, send: Send) -> None:
        """Send pieces as they arrive, until the end or until the client disconnects; either way their source is closed."""
        headers = [(b"content-type", stream.content_type), *stream.headers]
        if self.draining:
            headers.append((b"connection", b"close"))
        await send({"type": "http.response.start", "status": stream.status, "headers": headers})
        pump = asyncio.create_task(_pump(stream, send))
        disconnect = asyncio.create_task(_gone(receive))
        try:
            await asyncio.wait({pump, disconnect}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            disconnect.cancel()
            pump.cancel()
            await asyncio.gather(pump, disconnect, return_exceptions=True)
        if not pump.cancelled():
            pump.result()

    def _add_predictions(self) -> None:
        """Add the paths for prediction, in the protocols of several servers."""
        model = self._model
        for base in (f"/v2/models/{model.name}", f"/v2/models/{model.name}/versions/{model.version}"):
            self._take(f"{base}/infer", OpenInferenceCodec(model))
        bases = [f"/v1/models/{model.name}", f"/v1/models/{model.name}/versions/{model.version}"]
        for base in [*bases, *(f"/v1/models/{model.name}/labels/{label}" for label in model.labels)]:
            self._take(f"{base}:predict", tfserving.TfPredictCodec(model))
            self._take(f"{base}:classify", tfserving.TfClassifyCodec(model))
            self._take(f"{base}:regress", tfserving.TfRegressCodec(model))
        invocations = MlflowInvocations(model)

        async def do(scope: Scope, receive: Receive) -> ReplicaResponse:
            form = invocations.form(scope["headers"])
            return await self._read(form, *await self.bodies.read(scope, receive), scope["headers"])

        self._questions["/invocations"] = do

    def _add_openai(self, generating: TextGenerator) -> None:
        from fairway.serving.replica.protocols import openai  # noqa: PLC0415  # most replicas do not need it

        model = self._model
        routes: dict[str, Do] = {}
        if model.generates:
            routes["completions"] = self._with_body(openai.read_completion, generating.write)
            routes["chat/completions"] = self._with_body(openai.read_chat, generating.write)
        if model.embeds:
            routes["embeddings"] = self._with_body(openai.read_embeddings, generating.embed)
        for base in ("/openai/v1", "/v1"):
            for name, do in routes.items():
                self._questions[f"{base}/{name}"] = do
                self._refusals[f"{base}/{name}"] = generating.refusal

    def _with_body(
        self, read: Callable[[bytes, ServedModel], T], answer: Callable[[T], Awaitable[ReplicaResponse | StreamingResponse]]
    ) -> Do:
        async def do(scope: Scope, receive: Receive) -> ReplicaResponse | StreamingResponse:
            body, _ = await self.bodies.read(scope, receive)
            if len(body) <= LARGE:
                self._see(body, time.perf_counter())
                return await answer(read(body, self._model))
            with self._decoding.whole(len(body)):
                request = read(body, self._model)
            self.bodies.hold(_TEXT_WORTH * len(body))
            del body
            return await answer(request)

        return do

    def _take(self, path: str, form: InferenceCodec) -> None:
        """Route a path to a protocol."""

        async def do(scope: Scope, receive: Receive) -> ReplicaResponse:
            return await self._read(form, *await self.bodies.read(scope, receive), scope["headers"])

        self._questions[path] = do
        self.lane[path.encode()] = form

    async def _read(self, form: InferenceCodec, body: bytes, head_length: bytes | None, headers: Headers) -> ReplicaResponse:
        if is_large(body, head_length):
            return await self._slowly(form, body, head_length, headers)
        came = time.perf_counter()
        self._see(body, came)
        question = form.read(body, head_length)
        if head_length is None and len(body) > _COUNTED:
            self.bodies.hold(weight(question.inputs))
        elif is_compressed(body, head_length):
            self.bodies.hold(self._fitting(weight(question.inputs)))
        return await self._run(form, question, came, headers)

    def _see(self, body: bytes, at: float) -> None:
        """Let work on large requests pause for this one, if it is small."""
        if len(body) < BULK:
            self._small.seen(at)

    async def _slowly(self, form: InferenceCodec, body: bytes, head_length: bytes | None, headers: Headers) -> ReplicaResponse:
        """Handle large JSON, which is decoded in steps between other requests."""
        came = time.perf_counter()
        future: asyncio.Future[InferenceRequest] = asyncio.get_running_loop().create_future()

        def done(found: InferenceRequest | RequestError) -> None:
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
            return await self._run(form, question, came, headers)
        finally:
            job.free()

    async def _run(self, form: InferenceCodec, question: InferenceRequest, came: float, headers: Headers) -> ReplicaResponse:
        """Run the model and write the answer to a request whose body arrived at `came`."""
        read = time.perf_counter()
        outputs = await self._outputs(question)
        ran = time.perf_counter()
        answer = self._written(form, question, outputs, headers)
        self._metrics.times.add_phases(read - came, ran - read, time.perf_counter() - ran)
        return answer

    async def _outputs(self, question: InferenceRequest) -> list[Array]:
        if question.rows and not question.timeout:
            return await self._batcher.ask(question.inputs, question.rows)
        future: asyncio.Future[list[Array]] = asyncio.get_running_loop().create_future()

        def finish(found: list[Array] | RequestError) -> None:
            if future.done():
                return
            if isinstance(found, RequestError):
                future.set_exception(found)
            else:
                future.set_result(found)

        submit_special(self._batcher, self._model, question, finish)
        return await future

    def _submit(self, question: InferenceRequest, finish: Finish, arrived: float = 0.0) -> None:
        if question.rows and not question.timeout:
            self._batcher.submit(question.inputs, question.rows, finish, arrived)
        else:
            submit_special(self._batcher, self._model, question, finish, arrived)

    def _written(
        self, form: InferenceCodec, question: InferenceRequest, outputs: list[Array], headers: Headers
    ) -> ReplicaResponse:
        if question.wanted:
            size = sum([outputs[index].nbytes for index, binary in question.wanted if not binary])
        else:
            size = sum([array.nbytes for array in outputs])
        if size > self.bodies.limits.json:
            message = f"the outputs take {size} bytes, more than the limit of {self.bodies.limits.json} for JSON"
            fix = "ask for binary outputs (binary_data_output) or for fewer rows, or start the replica with a larger --max-json"
            raise RequestError(413, message, fix=fix)
        answer = form.write(question, outputs)
        if not are_finite(outputs):
            self._metrics.non_finite += 1
        if self._sampler is not None:
            self._sampler.see(question.inputs, outputs, headers)
        return answer

    def quick(self, form: InferenceCodec, body: bytes, asker: PendingRequest) -> None:
        """Handle a request on the fast path, without a task of its own."""
        self.last = asker.began
        metrics = self._metrics
        metrics.in_flight += 1

        try:
            if is_large(body, asker.head_length):
                self._quick_slowly(form, body, asker)
                return
            self._see(body, asker.began)
            self._batcher.offer(UndecodedRequest(self, form, body, asker))
        except RequestError as error:
            self._finish(form, None, error, asker)

    def _fitting(self, count: int) -> int:
        """Return the decompressed size of a message; refuse it when it does not fit beside the other requests."""
        if not self.bodies.held.has_room(count):
            raise self.bodies.no_room()
        return count

    def read_quick(self, form: InferenceCodec, body: bytes, asker: PendingRequest) -> int:
        """Decode a small body, submit its rows and return their number; 0 when it was answered with an error."""

        def finish(found: list[Array] | RequestError) -> None:
            self._finish(form, question, found, asker)

        try:
            started = time.perf_counter()
            question = form.read(body, asker.head_length)
            if asker.head_length is None and len(body) > _COUNTED:
                asker.hold(weight(question.inputs))
            elif is_compressed(body, asker.head_length):
                asker.hold(self._fitting(weight(question.inputs)))
            # The time in the backlog counts as queueing for the model.
            asker.phases = asker.began, asker.began + time.perf_counter() - started
            self._submit(question, finish, asker.began)
        except RequestError as error:
            self._finish(form, None, error, asker)
        except Exception:  # noqa: BLE001  # a bug in the server must not stop it
            _log.exception("a request could not be read")
            self._finish(form, None, RequestError(500, "internal server error; see the log of the server"), asker)
        else:
            return question.rows
        return 0

    def refuse_quick(self, error: RequestError, form: InferenceCodec, asker: PendingRequest) -> None:
        """Answer with an error."""
        self._finish(form, None, error, asker)

    def _quick_slowly(self, form: InferenceCodec, body: bytes, asker: PendingRequest) -> None:
        """Handle large JSON on the fast path."""
        arrived = time.perf_counter()

        def done(question: InferenceRequest | RequestError) -> None:
            asker.phases = arrived, time.perf_counter()

            def finish(found: list[Array] | RequestError) -> None:
                job.free()
                self._finish(form, None if isinstance(question, RequestError) else question, found, asker)

            if isinstance(question, RequestError):
                finish(question)
                return
            try:
                self._submit(question, finish)
            except RequestError as error:
                finish(error)

        job = self._decoding.start(len(body), form.steps(body, asker.head_length), done, lambda: asker.disconnected)

    def _finish(
        self, form: InferenceCodec, question: InferenceRequest | None, found: list[Array] | RequestError, asker: PendingRequest
    ) -> None:
        ran = time.perf_counter()
        try:
            if question is None or isinstance(found, RequestError):
                assert isinstance(found, RequestError)
                answer = refusal(found)
            else:
                answer = self._written(form, question, found, asker.headers)
        except RequestError as error:
            answer = refusal(error)
        except Exception:  # noqa: BLE001  # a bug in the server must not stop it
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


class UndecodedRequest:
    """A request on the fast path that is not decoded yet (`backlog.py`)."""

    __slots__ = ("_app", "_asker", "_body", "_form", "arrived")

    def __init__(self, app: ReplicaApplication, form: InferenceCodec, body: bytes, asker: PendingRequest) -> None:
        self._app = app
        self._form = form
        self._body = body
        self._asker = asker
        self.arrived = asker.began

    def is_gone(self) -> bool:
        """Whether its client has disconnected."""
        return self._asker.disconnected

    def read(self) -> int:
        """Decode the body and submit its rows."""
        return self._app.read_quick(self._form, self._body, self._asker)

    def refuse(self, error: RequestError) -> None:
        """Answer with an error."""
        self._app.refuse_quick(error, self._form, self._asker)


def is_large(body: bytes, head_length: bytes | None) -> bool:
    """Whether the JSON of a body is decoded in steps."""
    if len(body) <= LARGE or head_length is None:
        return len(body) > LARGE
    return head_length.isdigit() and len(head_length) < 20 and int(head_length) > LARGE


async def _pump(stream: StreamingResponse, send: Send) -> None:
    async with aclosing(stream.pieces) as pieces:
        async for piece in pieces:
            if piece:
                await send({"type": "http.response.body", "body": piece, "more_body": True})
    await send({"type": "http.response.body", "body": b""})


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _mistake() -> ReplicaResponse:
    _log.exception("a request could not be answered")
    return refusal(RequestError(500, "internal server error; see the log of the server"))
