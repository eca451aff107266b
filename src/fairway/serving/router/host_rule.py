"""Which requests a web page may not send to an endpoint on this machine.

A page of any site can make its visitor's browser send requests to 127.0.0.1. Two attacks are blocked here. With DNS rebinding,
the page lets a host name of its own resolve to 127.0.0.1: the Host header gives it away. A form, or another request that a
browser sends without a preflight, is recognised by the headers in which browsers report its origin. Clients that are not
browsers send no such headers.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Collection

from fairway.serving.router.message_head import BadHeadError, RequestHead

ANY = "*"
"""In place of a host name: every name is allowed."""
LOOPBACK = frozenset({b"localhost", b"127.0.0.1", b"[::1]", b"::1"})

_LITERAL = re.compile(rb"127(?:\.[0-9]{1,3}){3}")
_HOST = re.compile(rb"(\[[0-9a-f:.]+\]|[^:\[\]]*)(?::[0-9]*)?")
_ORIGIN = re.compile(rb"[a-z][a-z0-9+.-]*://([^/]+)")
_SAFE = frozenset({b"GET", b"HEAD", b"OPTIONS"})
_SIMPLE = frozenset({b"", b"application/x-www-form-urlencoded", b"multipart/form-data", b"text/plain"})
"""Content types that a page may send to another site without a preflight."""
_KNOWN = 64


def is_loopback(host: str) -> bool:
    """Return whether the host is a loopback address, which only this machine can reach."""
    return host.encode() in LOOPBACK or _LITERAL.fullmatch(host.encode()) is not None


def check_page(head: RequestHead) -> None:
    """Raise `BadHeadError` (403) when a page of another site requests a WebSocket.

    A page may open a WebSocket to any site and read its messages; the browser sends the page's origin along. Where no host
    names are configured, a page belongs to this site if its origin has the host that the request names.
    """
    origin = head.value_of(b"origin")
    if origin is None:
        return
    match = _ORIGIN.fullmatch(origin.lower())
    hosts = (head.host.lower(), head.forwarded.get(b"x-forwarded-host", head.host).lower())
    if match is None or match[1] not in hosts:
        shown = origin[:100].decode("latin-1")
        raise BadHeadError(
            403, f"a page of another site ({shown}) requests a WebSocket: add its origin to the endpoint's cors.origins"
        )


def _usual(name: str) -> str:
    """Return a name unchanged; an IPv6 address in its shortest form, in brackets as in a Host header."""
    try:
        return f"[{ipaddress.IPv6Address(name.removeprefix('[').removesuffix(']'))}]"
    except ValueError:
        return name


class HostRules:
    """The host names allowed for an endpoint on a loopback address."""

    __slots__ = ("_known", "_names")

    def __init__(self, names: Collection[str]) -> None:
        self._names = LOOPBACK | {_usual(name.lower()).encode() for name in names}
        self._known: set[bytes] = set()
        """Host values that were already accepted: most requests carry the same one."""

    def check(self, head: RequestHead, raw: bytes | None, *, trusted: bool = False) -> None:
        """Raise `BadHeadError` (403) for a request that a page of another site may have sent.

        `raw` is the head as received, where there is one; `trusted` means that pages of its origin may send any request.
        """
        if head.host not in self._known:
            self._check_host(head.host)
        if head.method not in _SAFE and not trusted:
            lower = raw.lower() if raw is not None else b"\r\norigin:"
            if b"\r\norigin:" in lower or b"\r\nsec-fetch-site:" in lower:
                self._check_origin(head)

    def _check_host(self, host: bytes) -> None:
        # An HTTP/1.0 request may have no Host; browsers always send one.
        if host and not self._is_ours(host):
            shown = host[:100].decode("latin-1")
            raise BadHeadError(
                403,
                f"the Host {shown!r} is no name of this endpoint: use localhost or 127.0.0.1, "
                f"or start the daemon with FAIRWAY_HOSTS={shown.partition(':')[0]}",
            )
        if len(self._known) < _KNOWN:
            self._known.add(host)

    def check_page(self, head: RequestHead) -> None:
        """Raise `BadHeadError` (403) when a page of another site requests a WebSocket: browsers send no preflight for these."""
        origin = head.value_of(b"origin")
        if origin is not None and not self._is_ours_origin(origin):
            check_page(head)

    def _check_origin(self, head: RequestHead) -> None:
        kind = (head.value_of(b"content-type") or b"").partition(b";")[0].strip(b" \t").lower()
        if kind not in _SIMPLE:
            return
        origin = head.value_of(b"origin")
        if head.value_of(b"sec-fetch-site") == b"cross-site" or (origin is not None and not self._is_ours_origin(origin)):
            raise BadHeadError(
                403,
                f"a page of another site ({(origin or b'unknown')[:100].decode('latin-1')}) sent this: "
                "send content-type application/json, or start the daemon with FAIRWAY_HOSTS=NAME-OF-THE-SITE",
            )

    def _is_ours_origin(self, origin: bytes) -> bool:
        match = _ORIGIN.fullmatch(origin.lower())
        return match is not None and self._is_ours(match[1])

    def _is_ours(self, host: bytes) -> bool:
        match = _HOST.fullmatch(host.lower())
        if match is None:
            return False
        name = match[1].removesuffix(b".")
        if name.startswith(b"["):
            name = _usual(name.decode()).encode()
        return name in self._names or _LITERAL.fullmatch(name) is not None
