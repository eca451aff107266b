"""Sending something to the operator, as it is read. Standard library only, Python 3.9 and newer."""

from __future__ import annotations

import http.client
import ssl
import urllib.parse
from collections.abc import Iterable

from fairway.runtime.pod import archive, fetch, trust


def put(url: str, token: str, body: Iterable[bytes], length: int, media_type: str, silence: float = fetch.SILENCE) -> None:
    """Send so many bytes. Raises `fetch.RefusedError` when they are not wanted, `OSError` when they may be later."""
    where = urllib.parse.urlsplit(url)
    connection = trust.connection(where, silence)
    headers = {"Authorization": "Bearer " + token, "Content-Type": media_type, "Content-Length": str(length)}
    try:
        try:
            connection.request("PUT", where.path + ("?" + where.query if where.query else ""), body, headers)
        except (BrokenPipeError, ssl.SSLEOFError):
            pass  # Whoever refuses need not listen to the end: the answer is there.
        answer = connection.getresponse()
        words = answer.read(2000).decode(errors="replace").strip()
    except (http.client.HTTPException, archive.BadArchiveError) as error:
        raise OSError(f"{type(error).__name__}: {error}") from error
    finally:
        connection.close()
    if answer.status >= 300:
        raise fetch.refused(answer.status, words or answer.reason, where.path)
