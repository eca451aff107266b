"""Strict validation of request headers: headers that pass can be written as HTTP/1.1 with the same meaning."""

from __future__ import annotations

import re
from dataclasses import dataclass

from fairway.serving.http2.hpack import Header, Headers
from fairway.serving.http2.http2_error import Http2ErrorCode, Http2StreamError, Http2UnsupportedError

_NAME = re.compile(rb"[!#$%&'*+\-.^_`|~0-9a-z]+")
_VALUE = re.compile(rb"(?:[\x21-\x7e\x80-\xff](?:[\t\x20-\x7e\x80-\xff]*[\x21-\x7e\x80-\xff])?)?")
_METHOD = re.compile(rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_PATH = re.compile(rb"/[\x21-\x7e\x80-\xff]*")
_AUTHORITY = re.compile(rb"[\x21-\x7e]*")
_PSEUDO = frozenset({b":method", b":scheme", b":path", b":authority"})
_ONCE = frozenset({b"host", b"te", b"content-length", b"content-type"})
NO_CONNECT = "CONNECT is not supported: this is not a proxy, and WebSockets require HTTP/1.1"
_CONNECTION = frozenset({b"connection", b"keep-alive", b"proxy-connection", b"transfer-encoding", b"upgrade"})


@dataclass(frozen=True, slots=True)
class RequestHeaders:
    """The validated headers of a request."""

    method: bytes
    path: bytes
    authority: bytes
    lines: tuple[Header, ...]
    """The other headers, without `host` and `te`; cookies are joined."""
    length: int | None
    """The value of `content-length`."""
    content_type: bytes

    @property
    def is_grpc(self) -> bool:
        """Whether the request is a gRPC call."""
        rest = self.content_type[16:17]
        return self.content_type.startswith(b"application/grpc") and rest in (b"", b"+", b";")


def read_request_headers(headers: Headers) -> RequestHeaders:
    """Validate the headers of a request.

    Raises `Http2StreamError` for headers that no request may have (RFC 9113, 8.2, 8.3), and `Http2UnsupportedError` for CONNECT.
    """
    if (b":method", b"CONNECT") in headers:
        # CONNECT has no path, and for another protocol (RFC 8441) one more header.
        raise Http2UnsupportedError(NO_CONNECT)
    pseudo: dict[bytes, bytes] = {}
    once: dict[bytes, bytes] = {}
    lines: list[Header] = []
    cookies: list[bytes] = []
    for name, value in headers:
        if name[:1] == b":":
            if name not in _PSEUDO or name in pseudo or lines or cookies or once:
                raise malformed(f"the header {name[:40]!r} is unknown, repeated or misplaced")
            pseudo[name] = value
            continue
        _check_line(name, value)
        if name in _ONCE:
            if name in once:
                raise malformed(f"more than one {name.decode()}")
            once[name] = value
        elif name == b"cookie":
            cookies.append(value)
        else:
            lines.append((name, value))
    if cookies:
        lines.append((b"cookie", b"; ".join(cookies)))
    return _request(pseudo, once, lines)


def _request(pseudo: dict[bytes, bytes], once: dict[bytes, bytes], lines: list[Header]) -> RequestHeaders:
    if once.get(b"te", b"trailers") != b"trailers":
        raise malformed("te is not trailers")
    length, host = once.get(b"content-length"), once.get(b"host")
    if length is not None and (not length.isdigit() or len(length) > 18):
        raise malformed("content-length is not a number")
    content_type = once.get(b"content-type", b"")
    if content_type:
        lines.insert(0, (b"content-type", content_type))
    method, path, authority = pseudo.get(b":method", b""), pseudo.get(b":path", b""), pseudo.get(b":authority")
    if not _METHOD.fullmatch(method):
        raise malformed(":method is missing or invalid")
    if b":scheme" not in pseudo or not (_PATH.fullmatch(path) or (path == b"*" and method == b"OPTIONS")):
        raise malformed(":scheme is missing, or :path is missing or invalid")
    if authority is not None and host is not None and authority.lower() != host.lower():
        raise malformed(":authority and host differ")
    name = authority if authority is not None else host or b""
    if not _AUTHORITY.fullmatch(name):
        raise malformed(":authority is not a valid host name")
    return RequestHeaders(method, path, name, tuple(lines), None if length is None else int(length), content_type)


def read_answer_headers(headers: Headers) -> tuple[int, list[Header]]:
    """Validate the headers of an answer; return its status and its other headers."""
    if not headers or headers[0][0] != b":status" or not headers[0][1].isdigit() or len(headers[0][1]) != 3:
        raise malformed("an answer without a valid :status")
    for name, value in headers[1:]:
        _check_line(name, value)
    return int(headers[0][1]), list(headers[1:])


def read_trailers(headers: Headers) -> list[Header]:
    """Validate trailers, which must not contain pseudo-headers."""
    for name, value in headers:
        _check_line(name, value)
    return list(headers)


def _check_line(name: bytes, value: bytes) -> None:
    if not _NAME.fullmatch(name) or name in _CONNECTION or not _VALUE.fullmatch(value):
        raise malformed(f"the header {name[:40]!r} is not allowed, or its value is invalid")


def malformed(reason: str) -> Http2StreamError:
    """Return the error for a malformed HTTP/2 message."""
    return Http2StreamError(Http2ErrorCode.PROTOCOL_ERROR, reason)
