"""Claims get their volumes before their pods are bound; otherwise everything is rolled back."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, cast

import msgspec
import pytest

from fairway.engines.kubernetes.client import errors
from fairway.engines.kubernetes.client.api import ApiClient
from fairway.engines.kubernetes.objects import PersistentVolume, PersistentVolumeClaim
from fairway.engines.kubernetes.scheduler import volume_binder
from fairway.engines.kubernetes.scheduler.filter.volume_filter import ClaimBinding
from fairway.engines.kubernetes.scheduler.volume_binder import SELECTED_NODE, VolumeClaimBinder, VolumeTimeoutError


def claim(phase: str = "Pending") -> PersistentVolumeClaim:
    head = {"name": "data", "namespace": "team", "uid": "u1"}
    return msgspec.convert({"metadata": head, "status": {"phase": phase}}, PersistentVolumeClaim)


class Server:
    """Accepts patches; binds the claim when the test requests it."""

    def __init__(self, error: errors.ApiError | None = None) -> None:
        self.patches: list[tuple[str, list[Any]]] = []
        self.now = claim()
        self.error = error

    async def patch(self, _kind: object, name: str, _namespace: str, changes: Sequence[Any]) -> None:
        self.patches.append((name, list(changes)))
        if self.error is not None:
            raise self.error


def bind(server: Server, *wanted: ClaimBinding, bound: bool = False) -> list[str]:
    """Bind the volumes; return the nodes of those whose wait ended afterwards."""
    done: list[str] = []

    async def scene() -> None:
        volumes = VolumeClaimBinder(
            cast(ApiClient, server), lambda _: server.now, lambda ones: done.extend(one.node for one in ones)
        )
        waiting = asyncio.create_task(volumes.bind(wanted))
        if bound:
            while not server.patches:
                await asyncio.sleep(0)
            server.now = claim("Bound")
            await volumes.hear()
        await waiting

    asyncio.run(scene())
    return done


def test_whoever_makes_volumes_is_told_the_node_and_waited_for() -> None:
    server = Server()
    assert bind(server, ClaimBinding(claim(), "a"), bound=True) == ["a"]
    ((name, (test, change)),) = server.patches
    assert (name, test["value"]) == ("data", "u1")
    assert change["value"] == {SELECTED_NODE: "a"}


def test_a_volume_that_is_there_is_promised() -> None:
    server = Server()
    volume = msgspec.convert({"metadata": {"name": "v1", "resourceVersion": "7"}}, PersistentVolume)
    bind(server, ClaimBinding(claim(), "a", volume), bound=True)
    ((name, (test, holder, _)),) = server.patches
    assert (name, test["value"]) == ("v1", "7")
    assert (holder["value"]["name"], holder["value"]["uid"]) == ("data", "u1")


def test_a_volume_that_does_not_come_is_not_waited_for_and_no_node_stays_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(volume_binder, "VOLUME_TIMEOUT", 0.05)
    server = Server()
    with pytest.raises(VolumeTimeoutError, match="data were not bound within"):
        bind(server, ClaimBinding(claim(), "a"))
    assert [change["op"] for change in server.patches[-1][1]] == ["test", "test", "remove"]


def test_a_refusal_is_told() -> None:
    with pytest.raises(errors.Forbidden):
        bind(Server(errors.Forbidden("no", asked="patch", http=403)), ClaimBinding(claim(), "a"))
