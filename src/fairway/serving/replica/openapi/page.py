"""The page at `/docs`: a single file without external resources."""

from __future__ import annotations

import base64
import functools
import re
from hashlib import sha256
from pathlib import Path

from fairway.serving.replica.model.served_model import ReplicaResponse

HTML = b"text/html; charset=utf-8"
_INLINE = re.compile(r"<(style|script)>(.*?)</\1>", re.DOTALL)


@functools.cache
def docs() -> tuple[bytes, bytes]:
    """Return the page and its content security policy: only its own style and script, only requests to its own origin."""
    text = Path(__file__).with_name("docs.html").read_text("utf-8")
    hashes = {
        kind: f"'sha256-{base64.b64encode(sha256(content.encode()).digest()).decode()}'"
        for kind, content in _INLINE.findall(text)
    }
    policy = (
        f"default-src 'none'; script-src {hashes['script']}; style-src {hashes['style']}; img-src data:; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
    return text.encode(), policy.encode()


def docs_page() -> ReplicaResponse:
    """Return the page as an answer."""
    text, policy = docs()
    headers = [(b"content-security-policy", policy), (b"x-content-type-options", b"nosniff"), (b"cache-control", b"no-cache")]
    return ReplicaResponse(text, headers=headers, content_type=HTML)
