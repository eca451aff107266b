"""Who may ask over a port of loopback: programs of this machine and the router, but no page that a browser shows."""

from __future__ import annotations

import ipaddress

from fairway.serving.replica.problem import RequestError

_FORWARDED = frozenset({b"x-forwarded-for", b"x-forwarded-proto"})
"""Lines that routers add. No page can add one to a request to another site."""


class Door:
    """Checks requests that come directly over loopback.

    A name that leads here by DNS rebinding carries this port; a request that another site's page sends carries its origin. What
    the router passes on has the name and the port that its client used, and is checked there.
    """

    def __init__(self, port: int) -> None:
        self._port = b"%d" % port

    def check(self, headers: list[tuple[bytes, bytes]]) -> None:
        """403 for a request that a browser was tricked into."""
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
            message = f"the Host {host[:100].decode('latin-1')!r} is not this machine"
            raise RequestError(403, message, fix="use 127.0.0.1 or localhost, or the service's own address")
        other = origin and origin.partition(b"://")[2] != host
        if not forwarded and (other or site in (b"cross-site", b"same-site")):
            raise RequestError(403, "the request comes from the page of another site", fix="ask through the service's address")


def is_loopback(address: str) -> bool:
    """Whether only this machine reaches the address."""
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
