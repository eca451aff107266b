"""Who speaks: a token names a run and proves it, and opens nothing but the routes of this package."""

from __future__ import annotations

import hashlib
import hmac

from fairway.app.tracking import Speaker

_LONGEST = 512


def token_of(secret: bytes, speaker: Speaker) -> str:
    """`default/mnist-7.PROOF`, with HMAC-SHA256 over the name as the proof; the owner's has no run in it."""
    name = f"{speaker.namespace}/{speaker.run}"
    return f"{name}.{_proof(secret, name)}"


def speaker_of(secret: bytes, token: str) -> Speaker | None:
    """Who speaks; None when the token proves nothing."""
    name, _, proof = token.rpartition(".")
    if len(token) > _LONGEST or not token.isascii() or not hmac.compare_digest(_proof(secret, name), proof):
        return None
    namespace, _, run = name.rpartition("/")
    return Speaker(namespace, run)


def _proof(secret: bytes, name: str) -> str:
    return hmac.new(secret, b"fairway-mlflow\0" + name.encode(), hashlib.sha256).hexdigest()
