"""HTTP/1.1 over a Unix socket, as small as possible: every command of the command line imports this module.

`ReplyDecoder` decodes a reply without doing I/O, for the blocking exchange below and for the asyncio one in
`async_reply.py`. The imports cost only a few milliseconds: no `http.client`, no `typing`, and the C module behind
`socket` instead of its wrapper, which alone would double the start time of an interpreter.
"""

from __future__ import annotations

import _socket

from fairway.errors import BugError, FairwayError, UnavailableError, from_wire

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    Query = Mapping[str, str | int | float | bool | None]

JSON = "application/json"
VERSION_HEADER = "fairway-version"
"""Header of every reply, with the daemon's version."""

KEYS_HEADER = "fairway-keys"
"""Header of every reply of a daemon that supports idempotency keys."""


class LostReplyError(UnavailableError):
    """A request was sent and no complete reply arrived: it may or may not have taken effect."""


_SAFE = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~")
_PIECE = 65536


def quote(text: str) -> str:
    """Percent-encode every byte that is reserved in a path segment or a query."""
    data = text.encode("utf-8", "surrogateescape")
    return "".join(chr(byte) if byte in _SAFE else f"%{byte:02X}" for byte in data)


def encode_target(path: str, query: Query | None = None) -> str:
    """Return a path with its query. Values that are None, False or empty are omitted."""
    parameters = {
        name: value for name, value in (query or {}).items() if value is not None and value is not False and value != ""
    }
    pairs = (f"{quote(name)}={'true' if value is True else quote(str(value))}" for name, value in parameters.items())
    return f"{path}?{'&'.join(pairs)}" if parameters else path


def encode_request(method: str, path: str, query: Query | None = None, body: bytes = b"", kind: str = JSON) -> bytes:
    """Return the bytes of a request, which uses a connection of its own."""
    head = f"{method} {encode_target(path, query)} HTTP/1.1\r\nHost: fairway\r\nConnection: close\r\n"
    if body or method in ("POST", "PUT"):
        head += f"Content-Type: {kind}\r\nContent-Length: {len(body)}\r\n"
    return head.encode("ascii") + b"\r\n" + body


class ReplyDecoder:
    """Incremental decoder of one reply. `status` is 0 until the head has arrived."""

    def __init__(self) -> None:
        self.status = 0
        self.headers: dict[str, str] = {}
        self.done = False
        self._rest = b""
        self._left: int | None = None
        """Bytes remaining in the body or in its current chunk; None if only the end of the connection ends the body."""
        self._chunked = False

    def feed(self, data: bytes) -> bytes:
        """Take received bytes; return the decoded bytes of the body."""
        self._rest += data
        if not self.status and not self._read_head():
            return b""
        if self._chunked:
            return self._read_chunks()
        body, self._rest = self._rest, b""
        if self._left is not None:
            self._left -= len(body)
            self.done = self._left <= 0
        return body

    def end(self) -> None:
        """Handle the close of the connection. Raises `LostReplyError` if the reply is incomplete."""
        if self.status and self._left is None and not self._chunked:
            self.done = True
        if not self.done:
            message = "the daemon closed the connection in the middle of an answer"
            raise LostReplyError(
                message,
                fix="try again; `fairway daemon status` shows whether it is running and where its log is",
            )

    def _read_head(self) -> bool:
        head, mark, rest = self._rest.partition(b"\r\n\r\n")
        if not mark:
            return False
        first, *lines = head.decode("latin-1").split("\r\n")
        words = first.split(" ", 2)
        if len(words) < 2 or not words[0].startswith("HTTP/1.") or not words[1].isdigit():
            message = f"what listens on the daemon's socket does not speak HTTP: {first[:80]!r}"
            raise BugError(message)
        self._rest = rest
        if words[1].startswith("1"):
            return self._read_head()
        for line in lines:
            name, _, value = line.partition(":")
            self.headers[name.strip().lower()] = value.strip()
        self.status = int(words[1])
        self._chunked = "chunked" in self.headers.get("transfer-encoding", "").lower()
        length = self.headers.get("content-length")
        if not self._chunked and length is not None:
            self._left = int(length)
        if self.status in (204, 304) or self._left == 0:
            self.done = True
        return True

    def _read_chunks(self) -> bytes:
        body = b""
        while not self.done:
            if self._left is None:
                line, mark, rest = self._rest.partition(b"\r\n")
                if not mark:
                    break
                self._left, self._rest = int(line.split(b";")[0], 16), rest
                if self._left == 0:
                    # Trailers could follow; Fairway sends none, and the connection is not used again.
                    self.done = True
                    break
            if self._left > 0:
                piece = self._rest[: self._left]
                self._rest = self._rest[len(piece) :]
                self._left -= len(piece)
                body += piece
            if self._left > 0 or len(self._rest) < 2:
                break
            self._rest, self._left = self._rest[2:], None
        return body


class SocketReply:
    """A reply whose head has arrived and whose body may still be arriving."""

    def __init__(self, connection: _socket.socket) -> None:
        self._socket = connection
        self._decoder = ReplyDecoder()
        self._first = b""
        try:
            while not self._decoder.status:
                self._first += self._receive()
        except BaseException:
            self.close()
            raise

    @property
    def status(self) -> int:
        """The HTTP status."""
        return self._decoder.status

    @property
    def headers(self) -> dict[str, str]:
        """The headers; names in lower case."""
        return self._decoder.headers

    def fileno(self) -> int:
        """The descriptor of the connection, for `select`."""
        return self._socket.fileno()

    @property
    def ready(self) -> bool:
        """Whether `chunk` would return without waiting for the daemon."""
        return bool(self._first) or self._decoder.done

    def chunk(self) -> bytes | None:
        """Return the next piece of the body, waiting for it if necessary; None at the end."""
        if self._first:
            data, self._first = self._first, b""
            return data
        return None if self._decoder.done else self._receive()

    def __iter__(self) -> Iterator[bytes]:
        """Yield the body in pieces as they arrive. The connection is closed after the last."""
        try:
            while (data := self.chunk()) is not None:
                if data:
                    yield data
        finally:
            self.close()

    def lines(self) -> Iterator[bytes]:
        """Yield the body line by line, without line ends."""
        rest = b""
        for data in self:
            *complete, rest = (rest + data).split(b"\n")
            yield from complete
        if rest:
            yield rest

    def read(self) -> bytes:
        """Return the whole body and close the connection."""
        return b"".join(self)

    def set_timeout(self, seconds: float | None) -> None:
        """Limit each further wait for the daemon; `TimeoutError` is raised when it expires."""
        self._socket.settimeout(seconds)

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()

    def check(self) -> SocketReply:
        """Return this reply, or raise the error that it carries."""
        if self.status >= 400:
            raise read_error(self.status, self.read())
        return self

    def _receive(self) -> bytes:
        try:
            data = self._socket.recv(_PIECE)
        except TimeoutError:
            raise
        except OSError:
            data = b""
        if not data:
            self._decoder.end()
            return b""
        return self._decoder.feed(data)


def connect(path: str) -> _socket.socket:
    """Return a connection to the socket. Raises `OSError` if no process listens on it."""
    connection = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
    try:
        connection.connect(path)
    except OSError:
        connection.close()
        raise
    return connection


def exchange(connection: _socket.socket, request: bytes) -> SocketReply:
    """Send a request and wait for the head of the reply."""
    try:
        connection.sendall(request)
    except BrokenPipeError:
        # The daemon may have replied and closed before it read all of a request that it refuses.
        pass
    except OSError as error:
        connection.close()
        message = f"the request could not be sent: {error}"
        raise LostReplyError(message) from error
    return SocketReply(connection)


def read_error(status: int, body: bytes) -> FairwayError:
    """Return the error that a reply carries; a body that is not a Fairway error is shown unchanged."""
    import json

    try:
        error = json.loads(body)["error"]
    except (ValueError, KeyError, TypeError):
        text = body.decode("utf-8", "replace").strip()
        return BugError(f"the daemon answered with status {status}: {text[:500]}")
    return from_wire(error)
