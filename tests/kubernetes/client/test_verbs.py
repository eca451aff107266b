"""Every verb of the client against a real API server."""

from __future__ import annotations

import asyncio
import json

import pytest
from api_world import pod, until
from cluster.control_plane import ControlPlane

from fairway.engines.kubernetes.client import api_resource, errors, kubeconfig
from fairway.engines.kubernetes.client.api import ApiClient
from fairway.engines.kubernetes.client.connection import ApiConnection


def config_map(name: str, namespace: str, **data: str) -> dict:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": namespace}, "data": data}


async def test_make_read_and_let_go(client: ApiClient, namespace: str) -> None:
    made = await client.create(api_resource.CONFIG_MAPS, config_map("a", namespace, x="1"), namespace)
    read = await client.get(api_resource.CONFIG_MAPS, "a", namespace)
    assert read == made
    assert (read.metadata.namespace, read.data) == (namespace, {"x": "1"})
    with pytest.raises(errors.AlreadyExists, match='configmaps "a" already exists'):
        await client.create(api_resource.CONFIG_MAPS, config_map("a", namespace), namespace)
    with pytest.raises(errors.Conflict, match="UID"):
        await client.delete(api_resource.CONFIG_MAPS, "a", namespace, uid="another")
    assert await client.delete(api_resource.CONFIG_MAPS, "a", namespace, uid=made.metadata.uid)
    assert not await client.delete(api_resource.CONFIG_MAPS, "a", namespace)
    with pytest.raises(errors.NotFound, match='configmaps "a" not found'):
        await client.get(api_resource.CONFIG_MAPS, "a", namespace)


async def test_a_dry_run_changes_nothing(client: ApiClient, namespace: str) -> None:
    await client.create(api_resource.CONFIG_MAPS, config_map("a", namespace), namespace, dry_run=True)
    await client.apply(api_resource.CONFIG_MAPS, config_map("b", namespace), manager="m", dry_run=True)
    found = await client.list(api_resource.CONFIG_MAPS, namespace)
    assert {one.metadata.name for one in found.items} <= {"kube-root-ca.crt"}


async def test_lists_come_page_by_page(client: ApiClient, namespace: str) -> None:
    for number in range(7):
        body = config_map(f"m{number}", namespace)
        body["metadata"]["labels"] = {"half": str(number % 2)}
        await client.create(api_resource.CONFIG_MAPS, body, namespace)
    listed = await client.list(api_resource.CONFIG_MAPS, namespace, labels="half=0", page=2)
    assert [one.metadata.name for one in listed.items] == ["m0", "m2", "m4", "m6"]
    one = await client.list(api_resource.CONFIG_MAPS, namespace, fields="metadata.name=m3")
    assert [found.metadata.name for found in one.items] == ["m3"]


async def test_apply_owns_fields_and_gives_them_up(client: ApiClient, namespace: str) -> None:
    await client.apply(api_resource.CONFIG_MAPS, config_map("a", namespace, x="1", y="1"), manager="ours")
    with pytest.raises(errors.Conflict, match='conflict with "ours"'):
        await client.apply(api_resource.CONFIG_MAPS, config_map("a", namespace, x="2"), manager="theirs", force=False)
    await client.apply(api_resource.CONFIG_MAPS, config_map("a", namespace, z="3"), manager="theirs", force=False)
    both = await client.apply(api_resource.CONFIG_MAPS, config_map("a", namespace, x="1"), manager="ours")
    assert both.data == {"x": "1", "z": "3"}
    again = await client.apply(api_resource.CONFIG_MAPS, config_map("a", namespace, x="1"), manager="ours")
    assert again.metadata.resource_version == both.metadata.resource_version


async def test_a_patch_with_a_test_that_does_not_hold_changes_nothing(client: ApiClient, namespace: str) -> None:
    made = await client.create(api_resource.CONFIG_MAPS, config_map("a", namespace, x="1"), namespace)
    change = {"op": "replace", "path": "/data/x", "value": "2"}
    with pytest.raises(errors.Invalid):
        await client.patch(
            api_resource.CONFIG_MAPS, "a", namespace, [{"op": "test", "path": "/metadata/uid", "value": "another"}, change]
        )
    assert (await client.get(api_resource.CONFIG_MAPS, "a", namespace)).data == {"x": "1"}
    holds = {"op": "test", "path": "/metadata/uid", "value": made.metadata.uid}
    assert (await client.patch(api_resource.CONFIG_MAPS, "a", namespace, [holds, change])).data == {"x": "2"}


async def test_replace_needs_the_version_that_is_there(client: ApiClient, namespace: str) -> None:
    made = await client.create(api_resource.CONFIG_MAPS, config_map("a", namespace, x="1"), namespace)
    body = config_map("a", namespace, x="2")
    body["metadata"]["resourceVersion"] = made.metadata.resource_version
    assert (await client.replace(api_resource.CONFIG_MAPS, body, namespace)).data == {"x": "2"}
    with pytest.raises(errors.Conflict, match="the object has been modified"):
        await client.replace(api_resource.CONFIG_MAPS, body, namespace)


async def test_an_object_that_is_wrong_is_refused_by_field(client: ApiClient, namespace: str) -> None:
    body = pod("Wrong_Name")
    body["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "2"}, "limits": {"cpu": "1"}}
    with pytest.raises(errors.Invalid) as caught:
        await client.create(api_resource.PODS, body, namespace)
    assert {"metadata.name", "spec.containers[0].resources.requests"} <= {mistake.path for mistake in caught.value.mistakes}
    assert caught.value.exit_code == 2


async def test_binding_takes_node_and_devices_in_one_write(client: ApiClient, namespace: str) -> None:
    made = await client.create(api_resource.PODS, pod("a"), namespace)
    with pytest.raises(errors.Conflict, match="UID in precondition"):
        await client.bind("a", namespace, "n1", uid="another")
    await client.bind("a", namespace, "n1", uid=made.metadata.uid, annotations={"fairway.dev/gpu-ids": "GPU-7"})
    bound = await client.get(api_resource.PODS, "a", namespace)
    assert (bound.spec.node_name, bound.metadata.annotations) == ("n1", {"fairway.dev/gpu-ids": "GPU-7"})
    with pytest.raises(errors.Conflict, match='already assigned to node "n1"'):
        await client.bind("a", namespace, "n2", uid=made.metadata.uid)
    gated = pod("gated")
    gated["spec"]["schedulingGates"] = [{"name": "fairway.dev/quota"}]
    held = await client.create(api_resource.PODS, gated, namespace)
    with pytest.raises(errors.Conflict, match="schedulingGates"):
        await client.bind("gated", namespace, "n1", uid=held.metadata.uid)


async def test_eviction_heeds_the_disruption_budget(client: ApiClient, namespace: str) -> None:
    for name in ("free", "kept"):
        await client.create(api_resource.PODS, pod(name, app=name), namespace)
    budget = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "all", "namespace": namespace},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "kept"}}},
    }
    budgets = await client.resource("policy/v1", "PodDisruptionBudget")
    await client.apply(budgets, budget, manager="m")
    # A disruption budget counts only pods that run; a pending pod may always be evicted.
    status = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
    kept = await client.patch(
        api_resource.PODS, "kept", namespace, [{"op": "replace", "path": "/status", "value": status}], subresource="status"
    )

    async def counted() -> bool:
        return (await client.get(budgets, "all", namespace)).get("status", {}).get("currentHealthy") == 1

    await until(counted)
    with pytest.raises(errors.TooManyRequests) as caught:
        await client.evict("kept", namespace, uid=kept.metadata.uid)
    assert caught.value.disruption_budget
    with pytest.raises(errors.Conflict):
        await client.evict("free", namespace, uid="another")
    assert await client.evict("free", namespace, grace=0)
    await until(lambda: _gone(client, "free", namespace))
    assert not await client.evict("free", namespace)


async def _gone(client: ApiClient, name: str, namespace: str) -> bool:
    try:
        await client.get(api_resource.PODS, name, namespace)
    except errors.NotFound:
        return True
    return False


async def test_scale(client: ApiClient, namespace: str) -> None:
    template = {"metadata": {"labels": {"app": "a"}}, "spec": {"containers": [{"name": "c", "image": "none"}]}}
    body = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "d", "namespace": namespace},
        "spec": {"replicas": 0, "selector": {"matchLabels": {"app": "a"}}, "template": template},
    }
    await client.apply(api_resource.DEPLOYMENTS, body, manager="m")
    assert (await client.scale(api_resource.DEPLOYMENTS, "d", namespace, 2)).spec.replicas == 2
    assert (await client.scale_of(api_resource.DEPLOYMENTS, "d", namespace)).spec.replicas == 2
    assert (await client.get(api_resource.DEPLOYMENTS, "d", namespace)).spec.replicas == 2


async def test_kinds_that_are_not_built_in_are_found(client: ApiClient, namespace: str) -> None:
    roles = await client.resource("rbac.authorization.k8s.io/v1", "ClusterRole")
    assert (roles.plural, roles.namespaced) == ("clusterroles", False)
    assert (await client.get(roles, "cluster-admin"))["rules"]
    assert await client.serves("apps/v1")
    assert not await client.serves("kueue.x-k8s.io/v1beta2")
    with pytest.raises(errors.NotFound, match="no kind 'Nothing' in apps/v1"):
        await client.resource("apps/v1", "Nothing")


@pytest.mark.usefixtures("our_kinds")
async def test_everything_that_is_built_in_can_be_read(client: ApiClient) -> None:
    for resource in api_resource.BY_KIND.values():
        listed = await client.list(resource)
        assert listed.resource_version, resource.kind
        for thing in listed.items[:5]:
            assert await client.get(resource, thing.metadata.name, thing.metadata.namespace)


async def test_a_storm_of_writers_loses_nothing(client: ApiClient, namespace: str) -> None:
    """Sixteen writers with the version that they read: each conflict is reported, and in the end every writer has succeeded."""
    await client.create(api_resource.CONFIG_MAPS, config_map("a", namespace), namespace)
    conflicts = [0]

    async def write(name: str) -> None:
        while True:
            seen = await client.get(api_resource.CONFIG_MAPS, "a", namespace)
            body = config_map("a", namespace, **seen.data, **{name: "here"})
            body["metadata"]["resourceVersion"] = seen.metadata.resource_version
            try:
                await client.replace(api_resource.CONFIG_MAPS, body, namespace)
            except errors.Conflict:
                conflicts[0] += 1
            else:
                return

    await asyncio.gather(*(write(f"w{number}") for number in range(16)))
    assert len((await client.get(api_resource.CONFIG_MAPS, "a", namespace)).data) == 16
    assert conflicts[0] > 0


async def test_nothing_is_written_without_a_permit(client: ApiClient, namespace: str) -> None:
    idle = ApiClient(client.connection, permit=lambda: False)
    with pytest.raises(errors.NotPermitted):
        await idle.create(api_resource.CONFIG_MAPS, config_map("a", namespace), namespace)
    with pytest.raises(errors.NotFound):
        await idle.get(api_resource.CONFIG_MAPS, "a", namespace)


async def test_a_user_without_rights_gets_the_refusal_in_words(
    control_plane: ControlPlane, client: ApiClient, namespace: str
) -> None:
    target = kubeconfig.read_kubeconfig(control_plane.kubeconfig("bob")).target()
    async with ApiConnection(target, client.connection.clock) as connection:
        with pytest.raises(errors.Forbidden) as caught:
            await ApiClient(connection).apply(api_resource.CONFIG_MAPS, config_map("a", namespace), manager="m")
    assert 'User "bob" cannot patch resource "configmaps"' in caught.value.message
    assert "permission" in caught.value.fix
    assert json.dumps(caught.value.as_dict())
