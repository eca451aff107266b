"""The common part of all requests on a stream."""

from __future__ import annotations

import time
from abc import abstractmethod
from typing import TYPE_CHECKING

from fairway.serving.http2.grpc_status import GRPC, of_http, status_lines
from fairway.serving.http2.hpack import Header, encode
from fairway.serving.http2.http2_error import Http2ErrorCode
from fairway.serving.http2.http2_session import Http2Session
from fairway.serving.http2.http2_stream import Http2Stream
from fairway.serving.http2.request_header import RequestHeaders

if TYPE_CHECKING:
    from fairway.serving.replica.http.application import ReplicaApplication


class ReplicaHttp2Session(Http2Session):
    """A connection with its application."""

    app: ReplicaApplication


class Http2Request(Http2Stream):
    """A stream that carries a request."""

    __slots__ = ("began", "connection", "disconnected")

    def __init__(self, number: int, connection: ReplicaHttp2Session) -> None:
        super().__init__(number)
        self.connection = connection
        self.began = time.perf_counter()
        self.disconnected = False

    @abstractmethod
    def begin(self, head: RequestHeaders, ended: bool) -> None:
        """Handle the headers of the request."""

    @abstractmethod
    def on_data(self, piece: bytes, ended: bool) -> None:
        """Take part of the body."""

    @abstractmethod
    def gone(self) -> None:
        """Handle the disconnection of the client; the stream is already removed from its connection."""

    def sweep(self, now: float, seconds: float) -> None:
        """End the stream if its request does not arrive in time."""
        if not self.heard_all and now - self.began > seconds:
            self.give_up()

    def give_up(self) -> None:
        """Reset the stream without an answer."""
        if self.connection.reset(self, Http2ErrorCode.CANCEL):
            self.gone()

    def fail_call(self, status: int, message: str) -> None:
        """Answer a gRPC call with the gRPC status for an HTTP error."""
        lines: list[Header] = [(b":status", b"200"), (b"content-type", GRPC), *status_lines(of_http(status), message)]
        self.connection.headers(self, encode(lines), ended=True)
