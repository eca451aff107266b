"""The control socket of a supervisor: a Unix socket `ctl` in the attempt's folder. Standard library only.

A client sends one JSON object and a newline and gets one back:

    {"op": "stop", "grace": 30, "reason": "..."}    SIGTERM now, SIGKILL after the grace
    {"op": "stop", "ask": true, ...}                the same, but programs that watch for stop requests end first
    {"op": "kill", "reason": "..."}                 SIGKILL to everything now
    {"op": "status"}                                the running processes
    {"op": "environment"}                           folder and variables of the first process
    {"op": "interrupt"}                             Ctrl-C: to the terminal, or SIGINT to every process group
    {"op": "input", "data": "text"}                 to the first process's terminal
    {"op": "end"}                                   no more input
    {"op": "resize", "rows": 24, "columns": 80}     the window of the terminal
    {"op": "attach"}                                from here on raw bytes, both ways

`attach` answers with the `offset` in `out-0.log` at which the bytes that follow begin, so that a client can show the log up to
there and miss or repeat nothing.
"""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Callable

from fairway.engines.local.supervision.reactor import READ, WRITE, Reactor

NAME = "ctl"
Request = dict[str, object]

_LINE_LIMIT = 1 << 20
_MOST_UNREAD = 8 << 20
"""Limit of bytes buffered for a client that does not read; beyond it the client is dropped."""


class ControlSocket:
    """The listener. It binds in the current folder, the attempt's: a full path may not fit a socket address."""

    def __init__(self, reactor: Reactor, answer: Callable[[Request], Request], typed: Callable[[bytes], None]) -> None:
        self._reactor = reactor
        self._answer = answer
        self._typed = typed
        self._clients: set[_ControlClient] = set()
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
        try:
            os.unlink(NAME)
        except FileNotFoundError:
            pass
        try:
            self._listener.bind(NAME)
        except OSError:
            # Some file systems do not support sockets. Signals still reach the supervisor.
            return
        os.chmod(NAME, 0o600)
        self._listener.listen(16)
        reactor.watch(self._listener.fileno(), READ, self._connected)

    def show(self, data: bytes) -> None:
        """Send to all attached clients."""
        for client in list(self._clients):
            if client.attached:
                client.send(data)

    def close(self) -> None:
        """Close all connections and remove the socket."""
        self._reactor.forget(self._listener.fileno())
        self._listener.close()
        for client in list(self._clients):
            client.finish()
        try:
            os.unlink(NAME)
        except FileNotFoundError:
            pass

    def _connected(self, _events: int) -> None:
        try:
            connection, _ = self._listener.accept()
        except OSError:
            return
        self._clients.add(_ControlClient(self._reactor, connection, self._answer, self._typed, self._clients.discard))


class _ControlClient:
    def __init__(
        self,
        reactor: Reactor,
        connection: socket.socket,
        answer: Callable[[Request], Request],
        typed: Callable[[bytes], None],
        gone: Callable[[_ControlClient], None],
    ) -> None:
        self._reactor = reactor
        self._connection = connection
        self._answer = answer
        self._typed = typed
        self._gone = gone
        self._heard = b""
        self._unsent = b""
        self.attached = False
        connection.setblocking(False)
        reactor.watch(connection.fileno(), READ, self._ready)

    def send(self, data: bytes) -> None:
        self._unsent += data
        if len(self._unsent) > _MOST_UNREAD:
            self._drop()
        else:
            self._flush()

    def finish(self) -> None:
        """Send the remaining data if the client takes it now, and close the connection."""
        if self._connection.fileno() >= 0:
            self._connection.settimeout(0.5)
            try:
                self._connection.sendall(self._unsent)
            except OSError:
                pass
            self._drop()

    def _ready(self, events: int) -> None:
        if events & WRITE:
            self._flush()
        if events & ~WRITE and self._connection.fileno() >= 0:
            self._read()

    def _read(self) -> None:
        try:
            data = self._connection.recv(1 << 16)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._drop()
        elif self.attached:
            self._typed(data)
        else:
            self._heard += data
            self._understand()

    def _understand(self) -> None:
        while not self.attached and b"\n" in self._heard:
            line, _, self._heard = self._heard.partition(b"\n")
            try:
                request = json.loads(line)
                reply = self._answer(request) if isinstance(request, dict) else {"error": "a request is a JSON object"}
            except ValueError as problem:
                request, reply = {}, {"error": f"invalid request: {problem}"}
            self.attached = bool(isinstance(request, dict) and request.get("op") == "attach" and "error" not in reply)
            self.send(json.dumps(reply).encode() + b"\n")
        if self.attached and self._heard:
            self._typed(self._heard)
            self._heard = b""
        if len(self._heard) > _LINE_LIMIT:
            self._drop()

    def _flush(self) -> None:
        try:
            while self._unsent:
                self._unsent = self._unsent[self._connection.send(self._unsent) :]
        except BlockingIOError:
            pass
        except OSError:
            self._drop()
            return
        self._reactor.watch(self._connection.fileno(), READ | (WRITE if self._unsent else 0), self._ready)

    def _drop(self) -> None:
        if self._connection.fileno() >= 0:
            self._reactor.forget(self._connection.fileno())
            self._connection.close()
        self._gone(self)


def connect(folder: str, timeout: float) -> socket.socket:
    """Connect to the supervisor of an attempt's folder. Raises `OSError` when no supervisor listens."""
    handle = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    try:
        connection.settimeout(timeout)
        # A path to the folder that is short however deep the folder is.
        connection.connect(f"/proc/self/fd/{handle}/{NAME}")
    except OSError:
        connection.close()
        raise
    finally:
        os.close(handle)
    return connection


def ask(folder: str, request: Request, timeout: float) -> Request:
    """Send one request and return the answer. Raises `OSError` when there is none in time."""
    with connect(folder, timeout) as connection:
        connection.sendall(json.dumps(request).encode() + b"\n")
        text = b""
        while not text.endswith(b"\n"):
            piece = connection.recv(1 << 16)
            if not piece:
                message = "the supervisor closed the connection"
                raise ConnectionError(message)
            text += piece
        answer = json.loads(text)
        return answer if isinstance(answer, dict) else {}
