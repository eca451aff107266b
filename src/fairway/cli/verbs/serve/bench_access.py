"""Access of `bench` to services with TLS and API keys: it creates a key and revokes it afterwards."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager

from fairway.cli.address import service_path
from fairway.cli.session import CommandSession

TYPE_CHECKING = False
if TYPE_CHECKING:
    import ssl
    from typing import Any

KEY = "FAIRWAY_KEY"
_LASTS = "1h"
"""Expiry of the key, in case it cannot be revoked."""


@contextmanager
def key_headers(session: CommandSession, found: dict[str, Any]) -> Iterator[dict[str, str]]:
    """Yield the header with an API key: the key in FAIRWAY_KEY, or a new key that is revoked when the block ends.

    No header if the service requires no key.
    """
    if not found["access"]["keys_required"]:
        yield {}
        return
    key = os.environ.get(KEY, "")
    if key:
        yield {"Authorization": f"Bearer {key}"}
        return
    name = f"bench-{secrets.token_hex(4)}"
    created = session.send("POST", service_path(found["name"], "/keys"), {"name": name, "expires": _LASTS})
    try:
        yield {"Authorization": f"Bearer {created['key']}"}
    finally:
        session.send("DELETE", service_path(found["name"], f"/keys/{name}"))


def tls_of(found: dict[str, Any]) -> tuple[ssl.SSLContext, str] | None:
    """Return the TLS context and the name to expect in the certificate; None for a service without TLS."""
    access = found["access"]
    if not access["tls"]:
        return None
    import ssl
    from urllib.parse import urlsplit

    context = ssl.create_default_context(cafile=access["authority"] or None)
    host = urlsplit(found["url"]).hostname or ""
    names = [name for name in access["names"] if "*" not in name]
    return context, host if host in names or not names else names[0]
