"""Router pods: each reachable one follows the plan, and an unreachable one does not delay the others."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from fairway.app.system.clock import SystemClock
from fairway.engines.kubernetes.client import api_resource
from fairway.engines.kubernetes.client.informer import Informer
from fairway.engines.kubernetes.objects import Deployment, Pod
from fairway.engines.kubernetes.serving import cluster_router, naming
from fairway.engines.kubernetes.serving.cluster_router import ClusterRouter
from fairway.runtime.secured.pod_peer import PodPeer
from fairway.state.service import ServiceKey
from fairway.state.serving.load import RouteLoad
from fairway.state.serving.route import WHOLE, RouteBackend, RoutePlan

KEY = ServiceKey("team", "adds")
PLAN = RoutePlan("team/adds", (RouteBackend("r1-1", 1, "10.0.0.1:20000"),), ((1, WHOLE),))


class Talk:
    """Routers that record the plans they receive; some cannot be reached."""

    def __init__(self) -> None:
        self.told: dict[str, RoutePlan] = {}
        self.silent: set[str] = set()
        self.heard = asyncio.Condition()

    async def put(self, peer: PodPeer, token: str, plan: RoutePlan) -> None:
        assert token == "token of adds"
        self._reach(peer.address)
        self.told[peer.address] = plan
        async with self.heard:
            self.heard.notify_all()

    async def look(self, peer: PodPeer, token: str) -> RouteLoad:
        del token
        self._reach(peer.address)
        return RouteLoad(1.0, arrived=10)

    async def follow(self, peer: PodPeer, token: str, wake: Callable[[], None]) -> None:
        del token, wake
        self._reach(peer.address)
        await asyncio.Event().wait()

    def close(self) -> None:
        self.told.clear()

    def together(self, loads: list[RouteLoad]) -> RouteLoad:
        return RouteLoad(1.0, arrived=sum(load.arrived for load in loads))

    def _reach(self, address: str) -> None:
        if address in self.silent:
            raise OSError(address)

    async def until(self, told: dict[str, RoutePlan]) -> None:
        async with asyncio.timeout(10), self.heard:
            await self.heard.wait_for(lambda: self.told == told)


def pod(name: str, ip: str, phase: str = "Running") -> Pod:
    metadata = {"name": name, "namespace": "team", "uid": name, "labels": naming.labels(KEY, naming.ROUTER)}
    return msgspec.convert({"metadata": metadata, "status": {"phase": phase, "podIP": ip}}, Pod)


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_router, "AGAIN", 0.001)


def made(talk: Talk) -> tuple[ClusterRouter, Informer[Pod], Informer[Deployment]]:
    client: Any = None
    pods, deployments = Informer(client, api_resource.PODS), Informer(client, api_resource.DEPLOYMENTS)
    return ClusterRouter(pods, deployments, talk, lambda key: f"token of {key.name}", SystemClock()), pods, deployments


async def test_a_plan_reaches_every_router_also_one_that_comes_later() -> None:
    talk = Talk()
    found, pods, _ = made(talk)
    await found.start(lambda: None)
    changed: list[ServiceKey] = []
    found.changed = changed.append
    assert await found.put(PLAN) == naming.USUAL_PORT
    assert changed == [KEY]
    pods.put(pod("a", "10.1.0.1"))
    pods.put(pod("starts", "", "Pending"))
    await talk.until({"10.1.0.1:8081": PLAN})
    pods.put(pod("starts", "10.1.0.2"))
    await talk.until({"10.1.0.1:8081": PLAN, "10.1.0.2:8081": PLAN})
    other = RoutePlan("team/adds", port=9000)
    assert await found.put(other) == 9000
    await talk.until({"10.1.0.1:8081": other, "10.1.0.2:8081": other})
    assert (await found.look())["team/adds"].arrived == 20
    await found.close()


async def test_one_that_does_not_answer_holds_nobody_up_and_is_told_when_it_does() -> None:
    talk = Talk()
    found, pods, _ = made(talk)
    await found.start(lambda: None)
    await found.put(PLAN)
    for name, ip in (("a", "10.1.0.1"), ("b", "10.1.0.2")):
        pods.put(pod(name, ip))
    await talk.until({"10.1.0.1:8081": PLAN, "10.1.0.2:8081": PLAN})
    talk.silent.add("10.1.0.2:8081")
    other = RoutePlan("team/adds", port=9000)
    await found.put(other)
    assert talk.told == {"10.1.0.1:8081": other, "10.1.0.2:8081": PLAN}
    assert (await found.look())["team/adds"].arrived == 10
    talk.silent.clear()
    await talk.until({"10.1.0.1:8081": other, "10.1.0.2:8081": other})
    await found.close()


async def test_a_router_is_kept_as_long_as_its_deployment_is() -> None:
    found, _, deployments = made(Talk())
    body = {"metadata": {"name": "adds-router", "namespace": "team", "labels": naming.labels(KEY, naming.ROUTER)}}
    deployments.put(msgspec.convert(body, Deployment))
    assert await found.kept() == ["team/adds"]
    await found.put(PLAN)
    await found.drop("team/adds")
    assert found.plans == {}
