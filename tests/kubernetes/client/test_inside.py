"""Logs of real containers, and programs run in them."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from api_world import until
from cluster import image
from cluster.nodes import RealCluster

from fairway.app.system.clock import SystemClock
from fairway.engines.kubernetes.client import api, api_resource, errors, kubeconfig
from fairway.engines.kubernetes.client.api import ApiClient
from fairway.engines.kubernetes.client.pod_session import STDERR, STDOUT, LogOptions, execute, logs

SCRIPT = "for n in 1 2 3; do echo line $n; done; trap 'echo told; exit 7' TERM; while true; do sleep 0.1; done"


@pytest.fixture(scope="module")
def cluster(real_nodes: RealCluster) -> RealCluster:
    """The nodes, with an image that has a shell."""
    real_nodes.load(image.fairway(real_nodes.plane.folder / "fairway.tar"))
    return real_nodes


@pytest.fixture
async def inside(cluster: RealCluster) -> AsyncIterator[tuple[ApiClient, str]]:
    """A client, and a namespace in which the pod `shell` runs."""
    async with api.connect(kubeconfig.read_kubeconfig(cluster.plane.kubeconfig()).target(), SystemClock()) as client:
        name = cluster.plane.request("POST", "/api/v1/namespaces", {"metadata": {"generateName": "test-"}})[1]["metadata"]["name"]
        accounts = await client.resource("v1", "ServiceAccount")

        async def account() -> bool:
            return bool((await client.list(accounts, name)).items)

        await until(account)
        container = {"name": "main", "image": image.FAIRWAY, "command": ["/bin/sh", "-c", SCRIPT]}
        spec = {"nodeName": "node-1", "restartPolicy": "Never", "terminationGracePeriodSeconds": 5, "containers": [container]}
        body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "shell"}, "spec": spec}
        await client.create(api_resource.PODS, body, name)

        async def running() -> bool:
            return (await client.get(api_resource.PODS, "shell", name)).status.phase == "Running"

        await until(running)
        yield client, name
        await client.delete(api_resource.NAMESPACES, name)


@pytest.mark.timeout(300)
async def test_logs_and_programs(inside: tuple[ApiClient, str]) -> None:
    client, namespace = inside
    connection = client.connection
    last = [chunk async for chunk in logs(connection, "shell", namespace, LogOptions(tail=1))]
    assert b"".join(last) == b"line 3\n"

    async def run(*command: str, given: bytes = b"") -> tuple[int, bytes, bytes]:
        said = {STDOUT: b"", STDERR: b""}
        async with execute(connection, "shell", namespace, command, container="main", stdin=bool(given)) as session:
            if given:
                await session.write(given)
                await session.close_input()
            async for channel, data in session.output():
                said[channel] += data
        return session.exit_code, said[STDOUT], said[STDERR]

    assert await run("/bin/sh", "-c", "echo out; echo err >&2; exit 3") == (3, b"out\n", b"err\n")
    assert await run("cat", given=b"a\nb") == (0, b"a\nb", b"")
    with pytest.raises(errors.ApiError, match="no-such-program"):
        await run("no-such-program")
    with pytest.raises(errors.ApiError):
        await anext(logs(connection, "shell", namespace, LogOptions(container="other")))

    # A log that is followed ends with the container.
    uid = (await client.get(api_resource.PODS, "shell", namespace)).metadata.uid
    seen = b""
    async for chunk in logs(connection, "shell", namespace, LogOptions(follow=True)):
        if not seen:
            await client.delete(api_resource.PODS, "shell", namespace, uid=uid)
        seen += chunk
    assert seen == b"line 1\nline 2\nline 3\ntold\n"
