"""A refused request: the status, the reason, and the response in the form of the requested protocol."""

from __future__ import annotations

import json
from dataclasses import dataclass
from http import HTTPStatus

_KINDS = {
    400: ("invalid_request_error", "invalid_api_key"),
    401: ("authentication_error", "invalid_api_key"),
    403: ("permission_error", "permission_denied"),
    429: ("rate_limit_error", "rate_limit_exceeded"),
}
_USUAL = ("invalid_request_error", "refused")


@dataclass(frozen=True, slots=True)
class RequestRefusal:
    """A response of the router in place of a replica's."""

    status: int
    reason: str
    """The reason, for the client; it contains no secret. Empty: the response has no body (a preflight)."""
    headers: tuple[tuple[bytes, bytes], ...] = ()
    """Names in lower case, with values. Protocols other than HTTP/1.1 send them unchanged."""
    close: bool = False
    """Whether the connection is closed after the response."""

    def body(self, target: bytes) -> bytes:
        """Return the body, in the form of the protocol to which the path belongs."""
        if not self.reason:
            return b""
        if is_openai(target):
            kind, code = _KINDS.get(self.status, _USUAL)
            error: object = {"message": self.reason, "type": kind, "param": None, "code": code}
        else:
            error = self.reason
        return json.dumps({"error": error}).encode() + b"\n"

    def render(self, target: bytes, *, keep: bool, bodiless: bool) -> bytes:
        """Return the whole response as HTTP/1.1. `keep`: the connection stays open; `bodiless`: it answers a HEAD."""
        body = self.body(target)
        lines = [b"HTTP/1.1 %d %b" % (self.status, HTTPStatus(self.status).phrase.encode())]
        if body:
            lines.append(b"content-type: application/json")
        if self.status != HTTPStatus.NO_CONTENT:
            lines.append(b"content-length: %d" % len(body))
        lines += [b"%b: %b" % header for header in self.headers]
        if self.status == HTTPStatus.UPGRADE_REQUIRED:
            # HTTP/1.1 requires it; HTTP/2 forbids such headers of one connection.
            lines.append(b"upgrade: TLS/1.2, HTTP/1.1")
        if not keep:
            lines.append(b"connection: close")
        return b"\r\n".join((*lines, b"", b"" if bodiless else body))


def is_openai(target: bytes) -> bool:
    """Return whether a path belongs to OpenAI's protocol. TensorFlow Serving has `/v1/models/NAME`."""
    path = target.partition(b"?")[0]
    return (path.startswith(b"/v1/") and not path.startswith(b"/v1/models/")) or path.startswith(b"/openai/")
