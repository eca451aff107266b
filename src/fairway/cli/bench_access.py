"""How a service with TLS and API keys is asked by `bench`: by a key that is made for it and revoked afterwards."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager

from fairway.cli.address import service_path
from fairway.cli.session import Session

TYPE_CHECKING = False
if TYPE_CHECKING:
    import ssl
    from typing import Any

KEY = "FAIRWAY_KEY"
_LASTS = "1h"
"""When the key ends by itself, in case that it cannot be revoked."""


@contextmanager
def key_headers(session: Session, found: dict[str, Any]) -> Iterator[dict[str, str]]:
    """The header with a key: that of FAIRWAY_KEY, or one that lives as long as this block; none where none is needed."""
    if not found["access"]["keys_required"]:
        yield {}
        return
    given = os.environ.get(KEY, "")
    if given:
        yield {"Authorization": f"Bearer {given}"}
        return
    name = f"bench-{secrets.token_hex(4)}"
    made = session.send("POST", service_path(found["name"], "/keys"), {"name": name, "expires": _LASTS})
    try:
        yield {"Authorization": f"Bearer {made['key']}"}
    finally:
        session.send("DELETE", service_path(found["name"], f"/keys/{name}"))


def tls_of(found: dict[str, Any]) -> tuple[ssl.SSLContext, str] | None:
    """What to trust, and the name in the certificate; None for a service without TLS."""
    access = found["access"]
    if not access["tls"]:
        return None
    import ssl
    from urllib.parse import urlsplit

    context = ssl.create_default_context(cafile=access["authority"] or None)
    host = urlsplit(found["url"]).hostname or ""
    named = [name for name in access["names"] if "*" not in name]
    return context, host if host in named or not named else named[0]
