"""Tokens of runs: a token names a run, is signed, and is valid only for the routes of this package."""

from __future__ import annotations

import hashlib
import hmac

from fairway.app.tracking.run import TokenCaller

_LONGEST = 512


def token_of(secret: bytes, speaker: TokenCaller) -> str:
    """Return `default/mnist-7.PROOF`, with an HMAC-SHA256 of the name as the proof; the owner's token contains no run."""
    name = f"{speaker.namespace}/{speaker.run}"
    return f"{name}.{_proof(secret, name)}"


def speaker_of(secret: bytes, token: str) -> TokenCaller | None:
    """Return the caller; None if the token is invalid."""
    name, _, proof = token.rpartition(".")
    if len(token) > _LONGEST or not token.isascii() or not hmac.compare_digest(_proof(secret, name), proof):
        return None
    namespace, _, run = name.rpartition("/")
    return TokenCaller(namespace, run)


def _proof(secret: bytes, name: str) -> str:
    return hmac.new(secret, b"fairway-mlflow\0" + name.encode(), hashlib.sha256).hexdigest()
