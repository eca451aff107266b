"""Access check for loopback ports: accepts local programs and the router, and rejects requests made by web pages in a browser."""

from __future__ import annotations

import ipaddress

from fairway.serving.replica.request_error import RequestError

_FORWARDED = frozenset({b"x-forwarded-for", b"x-forwarded-proto"})
"""Headers that routers add. A web page cannot add them to a cross-site request."""


class OriginCheck:
    """Checks requests that arrive directly over loopback.

    A hostname that resolves to this address by DNS rebinding carries this port, and a cross-site request carries its origin.
    Requests forwarded by the router have the hostname and port that its client used, and the router checks those.
    """

    def __init__(self, port: int) -> None:
        self._port = b"%d" % port

    def check(self, headers: list[tuple[bytes, bytes]]) -> None:
        """Raise 403 for a request forged through a browser."""
        host, origin, site, forwarded = b"", b"", b"", False
        for name, value in headers:
            if name == b"host":
                host = value
            elif name == b"origin":
                origin = value
            elif name == b"sec-fetch-site":
                site = value
            elif name in _FORWARDED:
                forwarded = True
        name, port = _parts(host)
        if host and not _is_loopback(name) and (not forwarded or port == self._port):
            message = f"the Host {host[:100].decode('latin-1')!r} is not a name of this machine"
            raise RequestError(403, message, fix="use 127.0.0.1 or localhost, or the service's own address")
        is_cross_origin = origin and origin.partition(b"://")[2] != host
        if not forwarded and (is_cross_origin or site in (b"cross-site", b"same-site")):
            raise RequestError(403, "the request comes from a page of another site", fix="send it to the service's address")


def is_loopback(address: str) -> bool:
    """Whether the address is reachable only from this machine."""
    return _is_loopback(address.encode())


def _parts(host: bytes) -> tuple[bytes, bytes]:
    if host.startswith(b"["):
        name, _, port = host[1:].partition(b"]")
        return name, port.lstrip(b":")
    name, _, port = host.partition(b":")
    return name, port


def _is_loopback(name: bytes) -> bool:
    if name.lower().rstrip(b".") == b"localhost" or name == b"127.0.0.1":
        return True
    try:
        return ipaddress.ip_address(name.decode("latin-1")).is_loopback
    except ValueError:
        return False
