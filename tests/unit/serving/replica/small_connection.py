"""An HTTP/2 connection to an application, with a transport that records the written bytes."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from fairway.serving.http2 import frame
from fairway.serving.http2.frame import HEAD, HEAD_SIZE, PREFACE
from fairway.serving.http2.hpack import HpackDecoder
from fairway.serving.replica.http.http2.http2_connection import ReplicaHttp2Connection


class Transport:
    """Records what is written."""

    def __init__(self) -> None:
        self.written = b""

    def write(self, data: bytes) -> None:
        self.written += data

    def set_write_buffer_limits(self, *_: Any) -> None: ...

    def is_closing(self) -> bool:
        return False

    def headers(self) -> list[dict[bytes, bytes]]:
        """Return every block of headers, in order."""
        decoder = HpackDecoder(1 << 16, 128)
        return [dict(decoder.decode(content)) for kind, _, content in self.frames() if kind == frame.HEADERS]

    def frames(self) -> list[tuple[int, int, bytes]]:
        """Return the kind, flags and content of every frame, in order."""
        parsed, at = [], 0
        while at < len(self.written):
            high, low, kind, flags, _ = HEAD.unpack_from(self.written, at)
            end = at + HEAD_SIZE + (high << 8 | low)
            parsed.append((kind, flags, self.written[at + HEAD_SIZE : end]))
            at = end
        return parsed


def connected(app: Any) -> tuple[ReplicaHttp2Connection, Transport]:
    connection, transport = ReplicaHttp2Connection(app, SimpleNamespace(connections=set())), Transport()
    connection.connection_made(transport)  # type: ignore[arg-type]
    connection.data_received(PREFACE + frame.settings({}))
    return connection, transport
