"""Authenticates pods that request a certificate: by the token from their kubelet, which the API server reviews.

A certificate has one name: that of a pod's uid, or of an agent's node. So the certificate of one pod does not authenticate
another.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from fairway.engines.kubernetes import annotation
from fairway.engines.kubernetes.agent.token_review import LONGEST, REVIEWS
from fairway.engines.kubernetes.client.api import ApiClient
from fairway.engines.kubernetes.objects import Pod
from fairway.errors import DeniedError

AUDIENCE = "fairway-operator"
"""The audience of pods' tokens. The API server does not accept tokens of this audience for itself."""
AGENT = "fairway-agent"
"""The service account of agents."""
TOGETHER = 8
"""Maximum number of concurrent token reviews: strangers cannot make the operator flood the API server."""
_ACCOUNT = "system:serviceaccount:"
_EXTRA = "authentication.kubernetes.io/"
_DOMAIN = "fairway.internal"


def pod_name(uid: str) -> str:
    """Return the name in the certificate of a pod."""
    return f"{uid}.pod.{_DOMAIN}"


def agent_name(node: str) -> str:
    """Return the name in the certificate of a node's agent.

    It is a hash, since node names may be longer than names in certificates.
    """
    return f"{hashlib.sha256(node.encode()).hexdigest()[:40]}.agent.{_DOMAIN}"


def projected() -> dict[str, Any]:
    """Return the volume with a pod's token, which the kubelet renews. The token only serves to request the pod's certificate."""
    source = {"serviceAccountToken": {"audience": AUDIENCE, "path": "token"}}
    return {"projected": {"sources": [source]}}


class PodAuthenticator:
    """Authenticates tokens of pods and agents."""

    def __init__(self, client: ApiClient, namespace: str, pod: Callable[[str], Pod | None]) -> None:
        """`namespace`: that of the agents; `pod`: looks up a known pod by `NAMESPACE/NAME`."""
        self._client = client
        self._agents = f"{_ACCOUNT}{namespace}:{AGENT}"
        self._pod = pod
        self._asking = asyncio.Semaphore(TOGETHER)

    async def name_of(self, token: str) -> str:
        """Return the certificate name for the owner of this token. Raises `FairwayError` when the owner gets none."""
        if not token or len(token) > LONGEST:
            raise _refused("the request has no token of a pod")
        spec = {"token": token, "audiences": [AUDIENCE]}
        body = {"apiVersion": REVIEWS.api_version, "kind": REVIEWS.kind, "metadata": {}, "spec": spec}
        async with self._asking:
            status = (await self._client.create(REVIEWS, body)).get("status", {})
        # A server that does not support audiences returns none and would accept any token: that is no proof.
        if not status.get("authenticated") or AUDIENCE not in status.get("audiences", ()):
            raise _refused("the API server does not accept this token as one for the operator")
        return self._named(status.get("user", {}))

    def _named(self, user: Mapping[str, Any]) -> str:
        account, extra = user.get("username", ""), user.get("extra") or {}
        if account == self._agents:
            node = _only(extra, "node-name")
            if not node:
                raise _refused("the token of this agent names no node")
            return agent_name(node)
        namespace = account.removeprefix(_ACCOUNT).partition(":")[0] if account.startswith(_ACCOUNT) else ""
        name, uid = _only(extra, "pod-name"), _only(extra, "pod-uid")
        if not namespace or not name or not uid:
            raise _refused("the token was not issued for a pod")
        pod = self._pod(f"{namespace}/{name}")
        if pod is None or pod.metadata.uid != uid or annotation.SERVICE not in pod.metadata.labels:
            raise _refused(f"{namespace}/{name} is not a pod of a service, or the operator has not seen it yet")
        return pod_name(uid)


def _only(extra: Mapping[str, Any], key: str) -> str:
    values: Sequence[Any] = extra.get(f"{_EXTRA}{key}") or ()
    return str(values[0]) if len(values) == 1 else ""


def _refused(message: str) -> DeniedError:
    return DeniedError(message, fix="send the token that the kubelet mounts into the pod for the operator")
