"""Executing decisions: which gangs are given up, and which are not."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import msgspec
import pytest

from fairway.engines.kubernetes.client import errors
from fairway.engines.kubernetes.client.api import ApiClient
from fairway.engines.kubernetes.objects import Pod
from fairway.engines.kubernetes.scheduler import gang_binder
from fairway.engines.kubernetes.scheduler.core_sync import GangBinding
from fairway.engines.kubernetes.scheduler.gang import PodPlacement
from fairway.engines.kubernetes.scheduler.gang_binder import IN_FLIGHT, PodGangBinder
from fairway.state.job import JobKey


class Server:
    """Never answers for pods named `stuck`, and has no pods afterwards."""

    async def bind(self, name: str, *_: object, **__: object) -> None:
        if name.startswith("stuck"):
            await asyncio.Event().wait()

    async def get(self, *_: object) -> Any:
        raise errors.NotFound("no such pod", asked="get", http=404)


def gang(name: str) -> GangBinding:
    pod = msgspec.convert({"metadata": {"name": name, "namespace": "team", "uid": name}}, Pod)
    return GangBinding(JobKey("team", name), ((pod, PodPlacement("a")),))


def test_the_time_of_a_gang_begins_with_its_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Binding ten thousand pods one after the other takes longer than the timeout of a single gang."""
    monkeypatch.setattr(gang_binder, "GANG_TIMEOUT", 0.2)
    given_up: list[str] = []
    bound: list[str] = []

    async def scene() -> list[bool]:
        binder = PodGangBinder(
            cast(ApiClient, Server()),
            lambda pods, _: given_up.extend(pod.metadata.name for pod in pods),
            lambda pod, _: bound.append(pod.metadata.name),
        )
        stuck = [binder.bind(gang(f"stuck-{number}")) for number in range(IN_FLIGHT)]
        return await asyncio.gather(*stuck, binder.bind(gang("next")))

    assert asyncio.run(scene()) == [False] * IN_FLIGHT + [True]
    assert len(given_up) == IN_FLIGHT
    assert bound == ["next"]
