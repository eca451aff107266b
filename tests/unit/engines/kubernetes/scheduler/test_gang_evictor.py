"""Evictions: a budget is respected, an operator that does not react is not waited for, and a refusal is reported."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, cast

import msgspec
import pytest

from fairway.engines.kubernetes import annotation
from fairway.engines.kubernetes.client import errors
from fairway.engines.kubernetes.client.api import ApiClient
from fairway.engines.kubernetes.objects import Pod
from fairway.engines.kubernetes.scheduler import gang_evictor
from fairway.engines.kubernetes.scheduler.core_sync import GangEviction
from fairway.engines.kubernetes.scheduler.gang_evictor import PodGangEvictor
from fairway.plan.scheduling.decision import EvictDecision, EvictionCause
from fairway.state.job import JobKey


class Hour:
    def now(self) -> float:
        return 1000.0


class Server:
    """Refuses the first `refusals` requests, and then executes them."""

    def __init__(self, refusals: int = 0, error: type[errors.ApiError] = errors.TooManyRequests) -> None:
        self.refusals, self.error = refusals, error
        self.done: list[str] = []

    def _refuse(self) -> None:
        if self.refusals:
            self.refusals -= 1
            raise self.error("no", asked="evict", http=429)

    async def evict(self, name: str, *_: object, **__: object) -> bool:
        self._refuse()
        self.done.append(f"evict {name}")
        return True

    async def patch(self, _kind: object, name: str, *_: object) -> None:
        self._refuse()
        self.done.append(f"mark {name}")

    async def apply_status(self, *_: object, **__: object) -> None:
        self.done.append("say")

    async def get(self, _kind: object, name: str, _namespace: str) -> Pod:
        return made(name)

    async def delete(self, _kind: object, name: str, *_: object, **__: object) -> bool:
        self.done.append(f"delete {name}")
        return True


def made(name: str) -> Pod:
    labels = {annotation.MANAGED_BY: annotation.MANAGER} if name.startswith("ours") else {}
    metadata = {"name": name, "namespace": "team", "uid": name, "labels": labels}
    return msgspec.convert({"metadata": metadata, "spec": {"terminationGracePeriodSeconds": 0}}, Pod)


def ask(server: Server, name: str) -> list[str]:
    """Evict a pod; return the pods that stayed."""
    stayed: list[str] = []

    def tell(pods: Sequence[Pod], problem: Exception | None) -> None:
        stayed.extend(pod.metadata.name for pod in pods if problem is not None)

    evictor = PodGangEvictor(cast(ApiClient, server), cast(Any, Hour()), tell)
    room = GangEviction(EvictDecision(JobKey("team", name), EvictionCause.PRIORITY, JobKey("team", "urgent")), (made(name),))
    asyncio.run(evictor.make_room(room))
    return stayed


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gang_evictor, "PATIENCE", 0.01)
    monkeypatch.setattr(gang_evictor, "BUDGET_PAUSE", 0.001)


def test_a_pod_that_its_budget_protects_is_asked_until_it_may_go() -> None:
    server = Server(refusals=3)
    assert ask(server, "theirs") == []
    assert server.done == ["evict theirs", "say"]


def test_whoever_may_never_go_stays_and_that_is_told() -> None:
    assert ask(Server(refusals=10_000), "theirs") == ["theirs"]
    assert ask(Server(refusals=1, error=errors.Forbidden), "ours") == ["ours"]


def test_an_operator_that_does_nothing_is_not_waited_for() -> None:
    server = Server()
    assert ask(server, "ours") == []
    assert server.done == ["mark ours", "delete ours"]
