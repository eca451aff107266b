"""Which pod asks for a certificate: its kubelet gave it a token, and the API server says for which pod that was made.

A certificate has one name: of a pod's uid, or of an agent's node. So that of one pod proves no other pod.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from fairway.engines.kubernetes import marks
from fairway.engines.kubernetes.agent.known import LONGEST, REVIEWS
from fairway.engines.kubernetes.client.api import Client
from fairway.engines.kubernetes.objects import Pod
from fairway.errors import DeniedError

AUDIENCE = "fairway-operator"
"""The audience of pods' tokens. The API server takes no token of another audience for its own."""
AGENT = "fairway-agent"
"""The account of agents."""
TOGETHER = 8
"""Tokens that the API server is asked about at the same time, at the most: strangers cannot make the operator flood it."""
_ACCOUNT = "system:serviceaccount:"
_EXTRA = "authentication.kubernetes.io/"
_DOMAIN = "fairway.internal"


def pod_name(uid: str) -> str:
    """What the certificate of a pod is for."""
    return f"{uid}.pod.{_DOMAIN}"


def agent_name(node: str) -> str:
    """What the certificate of a node's agent is for: names of nodes may be longer than those of certificates."""
    return f"{hashlib.sha256(node.encode()).hexdigest()[:40]}.agent.{_DOMAIN}"


def projected() -> dict[str, Any]:
    """The volume with a pod's token, which the kubelet renews. It is good for nothing but to ask for the pod's certificate."""
    source = {"serviceAccountToken": {"audience": AUDIENCE, "path": "token"}}
    return {"projected": {"sources": [source]}}


class Proof:
    """Judges tokens."""

    def __init__(self, client: Client, namespace: str, pod: Callable[[str], Pod | None]) -> None:
        """`namespace`: of agents; `pod`: what is seen of a pod, by `NAMESPACE/NAME`."""
        self._client = client
        self._agents = f"{_ACCOUNT}{namespace}:{AGENT}"
        self._pod = pod
        self._asking = asyncio.Semaphore(TOGETHER)

    async def name_of(self, token: str) -> str:
        """The name that the certificate of the one who shows this token has. Raises `FairwayError` when it gets none."""
        if not token or len(token) > LONGEST:
            raise _refused("no token of a pod was shown")
        spec = {"token": token, "audiences": [AUDIENCE]}
        body = {"apiVersion": REVIEWS.api_version, "kind": REVIEWS.kind, "metadata": {}, "spec": spec}
        async with self._asking:
            status = (await self._client.create(REVIEWS, body)).get("status", {})
        # Where a server knows no audiences it names none, and then any token would do: that is no proof.
        if not status.get("authenticated") or AUDIENCE not in status.get("audiences", ()):
            raise _refused("the API server does not know this token as one for the operator")
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
            raise _refused("the token was not made for a pod")
        found = self._pod(f"{namespace}/{name}")
        if found is None or found.metadata.uid != uid or marks.SERVICE not in found.metadata.labels:
            raise _refused(f"{namespace}/{name} is no pod of a service, or it is not seen yet")
        return pod_name(uid)


def _only(extra: Mapping[str, Any], key: str) -> str:
    values: Sequence[Any] = extra.get(f"{_EXTRA}{key}") or ()
    return str(values[0]) if len(values) == 1 else ""


def _refused(message: str) -> DeniedError:
    return DeniedError(message, fix="show the token that the pod's kubelet keeps for the operator")
