"""gRPC methods with a stream of messages: streamed inference, the health watch, and reflection."""

from __future__ import annotations

import asyncio
import json
import time
from collections import deque
from typing import TYPE_CHECKING

from fairway.serving.http2.grpc_status import GRPC, OK_TRAILERS, of_http, read_timeout, status_lines
from fairway.serving.http2.hpack import encode
from fairway.serving.http2.request_header import RequestHeaders
from fairway.serving.replica.http.http2.grpc_call import reason_of
from fairway.serving.replica.http.http2.http2_request import Http2Request, ReplicaHttp2Session
from fairway.serving.replica.model.served_model import ReplicaResponse
from fairway.serving.replica.protocols.grpc.grpc_service import HEALTH_WATCH, INFERENCE, STREAM_INFER
from fairway.serving.replica.protocols.grpc.message_frame import BINARY, PREFIX, frame, opened
from fairway.serving.replica.protocols.grpc.proto_definition import definitions
from fairway.serving.replica.protocols.grpc.protobuf import tag, varint
from fairway.serving.replica.protocols.grpc.reflection import PATHS, reflect
from fairway.serving.replica.request_error import RequestError
from fairway.serving.replica.request_id import Headers

if TYPE_CHECKING:
    from fairway.serving.replica.http.inference_codec import InferenceCodec

_HEAD = encode([(b":status", b"200"), (b"content-type", GRPC)])
_MOST_OPEN = 64
"""Maximum unanswered requests of one stream; at this number reading pauses."""
_UNREAD = 1 << 20
"""Maximum bytes of answers that the client has not read; beyond that reading pauses."""
_PAGE = 1 << 16
"""Maximum bytes of a message that is not inference."""
_WATCH_SECONDS = 1.0
_REFLECTS = frozenset(path.encode() for path in PATHS)
_STREAMS = {STREAM_INFER.encode(), HEALTH_WATCH.encode()} | _REFLECTS


class GrpcMessageStream(Http2Request):
    """One stream of messages."""

    __slots__ = ("_begun", "_form", "_lines", "_open", "_parts", "_path", "_room", "_said", "_timer")

    def __init__(self, number: int, connection: ReplicaHttp2Session) -> None:
        super().__init__(number, connection)
        self._path = b""
        self._begun = False
        """Whether the headers of the answer were sent."""
        self._lines: Headers = ()
        self._parts = bytearray()
        self._open: deque[_StreamedInference] = deque()
        self._form: InferenceCodec | None = None
        self._room = True
        self._said = 0
        """The last status sent to a watch."""
        self._timer: asyncio.TimerHandle | None = None

    @staticmethod
    def speaks(path: bytes) -> bool:
        """Whether a path is that of a streaming method."""
        return path in _STREAMS

    def begin(self, head: RequestHeaders, ended: bool) -> None:
        """Check the request's headers, and send those of the answer."""
        app = self.connection.app
        self._path = head.path
        self._lines = head.lines
        self._form = app.lane.get(f"{INFERENCE}ModelInfer".encode())
        try:
            app.check([(b"host", head.authority), *head.lines])
        except RequestError as error:
            self._end(error)
            return
        if self._path == STREAM_INFER.encode() and self._form is None:
            self._end(RequestError(501, "the model takes no tensors"))
            return
        for name, value in head.lines:
            timeout = read_timeout(value) if name == b"grpc-timeout" else None
            if timeout is not None:
                self._timer = asyncio.get_running_loop().call_later(timeout, self._late)
        self._begun = True
        self.connection.headers(self, _HEAD, ended=False)
        if ended:
            self._finish_when_done()

    def on_data(self, piece: bytes, ended: bool) -> None:
        """Take part of the messages."""
        if self.said_all:
            return
        self.began = time.perf_counter()
        self._parts += piece
        held = self.connection.app.bodies.held
        try:
            self._take_messages()
        except RequestError as error:
            self._end(error)
            return
        held.resize(self, len(self._parts))
        if ended and not self.said_all:
            if self._parts:
                self._end(RequestError(400, "the stream ends within a message"))
            else:
                self._finish_when_done()

    def sweep(self, now: float, seconds: float) -> None:
        """End the stream if a message takes too long to arrive; between messages a stream may be idle."""
        if self._parts and not self.heard_all and now - self.began > seconds:
            self.give_up()

    def gone(self) -> None:
        """Cancel all requests after the client has disconnected."""
        self.disconnected = True
        for part in self._open:
            part.disconnected = True
        self._open.clear()
        self._settle()

    def refuse(self, part: _StreamedInference) -> None:
        """Refuse a request of the stream, to free its memory."""
        error = self.connection.app.bodies.no_room()
        part.answer(ReplicaResponse(json.dumps({"error": error.words}).encode(), error.status))

    def let_go(self) -> None:
        """End the stream to free the memory of its message."""
        self._end(self.connection.app.bodies.no_room())

    def on_sent(self) -> None:
        """Resume reading if there is room for more answers."""
        self._read_on()

    def answered(self) -> None:
        """Send the answers that are due, in the order of the requests."""
        while self._open and self._open[0].found is not None:
            answer = self._open.popleft().found
            assert answer is not None
            self._say(_streamed(answer))
        self._read_on()
        self._finish_when_done()

    def _take_messages(self) -> None:
        parts, limits = self._parts, self.connection.app.bodies.limits
        while len(parts) >= PREFIX and not self.said_all:
            size = int.from_bytes(parts[1:PREFIX], "big")
            if size > limits.size:
                raise self.connection.app.bodies.too_large()
            if len(parts) < PREFIX + size:
                return
            body = bytes(parts[: PREFIX + size])
            del parts[: PREFIX + size]
            self._take(body)

    def _take(self, body: bytes) -> None:
        app = self.connection.app
        if self._path == STREAM_INFER.encode():
            assert self._form is not None
            part = _StreamedInference(self, self._lines)
            self._open.append(part)
            if len(self._open) >= _MOST_OPEN:
                self._room = False
                self.connection.hold(self)
            app.quick(self._form, body, part)
            return
        message = opened(body[0], memoryview(body)[PREFIX:], _PAGE)
        if self._path in _REFLECTS:
            self._say(reflect(message))
        elif not self._said:
            self._watch(str(definitions().schema.decode("grpc.health.v1.HealthCheckRequest", message).get("service", "")))

    def _watch(self, service: str) -> None:
        """Send the status of a service, now and whenever it changes."""
        if self.disconnected or self.said_all:
            return
        try:
            status = self.connection.app.grpc.health(service)
        except RequestError:
            status = 3
        if status != self._said:
            self._said = status
            self._say(definitions().schema.encode("grpc.health.v1.HealthCheckResponse", {"status": status}))
        asyncio.get_running_loop().call_later(_WATCH_SECONDS, self._watch, service)

    def _say(self, message: bytes) -> None:
        if not self.disconnected:
            self.connection.data(self, frame(message), ended=False)
            if self.queued_size > _UNREAD:
                self._room = False
                self.connection.hold(self)

    def _read_on(self) -> None:
        if not self._room and len(self._open) < _MOST_OPEN and self.queued_size <= _UNREAD:
            self._room = True
            self.connection.go_on(self)

    def _finish_when_done(self) -> None:
        if self.heard_all and not self._open and not self.said_all and not self.disconnected and not self._parts:
            self._settle()
            self.connection.headers(self, OK_TRAILERS, ended=True)

    def _end(self, error: RequestError) -> None:
        self._parts.clear()
        for part in self._open:
            part.disconnected = True
        self._open.clear()
        self._settle()
        if self.disconnected:
            return
        if self._begun:
            # The headers were sent, so these are trailers, which have no :status.
            self.connection.headers(self, encode(status_lines(of_http(error.status), error.words)), ended=True)
        else:
            self.fail_call(error.status, error.words)

    def _settle(self) -> None:
        self.connection.app.bodies.held.free(self)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _late(self) -> None:
        self._timer = None
        self._end(RequestError(504, "the deadline of the call has passed"))


class _StreamedInference:
    """One request of a stream; implements `Asker` for the application."""

    __slots__ = ("_dialogue", "began", "disconnected", "found", "head_length", "headers", "phases")

    def __init__(self, dialogue: GrpcMessageStream, headers: Headers) -> None:
        self._dialogue = dialogue
        self.headers = headers
        self.began = time.perf_counter()
        self.disconnected = False
        self.head_length: bytes | None = BINARY
        self.phases = (self.began, self.began)
        self.found: ReplicaResponse | None = None

    def hold(self, count: int) -> None:
        """Count the bytes of a decompressed request until it is answered."""
        self._dialogue.connection.app.bodies.held.take(self, count)

    def let_go(self) -> None:
        """Refuse the request to free its memory."""
        self._dialogue.refuse(self)

    def answer(self, answer: ReplicaResponse) -> None:
        """Record the answer, which is sent in the order of the requests."""
        self._dialogue.connection.app.bodies.held.free(self)
        if self.found is not None:
            return
        self.found = answer
        if not self.disconnected:
            self._dialogue.answered()


def _streamed(answer: ReplicaResponse) -> bytes:
    """Return an encoded ModelStreamInferResponse."""
    if answer.status == 200:
        message = answer.body[PREFIX:]
        return tag(2, 2) + varint(len(message)) + message
    text = reason_of(answer.body).encode()
    return tag(1, 2) + varint(len(text)) + text
