"""Verification of the operator by pods, with a certificate of the authority in `FAIRWAY_OPERATOR_CA` (PEM).

An `http` endpoint is used without TLS: pods of an earlier version have such endpoints. Standard library only, Python 3.9 and
newer.
"""

from __future__ import annotations

import http.client
import os
import ssl
import urllib.parse
import urllib.request

AUTHORITY = "FAIRWAY_OPERATOR_CA"


def context(authority: str = "") -> ssl.SSLContext:
    """Return the TLS context for the operator; without an authority, those of the image are trusted."""
    authority = authority or os.environ.get(AUTHORITY, "")
    return ssl.create_default_context(cadata=authority) if authority else ssl.create_default_context()


def urlopen(request: urllib.request.Request, timeout: float, authority: str = "") -> http.client.HTTPResponse:
    """Send a request to the operator; `authority` (PEM) takes precedence over the variable.

    No proxy is used: the token is only for the operator.
    """
    handlers: list[urllib.request.BaseHandler] = [urllib.request.ProxyHandler({})]
    if request.type == "https":
        handlers.append(urllib.request.HTTPSHandler(context=context(authority)))
    response: http.client.HTTPResponse = urllib.request.build_opener(*handlers).open(request, timeout=timeout)
    return response


def connection(where: urllib.parse.SplitResult, timeout: float) -> http.client.HTTPConnection:
    """Return a connection to the operator."""
    host = where.hostname or ""
    if where.scheme == "https":
        return http.client.HTTPSConnection(host, where.port or 443, timeout=timeout, context=context())
    return http.client.HTTPConnection(host, where.port or 80, timeout=timeout)
