"""Which pod requests a certificate, by the API server's review of its token."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from fairway.engines.kubernetes import annotation
from fairway.engines.kubernetes.identity.pod_authenticator import AUDIENCE, PodAuthenticator, agent_name, pod_name
from fairway.engines.kubernetes.objects import Pod
from fairway.errors import DeniedError

EXTRA = "authentication.kubernetes.io/"
ROUTER = {f"{EXTRA}pod-name": ["adds-router-1"], f"{EXTRA}pod-uid": ["uid-1"], f"{EXTRA}node-name": ["n1"]}


class Server:
    """An API server that returns this status for every token."""

    def __init__(self, **status: Any) -> None:
        self.status = {"authenticated": True, "audiences": [AUDIENCE], **status}
        self.asked: list[Any] = []

    async def create(self, resource: Any, body: dict[str, Any]) -> dict[str, Any]:
        self.asked.append((resource.plural, body["spec"]))
        return {"status": self.status}


def seen(key: str) -> Pod | None:
    labels = {"team/adds-router-1": {annotation.SERVICE: "adds"}, "team/mnist-worker-0": {annotation.RUN: "mnist"}}.get(key)
    metadata = {"name": key.partition("/")[2], "namespace": "team", "uid": "uid-1", "labels": labels}
    return msgspec.convert({"metadata": metadata}, Pod) if labels is not None else None


def user(account: str, extra: dict[str, Any] | None) -> dict[str, Any]:
    return {"username": account, "extra": extra}


async def named(server: Server, token: str = "shown") -> str:
    return await PodAuthenticator(server, "fairway-system", seen).name_of(token)  # type: ignore[arg-type]


async def test_a_pod_is_named_by_its_uid_and_an_agent_by_its_node() -> None:
    server = Server(user=user("system:serviceaccount:team:default", ROUTER))
    assert await named(server) == pod_name("uid-1") == "uid-1.pod.fairway.internal"
    assert server.asked == [("tokenreviews", {"token": "shown", "audiences": [AUDIENCE]})]
    assert await named(Server(user=user("system:serviceaccount:fairway-system:fairway-agent", ROUTER))) == agent_name("n1")


def test_names_of_agents_fit_whatever_nodes_are_called() -> None:
    names = [agent_name(node) for node in ("a", "a" * 253, "a.b")]
    assert len(set(names)) == 3
    assert {len(name) for name in names} == {40 + len(".agent.fairway.internal")}


@pytest.mark.parametrize(
    "status",
    [
        {"authenticated": False},
        {"audiences": ["https://kubernetes.default.svc"]},
        {"audiences": []},
        {"user": user("system:serviceaccount:team:default", None)},
        {"user": user("system:serviceaccount:team:default", {**ROUTER, f"{EXTRA}pod-uid": ["uid-2"]})},
        {"user": user("system:serviceaccount:team:default", {**ROUTER, f"{EXTRA}pod-uid": ["uid-1", "uid-2"]})},
        {"user": user("system:serviceaccount:team:default", {**ROUTER, f"{EXTRA}pod-name": ["mnist-worker-0"]})},
        {"user": user("system:serviceaccount:team:default", {**ROUTER, f"{EXTRA}pod-name": ["unknown"]})},
        {"user": user("system:serviceaccount:other:default", ROUTER)},
        {"user": user("ann", ROUTER)},
        {"user": user("system:serviceaccount:fairway-system:fairway-agent", {})},
        {"user": user("system:serviceaccount:team:fairway-agent", {f"{EXTRA}node-name": ["n1"]})},
    ],
)
async def test_who_is_no_pod_of_a_service_and_no_agent_gets_none(status: dict[str, Any]) -> None:
    with pytest.raises(DeniedError):
        await named(Server(**{"user": user("system:serviceaccount:team:default", ROUTER), **status}))


async def test_without_a_token_and_with_one_too_long_the_server_is_not_asked() -> None:
    server = Server()
    for token in ("", "x" * 10_000):
        with pytest.raises(DeniedError, match="no token"):
            await named(server, token)
    assert server.asked == []
