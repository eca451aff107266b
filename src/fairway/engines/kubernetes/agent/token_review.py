"""Authenticates clients of an agent: only the operator may query it.

The operator has a token for this purpose only, which the agent has reviewed by the API server.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
import time
from pathlib import Path

from fairway.engines.kubernetes.client.api import ApiClient
from fairway.engines.kubernetes.client.api_path import ApiResource

AUDIENCE = "fairway-agent"
"""The audience of the operator's token. The API server accepts none of it for itself: a stolen token can only query agents."""
TOKEN_FOLDER = "/var/run/secrets/fairway-agent"
TOKEN_FILE = "FAIRWAY_AGENT_TOKEN_FILE"
REVIEWS = ApiResource(dict, "authentication.k8s.io", "v1", "tokenreviews", "TokenReview", namespaced=False)
GOOD_FOR = 60.0
"""Seconds for which a token review is cached."""
LONGEST = 8192

log = logging.getLogger("fairway.agent")


def own_token() -> str:
    """Return the operator's own token, which the kubelet creates, and renews while the pod runs; empty where there is none."""
    try:
        return Path(os.environ.get(TOKEN_FILE) or f"{TOKEN_FOLDER}/token").read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        return ""


class TokenReviewer:
    """Authenticates tokens. Token reviews run one at a time, so that strangers cannot make an agent flood the API server."""

    def __init__(self, client: ApiClient, user: str) -> None:
        """`user`: the only user whose tokens are accepted; empty: none is."""
        self._client = client
        self._user = user
        self._asking = asyncio.Lock()
        self._good: tuple[bytes, float] = (b"", 0.0)
        """The last accepted token, as a digest, and until when that is valid."""

    async def __call__(self, token: str) -> bool:
        """Whether the token belongs to the accepted user."""
        if not self._user or not token or len(token) > LONGEST:
            return False
        async with self._asking:
            digest = hashlib.sha256(token.encode()).digest()
            if self._good[0] == digest and time.monotonic() < self._good[1]:
                return True
            good = await self._is_of_user(token)
            if good:
                self._good = (digest, time.monotonic() + GOOD_FOR)
            return good

    async def _is_of_user(self, token: str) -> bool:
        spec = {"token": token, "audiences": [AUDIENCE]}
        body = {"apiVersion": REVIEWS.api_version, "kind": REVIEWS.kind, "metadata": {}, "spec": spec}
        try:
            status = (await self._client.create(REVIEWS, body)).get("status", {})
        except Exception as error:  # noqa: BLE001 - without a review the client is refused.
            log.warning("could not authenticate a request for GPU usage: %s", error)
            return False
        # A server that does not support audiences returns none and would accept any token: that is no proof.
        judged = bool(status.get("authenticated")) and AUDIENCE in status.get("audiences", ())
        return judged and status.get("user", {}).get("username") == self._user
