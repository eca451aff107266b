"""The heads of HTTP/1.1 messages, parsed strictly.

One regular expression defines a valid head and everything else is refused, so that router and backend can never disagree about
where a message ends. Headers that concern only one connection (hop by hop) are not passed on.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from http import HTTPStatus

from fairway.serving.http2.request_header import NO_CONNECT

HEAD_LIMIT = 32 * 1024
"""Limit on the bytes of a head; longer ones are answered 431."""
LINE_LIMIT = 8 * 1024
"""Limit on the bytes of a request's target; longer ones are answered 414."""
COUNT_LIMIT = 128
"""Limit on the lines of a head; more are answered 431."""

CHUNKED = -1
"""In place of a length: the body is chunked."""
UNTIL_CLOSE = -2
"""In place of a length: the body ends with the connection (responses only)."""

_TOKEN = rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]++"
_LINES = rb"((?:" + _TOKEN + rb":[\t\x20-\x7e\x80-\xff]*+\r\n)*+)\r\n"
_REQUEST = re.compile(rb"(" + _TOKEN + rb") ([\x21-\x7e\x80-\xff]++) HTTP/1\.([01])\r\n" + _LINES)
_ANSWER = re.compile(rb"HTTP/1\.([01]) ([1-9][0-9][0-9])((?: [\t\x20-\x7e\x80-\xff]*+)?)\r\n" + _LINES)
_BARE = re.compile(rb"(?<!\r)\n|\r(?!\n|\Z)")
_VERSION = re.compile(rb"[^\r\n]* HTTP/(?!1\.[01]\r)[0-9.]+\r\n")
_FOLDED = re.compile(rb"\r\n[ \t]")
_LENGTH = re.compile(rb"[0-9]{1,18}")
_ABSOLUTE = re.compile(rb"(?i:http)://([^/?#\s]+)([^#\s]*)")
_PLAIN_ID = re.compile(rb"[A-Za-z0-9._:/+=@-]{1,200}")

_HOP = frozenset({b"keep-alive", b"proxy-connection", b"te", b"trailer", b"http2-settings", b"proxy-authorization"})
_OF_REQUEST = _HOP | {
    b"host", b"connection", b"transfer-encoding", b"content-length", b"upgrade", b"expect",
    b"x-forwarded-for", b"x-forwarded-proto", b"x-forwarded-host", b"x-request-id",
}  # fmt: skip
_OF_ANSWER = _HOP | {
    b"connection", b"transfer-encoding", b"content-length", b"upgrade", b"proxy-authenticate", b"fairway-revision",
    b"x-request-id", b"retry-after", b"fairway-draining",
}  # fmt: skip
_ONCE = frozenset({b"host", b"content-length"})
_SLASH = ord("/")
_IDEMPOTENT = frozenset({b"GET", b"HEAD", b"OPTIONS", b"PUT", b"DELETE", b"TRACE"})

_PHRASES = {status.value: status.phrase.encode() for status in HTTPStatus}
_RENDERED = (
    b"%b %b HTTP/1.1\r\nhost: %b\r\n%b%b"
    b"x-forwarded-for: %b\r\nx-forwarded-proto: %b\r\nx-forwarded-host: %b\r\nx-request-id: %b\r\n\r\n"
)


class BadHeadError(Exception):
    """A head, or the framing of a body, that is refused: the status to answer, and why."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status
        self.reason = reason


@dataclass(slots=True)
class RequestHead:
    """The head of a request, without the headers that end at this router."""

    method: bytes
    target: bytes
    host: bytes
    lines: list[bytes]
    """Name and value as received, without the line end."""
    length: int = 0
    """Bytes of the body, or `CHUNKED`."""
    keep_alive: bool = True
    plain: bool = False
    """HTTP/1.0: the client understands neither chunks nor `100 Continue`."""
    expects: bool = False
    """Whether the client waits for `100 Continue` before it sends the body."""
    upgrades: bool = False
    """Whether `upgrade` names WebSocket..."""
    connection_upgrades: bool = False
    """...and whether `connection` names `upgrade`: only both together request one."""
    forwarded: dict[bytes, bytes] = field(default_factory=dict)
    """The `x-forwarded-*` headers and the request id as received."""

    @property
    def wants_tunnel(self) -> bool:
        """Whether this is a valid request for a WebSocket."""
        return self.upgrades and self.connection_upgrades and self.method == b"GET" and not self.plain

    @property
    def is_idempotent(self) -> bool:
        """Whether repeating the request has no further effect."""
        return self.method in _IDEMPOTENT

    def value_of(self, name: bytes) -> bytes | None:
        """Return the first value of a header; `name` is in lower case."""
        if name == b"host":
            return self.host
        for line in self.lines:
            key, _, value = line.partition(b":")
            if key.lower() == name:
                return value.strip(b" \t")
        return self.forwarded.get(name)

    def render(self, peer: bytes, request_id: bytes) -> bytes:
        """Return the head for a backend."""
        forwarded = self.forwarded
        via = forwarded.get(b"x-forwarded-for")
        frame = b""
        if self.length == CHUNKED:
            frame = b"transfer-encoding: chunked\r\n"
        elif self.length or self.method in (b"POST", b"PUT", b"PATCH"):
            frame = b"content-length: %d\r\n" % self.length
        return _RENDERED % (
            self.method,
            self.target,
            self.host,
            b"\r\n".join([*self.lines, b""]),
            frame,
            via + b", " + peer if via else peer,
            forwarded.get(b"x-forwarded-proto", b"http"),
            forwarded.get(b"x-forwarded-host", self.host),
            request_id,
        )


@dataclass(slots=True)
class ResponseHead:
    """The head of a backend's response, without the headers that end at this router."""

    status: int
    reason: bytes
    lines: list[bytes]
    length: int
    """Bytes of the body, `CHUNKED` or `UNTIL_CLOSE`, as declared by the head; some responses have no body all the same."""
    bodiless: bool = False
    """Whether there is no body, whatever the length: the response answers a HEAD, or its status has none."""
    keep_alive: bool = True
    not_begun: bool = False
    """Whether the backend reports that it did not begin the request: 503 while it drains, or with `Retry-After`."""
    trailers: list[bytes] = field(default_factory=list)
    """The trailers, once the whole body has arrived (HTTP/2 only)."""

    def value_of(self, name: bytes) -> bytes | None:
        """Return the value of a header or a trailer; `name` is in lower case."""
        for line in [*self.trailers, *self.lines]:
            key, _, value = line.partition(b":")
            if key.lower() == name:
                return value.strip(b" \t")
        return None

    def drop_lines(self, names: frozenset[bytes]) -> None:
        """Remove the headers with these names, given in lower case."""
        if names:
            self.lines = [line for line in self.lines if line.partition(b":")[0].lower() not in names]

    def render(self, revision: int, request_id: bytes, frame: bytes) -> bytes:
        """Return the head for the client; `frame` holds the header lines for the end of the body and the connection."""
        return b"HTTP/1.1 %d%b\r\n%bfairway-revision: %d\r\nx-request-id: %b\r\n%b\r\n" % (
            self.status,
            self.reason,
            b"\r\n".join([*self.lines, b""]) if self.lines else b"",
            revision,
            request_id,
            frame,
        )


def read_request(raw: bytes) -> RequestHead:
    """Parse a whole head, up to its empty line; raise `BadHeadError` if it is malformed."""
    match = _REQUEST.fullmatch(raw)
    if match is None:
        raise diagnose(raw)
    method, target, minor, block = match.groups()
    if method == b"CONNECT":
        raise BadHeadError(501, NO_CONNECT)
    if len(target) > LINE_LIMIT:
        raise BadHeadError(414, f"the target has {len(target)} bytes, at most {LINE_LIMIT} are read")
    lines, special = _sort(block, _OF_REQUEST, _ONCE)
    host = special.pop(b"host", None)
    if host is None and minor == b"1":
        raise BadHeadError(400, "the request has no Host line")
    head = RequestHead(method, target, host or b"", lines, plain=minor == b"0", keep_alive=minor == b"1")
    length = special.pop(b"content-length", None)
    if length is not None:
        if not _LENGTH.fullmatch(length):
            raise BadHeadError(400, f"Content-Length {length[:40]!r} is not a number of bytes")
        head.length = int(length)
    if special:
        _frame(special, head, measured=length is not None)
    if target[0] != _SLASH:
        _aim(head)
    if head.upgrades and (head.length or not head.wants_tunnel):
        raise BadHeadError(501, "a WebSocket request must be a GET without a body and with `Connection: Upgrade`")
    return head


def diagnose(raw: bytes) -> BadHeadError:
    """Return the error for a malformed head, as specific as possible."""
    if len(raw) > HEAD_LIMIT:
        return BadHeadError(431, f"the head is longer than {HEAD_LIMIT} bytes")
    if _BARE.search(raw):
        return BadHeadError(400, "the head has a line that does not end with CR and LF, or a CR inside of a line")
    if _VERSION.match(raw):
        return BadHeadError(505, "only HTTP/1.0 and HTTP/1.1 are supported")
    if _FOLDED.search(raw):
        return BadHeadError(400, "the head has a line that begins with a blank (a folded header)")
    return BadHeadError(400, "the head is not valid HTTP: a request line, then lines of NAME:VALUE, then an empty line")


def is_hopeless(raw: bytes) -> bool:
    """Return whether an incomplete head can be refused already."""
    # Counting is much faster than searching, and this runs for every piece of a head that arrives slowly.
    lines = raw.count(b"\r\n")
    returns = raw.count(b"\r") - raw.endswith(b"\r")
    return len(raw) > HEAD_LIMIT or raw.count(b"\n") != lines or returns != lines


def request_id_of(head: RequestHead) -> bytes | None:
    """Return the id that the client sent if it can be passed on and logged; None otherwise."""
    request_id = head.forwarded.get(b"x-request-id")
    return request_id if request_id and _PLAIN_ID.fullmatch(request_id) else None


def read_answer(raw: bytes, *, bodiless: bool = False) -> ResponseHead:
    """Parse the whole head of a response; raise `BadHeadError` (502) if it is malformed. `bodiless`: it answers a HEAD."""
    match = _ANSWER.fullmatch(raw)
    if match is None:
        raise BadHeadError(502, "the backend's answer is not valid HTTP")
    minor, code, reason, block = match.groups()
    status = int(code)
    lines, special = _sort(block, _OF_ANSWER)
    head = ResponseHead(status, reason, lines, UNTIL_CLOSE, keep_alive=minor == b"1")
    head.bodiless = bodiless or status in (204, 304) or status < 200
    length = special.pop(b"content-length", None)
    if length is not None:
        head.length = _length_of_answer(length)
    if special:
        _frame_answer(special, head, measured=length is not None)
    return head


def _length_of_answer(value: bytes) -> int:
    """Return a content length, which may be given several times."""
    lengths = {part.strip(b" \t") for part in value.split(b",")} if b"," in value else {value}
    if len(lengths) > 1 or not _LENGTH.fullmatch(next(iter(lengths))):
        raise BadHeadError(502, "the backend's answer has more than one length, or one that is not a number")
    return int(lengths.pop())


def _frame_answer(special: dict[bytes, bytes], head: ResponseHead, *, measured: bool) -> None:
    for name, value in special.items():
        if name == b"transfer-encoding":
            if measured or value.lower() != b"chunked":
                raise BadHeadError(502, "the backend's answer does not say clearly where it ends")
            head.length = CHUNKED
        elif name == b"connection":
            words = _words(value)
            head.keep_alive = b"close" not in words and (head.keep_alive or b"keep-alive" in words)
            head.lines = _without(head.lines, words - _OF_ANSWER)
        elif name == b"retry-after":
            head.lines.append(b"retry-after: " + value)
            head.not_begun = head.not_begun or head.status == 503
        elif name == b"fairway-draining":
            head.not_begun = head.not_begun or head.status == 503


def _sort(
    block: bytes, of_interest: frozenset[bytes], once: frozenset[bytes] = frozenset()
) -> tuple[list[bytes], dict[bytes, bytes]]:
    """Split the lines into those passed on unchanged and those interpreted here; values of equal names are joined."""
    lines = block.split(b"\r\n")
    lines.pop()
    if len(lines) > COUNT_LIMIT:
        raise BadHeadError(431, f"the head has {len(lines)} lines, at most {COUNT_LIMIT} are read")
    kept: list[bytes] = []
    special: dict[bytes, bytes] = {}
    for line in lines:
        name, _, value = line.partition(b":")
        name = name.lower()
        if name not in of_interest:
            kept.append(line)
        elif name not in special:
            special[name] = value.strip(b" \t")
        elif name in once:
            raise BadHeadError(400, f"the request has more than one {name.decode()} line")
        else:
            special[name] += b", " + value.strip(b" \t")
    return kept, special


def _frame(special: dict[bytes, bytes], head: RequestHead, *, measured: bool) -> None:
    """Interpret the less common headers about the body and the connection."""
    for name, value in special.items():
        if name == b"connection":
            _connect(head, value)
        elif name == b"transfer-encoding":
            _chunked(head, value, measured=measured)
        elif name == b"upgrade":
            _upgrade(head, value)
        elif name == b"expect":
            _expect(head, value)
        elif name.startswith(b"x-"):
            head.forwarded[name] = value


def _connect(head: RequestHead, value: bytes) -> None:
    if value == b"keep-alive":
        head.keep_alive = True
        return
    words = _words(value)
    head.keep_alive = b"close" not in words and (head.keep_alive or b"keep-alive" in words)
    head.connection_upgrades = b"upgrade" in words
    head.lines = _without(head.lines, words - _OF_REQUEST)


def _chunked(head: RequestHead, value: bytes, *, measured: bool) -> None:
    if measured:
        raise BadHeadError(400, "the request has both Content-Length and Transfer-Encoding")
    if head.plain:
        raise BadHeadError(400, "Transfer-Encoding in an HTTP/1.0 request")
    if value.lower() != b"chunked":
        raise BadHeadError(501, f"Transfer-Encoding {value[:40]!r} is not supported; only chunked is")
    head.length = CHUNKED


def _expect(head: RequestHead, value: bytes) -> None:
    if value.lower() != b"100-continue":
        raise BadHeadError(417, f"Expect {value[:40]!r} is not supported; only 100-continue is")
    head.expects = not head.plain


def _upgrade(head: RequestHead, value: bytes) -> None:
    # `h2c` is an offer that may be ignored, and curl makes it; any other upgrade than WebSocket is refused.
    if value.lower() == b"websocket":
        head.upgrades = True
    elif value.lower() != b"h2c":
        raise BadHeadError(501, f"Upgrade to {value[:40]!r} is not supported")


def _aim(head: RequestHead) -> None:
    """Normalise a target that is not a path."""
    if head.target == b"*" and head.method == b"OPTIONS":
        return
    match = _ABSOLUTE.fullmatch(head.target)
    if match is None:
        raise BadHeadError(400, f"the target {head.target[:40]!r} is not a path")
    head.host, path = match.groups()
    head.target = path if path.startswith(b"/") else b"/" + path


def _words(value: bytes) -> set[bytes]:
    return {word.strip(b" \t") for word in value.lower().split(b",")}


def _without(lines: list[bytes], names: set[bytes]) -> list[bytes]:
    if not names - {b"close", b"keep-alive"}:
        return lines
    return [line for line in lines if line.partition(b":")[0].lower() not in names]


def request_of(
    method: bytes, target: bytes, host: bytes, headers: Iterable[tuple[bytes, bytes]], length: int, more: list[bytes]
) -> RequestHead:
    """Return a request head that did not arrive as HTTP/1.1 lines. Names are in lower case; `more` holds lines to add."""
    lines: list[bytes] = []
    forwarded: dict[bytes, bytes] = {}
    for name, value in headers:
        if name not in _OF_REQUEST:
            lines.append(name + b": " + value)
        elif name.startswith(b"x-"):
            forwarded[name] = forwarded[name] + b", " + value if name in forwarded else value
    return RequestHead(method, target, host, lines + more, length, forwarded=forwarded)


def answer_of(status: int, headers: Iterable[tuple[bytes, bytes]], *, bodiless: bool) -> ResponseHead:
    """Return a response head that did not arrive as HTTP/1.1 lines."""
    special: dict[bytes, bytes] = {}
    head = ResponseHead(status, b" " + _PHRASES.get(status, b""), [], CHUNKED, bodiless=bodiless or status in (204, 304))
    for name, value in headers:
        if name not in _OF_ANSWER:
            head.lines.append(name + b": " + value)
        elif name == b"content-length":
            head.length = _length_of_answer(value)
        elif name in (b"retry-after", b"fairway-draining"):
            special[name] = value
    _frame_answer(special, head, measured=True)
    return head
