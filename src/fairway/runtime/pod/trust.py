"""How a pod verifies the operator: by a certificate of the authority in `FAIRWAY_OPERATOR_CA` (PEM).

Standard library only, Python 3.9 and newer. An `http` address is asked without TLS: pods of an earlier version have such.
"""

from __future__ import annotations

import http.client
import os
import ssl
import urllib.parse
import urllib.request

AUTHORITY = "FAIRWAY_OPERATOR_CA"


def context(authority: str = "") -> ssl.SSLContext:
    """How a connection to the operator is made; without an authority of its own, by those of the image."""
    authority = authority or os.environ.get(AUTHORITY, "")
    return ssl.create_default_context(cadata=authority) if authority else ssl.create_default_context()


def urlopen(request: urllib.request.Request, timeout: float, authority: str = "") -> http.client.HTTPResponse:
    """The operator's answer; `authority` (PEM) goes before the variable. No proxy is asked: the token is for it alone."""
    handlers: list[urllib.request.BaseHandler] = [urllib.request.ProxyHandler({})]
    if request.type == "https":
        handlers.append(urllib.request.HTTPSHandler(context=context(authority)))
    found: http.client.HTTPResponse = urllib.request.build_opener(*handlers).open(request, timeout=timeout)
    return found


def connection(where: urllib.parse.SplitResult, timeout: float) -> http.client.HTTPConnection:
    """A connection to the operator."""
    host = where.hostname or ""
    if where.scheme == "https":
        return http.client.HTTPSConnection(host, where.port or 443, timeout=timeout, context=context())
    return http.client.HTTPConnection(host, where.port or 80, timeout=timeout)
