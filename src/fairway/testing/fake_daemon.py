"""A daemon that answers what a test says: a real socket and real HTTP, for the faces to talk to."""

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
from fairway.sdk import place


@dataclass(frozen=True, slots=True)
class Asked:
    """A request that came."""

    method: str
    path: str
    query: dict[str, str]
    body: bytes

    @property
    def data(self) -> dict[str, object]:
        """The body as JSON."""
        found: dict[str, object] = json.loads(self.body)
        return found


Answer = bytes | str | dict[str, object] | list[bytes] | FairwayError
"""Text, data as JSON, pieces of a stream (the connection breaks after the last when it is empty), or an error."""


@dataclass(slots=True)
class FakeDaemon:
    """Listens on the socket of `home`. `answers` maps `METHOD /path` to an answer, or to a function that makes one."""

    home: str
    answers: dict[str, Answer | Callable[[Asked], Answer]] = field(default_factory=dict)
    asked: list[Asked] = field(default_factory=list)
    version: str = ""
    keys: bool = True
    """Whether it says that it does requests with a key once."""
    _listening: socket.socket | None = None
    _path: str = ""

    def __enter__(self) -> FakeDaemon:
        """Begin to listen."""
        self._path = place.find_socket(self.home)
        place.make_runtime_folder(os.path.dirname(self._path))
        if os.path.exists(self._path):
            os.unlink(self._path)
        self._listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listening.bind(self._path)
        self._listening.listen(64)
        threading.Thread(target=self._serve, daemon=True).start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Hang up."""
        self.close()

    def close(self) -> None:
        """Be gone."""
        if self._listening is not None:
            self._listening.shutdown(socket.SHUT_RDWR)
            self._listening.close()
            self._listening = None
            os.unlink(self._path)

    def of(self, method: str, path: str) -> list[Asked]:
        """The requests of one kind that came."""
        return [asked for asked in self.asked if (asked.method, asked.path) == (method, path)]

    def _headers(self) -> str:
        version = f"fairway-version: {self.version}\r\n" if self.version else ""
        return version + ("fairway-keys: 1\r\n" if self.keys else "")

    def _serve(self) -> None:
        listening = self._listening
        while listening is not None:
            try:
                connection, _ = listening.accept()
            except OSError:
                return
            threading.Thread(target=self._answer, args=(connection,), daemon=True).start()

    def _answer(self, connection: socket.socket) -> None:
        with connection:
            asked = _read(connection)
            if asked is None:
                return
            self.asked.append(asked)
            found = self.answers.get(
                f"{asked.method} {asked.path}", FairwayError(f"nothing is prepared for {asked.method} {asked.path}")
            )
            try:
                _send(connection, found(asked) if callable(found) else found, self._headers())
            except OSError:
                # The caller has heard enough.
                return


def _read(connection: socket.socket) -> Asked | None:
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
    return Asked(method, parts.path, dict(parse_qsl(parts.query)), body)


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
