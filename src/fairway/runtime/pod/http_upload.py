"""Upload data to the operator while it is read. Standard library only, Python 3.9 and newer."""

from __future__ import annotations

import http.client
import ssl
import urllib.parse
from collections.abc import Iterable

from fairway.runtime.pod import archive, fetch, operator_tls


def put(url: str, token: str, body: Iterable[bytes], length: int, media_type: str, silence: float = fetch.SILENCE) -> None:
    """Send `length` bytes. Raises `fetch.RefusedError` if the operator rejects them, `OSError` if a retry may succeed."""
    parts = urllib.parse.urlsplit(url)
    connection = operator_tls.connection(parts, silence)
    headers = {"Authorization": "Bearer " + token, "Content-Type": media_type, "Content-Length": str(length)}
    try:
        try:
            connection.request("PUT", parts.path + ("?" + parts.query if parts.query else ""), body, headers)
        except (BrokenPipeError, ssl.SSLEOFError):
            pass  # A server may reject the request before it has read the body: its response is available.
        answer = connection.getresponse()
        detail = answer.read(2000).decode(errors="replace").strip()
    except (http.client.HTTPException, archive.BadArchiveError) as error:
        raise OSError(f"{type(error).__name__}: {error}") from error
    finally:
        connection.close()
    if answer.status >= 300:
        raise fetch.refused(answer.status, detail or answer.reason, parts.path)
