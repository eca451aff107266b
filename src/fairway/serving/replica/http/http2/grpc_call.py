"""A gRPC call for inference: from the stream to the batcher and back, without a task."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING

from fairway.serving.http2.grpc_status import GRPC, OK_TRAILERS, read_timeout
from fairway.serving.http2.hpack import encode
from fairway.serving.http2.request_header import RequestHeaders
from fairway.serving.replica.http.http2.http2_request import Http2Request, ReplicaHttp2Session
from fairway.serving.replica.model.served_model import ReplicaResponse
from fairway.serving.replica.protocols.grpc.message_frame import BINARY
from fairway.serving.replica.protocols.open_inference import LENGTH_HEADER
from fairway.serving.replica.request_error import RequestError
from fairway.serving.replica.request_id import Headers

if TYPE_CHECKING:
    from fairway.serving.replica.http.inference_codec import InferenceCodec

_HEAD = encode([(b":status", b"200"), (b"content-type", GRPC)])


class GrpcUnaryCall(Http2Request):
    """A gRPC call; implements `Asker` for the application."""

    __slots__ = ("_answered", "_asked", "_parts", "_timer", "form", "head_length", "headers", "phases")

    def __init__(self, number: int, connection: ReplicaHttp2Session) -> None:
        super().__init__(number, connection)
        self.head_length: bytes | None = BINARY
        self.phases = (self.began, self.began)
        self.headers: Headers = ()
        self.form: InferenceCodec
        self._parts: list[bytes] = []
        self._asked = False
        self._answered = False
        self._timer: asyncio.TimerHandle | None = None

    def begin(self, head: RequestHeaders, ended: bool) -> None:
        """Refuse an unacceptable request before its body arrives."""
        app = self.connection.app
        self.form = app.lane[head.path]
        self.headers = head.lines
        timeout = None
        for name, value in head.lines:
            if name == b"grpc-timeout":
                timeout = read_timeout(value)
        try:
            app.check([(b"host", head.authority), *head.lines])
            if head.length is not None:
                app.bodies.admit([(b"content-length", b"%d" % head.length), (LENGTH_HEADER, BINARY)])
        except RequestError as error:
            self.answer(_refusal(error))
            return
        if timeout is not None:
            self._timer = asyncio.get_running_loop().call_later(timeout, self._late)
        if ended:
            self.on_data(b"", True)

    def on_data(self, piece: bytes, ended: bool) -> None:
        """Take part of the message; submit the request when it is complete."""
        if self._answered:
            return
        app = self.connection.app
        parts = self._parts
        if piece:
            parts.append(piece)
            if len(parts) > 1 or not ended:
                app.bodies.held.take(self, len(piece))
                if sum(map(len, parts)) > app.bodies.limits.size:
                    self.answer(_refusal(app.bodies.too_large()))
                    return
        if ended and not self._answered:
            self._parts = []
            app.bodies.held.keep(self)
            self._asked = True
            app.quick(self.form, parts[0] if len(parts) == 1 else b"".join(parts), self)

    def gone(self) -> None:
        """Record that the client has disconnected."""
        self.disconnected = True
        self._parts = []
        self._settle()

    def hold(self, count: int) -> None:
        """Count the bytes of the decoded body."""
        self.connection.app.bodies.held.take(self, count)

    def let_go(self) -> None:
        """Refuse the request to free the memory of its body."""
        self.answer(_refusal(self.connection.app.bodies.no_room()))

    def answer(self, answer: ReplicaResponse) -> None:
        """Send the answer, once."""
        if self._answered:
            return
        self._answered = True
        self._parts = []
        self._settle()
        if self.disconnected:
            return
        if answer.status == 200:
            headers = [line for line in answer.headers if line[0] != b"grpc-status"]
            self.connection.unary(self, _HEAD + encode(headers) if headers else _HEAD, answer.body, OK_TRAILERS)
        else:
            self.fail_call(answer.status, reason_of(answer.body))

    def _settle(self) -> None:
        self.connection.app.bodies.held.free(self)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _late(self) -> None:
        """Refuse the request, because the client's deadline has passed."""
        self._timer = None
        self.answer(_refusal(RequestError(504, "the deadline of the call has passed")))


def reason_of(body: bytes) -> str:
    """Return the message of an error in JSON."""
    try:
        error = json.loads(body)
        return str(error["error"])
    except (ValueError, LookupError, TypeError, RecursionError):
        return body[:200].decode(errors="replace")


def _refusal(error: RequestError) -> ReplicaResponse:
    return ReplicaResponse(json.dumps({"error": error.words}).encode(), error.status)
