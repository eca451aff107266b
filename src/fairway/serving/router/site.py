"""Which requests a web page may not send to an endpoint of this machine.

A page of any site can have its visitor's browser send requests to 127.0.0.1. Two ways are closed here. A name of the page's own
that it lets mean 127.0.0.1 (DNS rebinding) is recognised by its Host line. A form, or a request that a browser sends without
asking first (no preflight), is recognised by what browsers say of its origin. Programs that are no browsers say neither.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Collection

from fairway.serving.router.head import BadHeadError, RequestHead

ANY = "*"
"""In place of a name: every name is right."""
LOOPBACK = frozenset({b"localhost", b"127.0.0.1", b"[::1]", b"::1"})

_LITERAL = re.compile(rb"127(?:\.[0-9]{1,3}){3}")
_HOST = re.compile(rb"(\[[0-9a-f:.]+\]|[^:\[\]]*)(?::[0-9]*)?")
_ORIGIN = re.compile(rb"[a-z][a-z0-9+.-]*://([^/]+)")
_SAFE = frozenset({b"GET", b"HEAD", b"OPTIONS"})
_SIMPLE = frozenset({b"", b"application/x-www-form-urlencoded", b"multipart/form-data", b"text/plain"})
"""Types of content that a page may send to another site without a preflight."""
_KNOWN = 64


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach what listens there."""
    return host.encode() in LOOPBACK or _LITERAL.fullmatch(host.encode()) is not None


def check_page(head: RequestHead) -> None:
    """Raise `BadHeadError` (403) when a page that did not come from here asks for a WebSocket.

    A page may open a WebSocket to any site and read what comes, and its browser sends along who the page is. Where no names are
    given, a page came from here when it has the name that is asked.
    """
    origin = head.value_of(b"origin")
    if origin is None:
        return
    match = _ORIGIN.fullmatch(origin.lower())
    asked = (head.host.lower(), head.forwarded.get(b"x-forwarded-host", head.host).lower())
    if match is None or match[1] not in asked:
        shown = origin[:100].decode("latin-1")
        raise BadHeadError(
            403, f"a page of another site ({shown}) asks for a WebSocket: name its origin in the endpoint's cors.origins"
        )


def _usual(name: str) -> str:
    """A name as it is; an address of IPv6 in its shortest form, in brackets as in a Host line."""
    try:
        return f"[{ipaddress.IPv6Address(name.removeprefix('[').removesuffix(']'))}]"
    except ValueError:
        return name


class Site:
    """The names by which an endpoint on a loopback address may be asked."""

    __slots__ = ("_known", "_names")

    def __init__(self, names: Collection[str]) -> None:
        self._names = LOOPBACK | {_usual(name.lower()).encode() for name in names}
        self._known: set[bytes] = set()
        """Host lines that were found right: most requests have the same one."""

    def check(self, head: RequestHead, raw: bytes | None, *, trusted: bool = False) -> None:
        """Raise `BadHeadError` (403) for a request that a page of another site may have sent.

        `raw`: the head as it came, where there is one; `trusted`: pages of its origin may send what they like.
        """
        if head.host not in self._known:
            self._check_host(head.host)
        if head.method not in _SAFE and not trusted:
            lower = raw.lower() if raw is not None else b"\r\norigin:"
            if b"\r\norigin:" in lower or b"\r\nsec-fetch-site:" in lower:
                self._check_origin(head)

    def _check_host(self, host: bytes) -> None:
        # A request of HTTP/1.0 may have none; browsers always send one.
        if host and not self._is_ours(host):
            shown = host[:100].decode("latin-1")
            raise BadHeadError(
                403,
                f"the Host {shown!r} is no name of this endpoint: ask localhost or 127.0.0.1, "
                f"or start the daemon with FAIRWAY_HOSTS={shown.partition(':')[0]}",
            )
        if len(self._known) < _KNOWN:
            self._known.add(host)

    def check_page(self, head: RequestHead) -> None:
        """Raise `BadHeadError` (403) when the page of another site asks for a WebSocket: browsers ask no permission for these."""
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
