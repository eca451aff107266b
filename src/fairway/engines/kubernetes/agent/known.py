"""Who may ask an agent: the operator, by a token that the API server made for nothing else, and which it is asked about."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
import time
from pathlib import Path

from fairway.engines.kubernetes.client.api import Client
from fairway.engines.kubernetes.client.paths import Resource

AUDIENCE = "fairway-agent"
"""For whom the operator's token is. The API server itself takes none that is for others: whoever hears it can only ask agents."""
TOKEN_FOLDER = "/var/run/secrets/fairway-agent"
TOKEN_FILE = "FAIRWAY_AGENT_TOKEN_FILE"
REVIEWS = Resource(dict, "authentication.k8s.io", "v1", "tokenreviews", "TokenReview", namespaced=False)
GOOD_FOR = 60.0
"""Seconds for which an answer of the API server stands; then it is asked again."""
LONGEST = 8192

log = logging.getLogger("fairway.agent")


def own_token() -> str:
    """What the operator shows: the kubelet makes it, and renews it while the pod runs; empty where there is none."""
    try:
        return Path(os.environ.get(TOKEN_FILE) or f"{TOKEN_FOLDER}/token").read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        return ""


class Known:
    """Judges tokens. The API server is asked about one at a time, so that strangers cannot make an agent flood it."""

    def __init__(self, client: Client, user: str) -> None:
        """`user`: whose tokens are good; empty: nobody's."""
        self._client = client
        self._user = user
        self._asking = asyncio.Lock()
        self._good: tuple[bytes, float] = (b"", 0.0)
        """The token that was good last, as a digest, and until when that stands."""

    async def __call__(self, token: str) -> bool:
        """Whether it is shown by whom it should be."""
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
        except Exception as error:  # noqa: BLE001 - without an answer the caller may not know.
            log.warning("could not learn who asks how busy GPUs are: %s", error)
            return False
        # Where a server knows no audiences it names none, and then any token would do: that is no proof.
        judged = bool(status.get("authenticated")) and AUDIENCE in status.get("audiences", ())
        return judged and status.get("user", {}).get("username") == self._user
