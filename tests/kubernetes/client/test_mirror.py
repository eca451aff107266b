"""An informer in step with a real API server: across restarts, expired versions, and servers without watch lists."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from api_world import pod, until
from cluster.control_plane import ControlPlane

from fairway.app.system.clock import SystemClock
from fairway.engines.kubernetes.client import api, api_resource, errors, kubeconfig
from fairway.engines.kubernetes.client.api import ApiClient
from fairway.engines.kubernetes.client.informer import Informer, all_synced, by_label
from fairway.engines.kubernetes.client.watch import WatchScope, WatchSnapshot, follow


@asynccontextmanager
async def running(mirror: Informer) -> AsyncIterator[Informer]:
    """Run the informer, synchronized and complete."""
    task = asyncio.create_task(mirror.run())
    try:
        await asyncio.wait_for(mirror.synced(), 30)
        yield mirror
    finally:
        task.cancel()
        await asyncio.wait([task])
    assert task.cancelled() or task.exception() is None


def config_map(name: str, **data: str) -> dict:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}


async def test_it_follows(client: ApiClient, namespace: str) -> None:
    await client.create(api_resource.PODS, pod("a", job="x"), namespace)
    async with running(Informer(client, api_resource.PODS, WatchScope(namespace), {"job": by_label("job")})) as mirror:
        assert sorted(mirror.keys()) == [f"{namespace}/a"]
        await client.create(api_resource.PODS, pod("b", job="x"), namespace)
        await until(lambda: len(mirror.indexed("job", "x")) == 2)
        uid = mirror.get(f"{namespace}/b").metadata.uid
        await client.bind("b", namespace, "n1", uid=uid)
        await until(lambda: mirror.get(f"{namespace}/b").spec.node_name == "n1")
        await client.delete(api_resource.PODS, "a", namespace, grace=0)
        await until(lambda: len(mirror) == 1)


async def test_only_what_is_in_scope(client: ApiClient, namespace: str) -> None:
    async with running(
        Informer(client, api_resource.PODS, WatchScope(namespace, labels="mine=yes", fields="spec.nodeName="))
    ) as mirror:
        for name, labels in (("a", {"mine": "yes"}), ("b", {"mine": "no"}), ("c", {"mine": "yes"})):
            await client.create(api_resource.PODS, pod(name, **labels), namespace)
        await until(lambda: len(mirror) == 2)
        await client.bind("a", namespace, "n1", uid=mirror.get(f"{namespace}/a").metadata.uid)
        await until(lambda: sorted(mirror.keys()) == [f"{namespace}/c"])


async def test_several_at_once(client: ApiClient) -> None:
    mirrors = [Informer(client, api_resource.NODES), Informer(client, api_resource.NAMESPACES)]
    tasks = [asyncio.create_task(mirror.run()) for mirror in mirrors]
    await asyncio.wait_for(all_synced(*mirrors), 30)
    assert mirrors[1].get("default")
    for task in tasks:
        task.cancel()


async def test_an_api_server_that_restarts_is_followed_on(own_control_plane: Callable[..., ControlPlane]) -> None:
    """The last version that was seen is compacted (410): everything is listed again, and only differences are reported."""
    plane = own_control_plane()
    async with api.connect(kubeconfig.read_kubeconfig(plane.kubeconfig()).target(), SystemClock()) as client:
        for name in ("stays", "goes"):
            await client.create(api_resource.CONFIG_MAPS, config_map(name), "default")
        mirror = Informer(client, api_resource.CONFIG_MAPS, WatchScope("default"))
        resets, told = [], []
        reset = mirror.reset
        mirror.reset = lambda things, unreadable: (resets.append(1), reset(things, unreadable))
        async with running(mirror):
            mirror.listen(lambda key, was, now: told.append((key, was is not None, now is not None)))
            told.clear()
            # Objects of other kinds advance the version, unseen by this watch.
            for number in range(5):
                await client.create(api_resource.CONFIG_MAPS, config_map(f"other{number}"), "kube-system")
            await asyncio.to_thread(plane.processes.end, "kube-apiserver")
            await until(lambda: mirror.trouble is not None)
            assert isinstance(mirror.trouble, errors.Unavailable)
            plane.compact()
            plane.start_apiserver()  # in this thread, which keeps its connections; the informer waits meanwhile
            await client.delete(api_resource.CONFIG_MAPS, "goes", "default")
            await client.create(api_resource.CONFIG_MAPS, config_map("comes"), "default")
            await until(lambda: mirror.get("default/comes") and not mirror.get("default/goes"))
            assert mirror.trouble is None
        ours = [one for one in told if one[0] in ("default/stays", "default/goes", "default/comes")]
        assert sorted(ours) == [("default/comes", False, True), ("default/goes", True, False)]
        assert len(resets) == 2


async def test_a_server_without_watch_lists(own_control_plane: Callable[..., ControlPlane]) -> None:
    plane = own_control_plane(apiserver=["--feature-gates=WatchList=false"])
    async with api.connect(kubeconfig.read_kubeconfig(plane.kubeconfig()).target(), SystemClock()) as client:
        for number in range(3):
            await client.create(api_resource.CONFIG_MAPS, config_map(f"m{number}"), "default")
        found = follow(client, api_resource.CONFIG_MAPS, WatchScope("default"))
        first = await anext(found)
        assert isinstance(first, WatchSnapshot)
        assert {"m0", "m1", "m2"} <= {thing.metadata.name for thing in first.things}
        await client.create(api_resource.CONFIG_MAPS, config_map("later"), "default")
        seen: set[str] = set()
        while "later" not in seen:  # the cluster creates some of its own here
            changes = await anext(found)
            assert not isinstance(changes, WatchSnapshot)
            seen |= {change.thing.metadata.name for change in changes}
        await found.aclose()
