"""A fake daemon with prepared answers, over a real socket and HTTP: for tests of the CLI, the SDK and other clients."""

from __future__ import annotations

import json
import os
import socket
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from types import TracebackType
from urllib.parse import parse_qsl, urlsplit

from fairway.errors import FairwayError
from fairway.sdk.transport import local_path


@dataclass(frozen=True, slots=True)
class DaemonRequestRecord:
    """A received request."""

    method: str
    path: str
    query: dict[str, str]
    body: bytes

    @property
    def data(self) -> dict[str, object]:
        """The body as JSON."""
        body_data: dict[str, object] = json.loads(self.body)
        return body_data


Answer = bytes | str | dict[str, object] | list[bytes] | FairwayError
"""Text, data to send as JSON, pieces of a stream (an empty piece breaks the connection), or an error."""


@dataclass(slots=True)
class FakeDaemon:
    """Listens on the socket of `home`. `answers` maps `METHOD /path` to an answer, or to a function that returns one."""

    home: str
    answers: dict[str, Answer | Callable[[DaemonRequestRecord], Answer]] = field(default_factory=dict)
    asked: list[DaemonRequestRecord] = field(default_factory=list)
    version: str = ""
    keys: bool = True
    """Whether it announces support for idempotency keys."""
    _listening: socket.socket | None = None
    _path: str = ""

    def __enter__(self) -> FakeDaemon:
        """Start listening."""
        self._path = local_path.find_socket(self.home)
        local_path.make_runtime_folder(os.path.dirname(self._path))
        if os.path.exists(self._path):
            os.unlink(self._path)
        self._listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listening.bind(self._path)
        self._listening.listen(64)
        threading.Thread(target=self._serve, daemon=True).start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Stop listening."""
        self.close()

    def close(self) -> None:
        """Close the socket and remove its file."""
        if self._listening is not None:
            self._listening.shutdown(socket.SHUT_RDWR)
            self._listening.close()
            self._listening = None
            os.unlink(self._path)

    def of(self, method: str, path: str) -> list[DaemonRequestRecord]:
        """Return the received requests with this method and path."""
        return [request for request in self.asked if (request.method, request.path) == (method, path)]

    def _headers(self) -> str:
        version = f"fairway-version: {self.version}\r\n" if self.version else ""
        return version + ("fairway-keys: 1\r\n" if self.keys else "")

    def _serve(self) -> None:
        listener = self._listening
        while listener is not None:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=self._answer, args=(connection,), daemon=True).start()

    def _answer(self, connection: socket.socket) -> None:
        with connection:
            request = _read(connection)
            if request is None:
                return
            self.asked.append(request)
            answer = self.answers.get(
                f"{request.method} {request.path}", FairwayError(f"no answer is prepared for {request.method} {request.path}")
            )
            try:
                _send(connection, answer(request) if callable(answer) else answer, self._headers())
            except OSError:
                # The client has closed the connection.
                return


def _read(connection: socket.socket) -> DaemonRequestRecord | None:
    data = b""
    while b"\r\n\r\n" not in data:
        piece = connection.recv(65536)
        if not piece:
            return None
        data += piece
    head, _, body = data.partition(b"\r\n\r\n")
    first, *lines = head.decode().split("\r\n")
    headers = {line.partition(":")[0].lower(): line.partition(":")[2].strip() for line in lines}
    while len(body) < int(headers.get("content-length", "0")):
        body += connection.recv(65536)
    method, target, _ = first.split(" ")
    parts = urlsplit(target)
    return DaemonRequestRecord(method, parts.path, dict(parse_qsl(parts.query)), body)


def _send(connection: socket.socket, answer: Answer, extra: str) -> None:
    if isinstance(answer, list):
        connection.sendall(f"HTTP/1.1 200 OK\r\n{extra}transfer-encoding: chunked\r\n\r\n".encode())
        for piece in answer:
            if not piece:
                return
            connection.sendall(b"%x\r\n%s\r\n" % (len(piece), piece))
        connection.sendall(b"0\r\n\r\n")
        return
    status, body = 200, answer
    if isinstance(answer, FairwayError):
        status, body = answer.status, json.dumps({"error": answer.as_dict()})
    elif isinstance(answer, dict):
        body = json.dumps(answer)
    data = body.encode() if isinstance(body, str) else body
    assert isinstance(data, bytes)
    connection.sendall(f"HTTP/1.1 {status} X\r\n{extra}content-length: {len(data)}\r\n\r\n".encode() + data)
