"""Where a service's traffic goes while a gateway appears, reports status, fails and disappears: never to an unready backend."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from fairway.engines.kubernetes.client import errors
from fairway.engines.kubernetes.client.api import ApiClient
from fairway.engines.kubernetes.client.api_path import ApiResource
from fairway.engines.kubernetes.objects import KubernetesService as ServiceObject
from fairway.engines.kubernetes.objects import KubernetesServicePort, ObjectMetadata
from fairway.engines.kubernetes.objects import KubernetesServiceSpec as ServiceObjectSpec
from fairway.engines.kubernetes.operator.installation import InstallationSettings
from fairway.engines.kubernetes.serving.gateway_sync import LOOK_EVERY, PATIENCE, GatewaySync, RequestPath
from fairway.plan.service import service_command
from fairway.spec.service import ServiceSpec
from fairway.state.job import SubmissionOrigin
from fairway.state.service import ServiceKey, ServiceState
from fairway.state.serving.route import RouteBackend, RouteMirror, RoutePlan

KEY = ServiceKey("team", "adds")
OWNER = {"apiVersion": "v1", "kind": "Service", "name": "adds", "uid": "u"}
PLAN = RoutePlan("team/adds", (RouteBackend("r1-1", 1, "10.0.0.1:20000"),), weights=((1, 10_000),))
NOBODY = RoutePlan("team/adds")


@dataclass
class Listed:
    items: list[dict[str, Any]]


@dataclass
class Cluster:
    """Plain objects by path, as far as gateways need them."""

    objects: dict[str, dict[str, Any]] = field(default_factory=dict)
    deleted: list[str] = field(default_factory=list)
    forgets: str = ""
    """A field of routes that this API server drops."""

    async def get(self, resource: ApiResource[Any], name: str, namespace: str = "") -> dict[str, Any]:
        found = self.objects.get(f"{resource.plural}/{name}")
        if found is None:
            raise errors.NotFound("there is none")
        return found

    async def apply(self, resource: ApiResource[Any], body: dict[str, Any], *, manager: str) -> dict[str, Any]:
        path = f"{resource.plural}/{body['metadata']['name']}"
        before = self.objects.get(path, {"metadata": {"generation": 0}})
        made = copy.deepcopy(body)
        for rule in made["spec"]["rules"] if "spec" in made else ():
            for one in rule.get("filters", ()):
                one["requestMirror"].pop(self.forgets, None)
        made["metadata"] |= {"generation": before["metadata"]["generation"] + 1, "uid": "0"}
        self.objects[path] = {**made, "status": before.get("status", {})}
        return self.objects[path]

    async def list(self, resource: ApiResource[Any], namespace: str, *, labels: str) -> Listed:
        return Listed([one for path, one in self.objects.items() if path.startswith(f"{resource.plural}/")])

    async def delete(self, resource: ApiResource[Any], name: str, namespace: str, *, uid: str = "") -> bool:
        self.deleted.append(f"{resource.plural}/{name}")
        return self.objects.pop(f"{resource.plural}/{name}", None) is not None

    def judge(self, accepted: str) -> None:
        """Set the gateway's status for the current generation of the route."""
        route = self.objects["httproutes/adds"]
        said = {"observedGeneration": route["metadata"]["generation"], "reason": "Because", "message": "of that"}
        conditions = [{"type": "Accepted", "status": accepted, **said}, {"type": "ResolvedRefs", "status": "True", **said}]
        parent = {"name": "front", "namespace": "infra", "sectionName": "http"}
        route["status"] = {"parents": [{"parentRef": parent, "conditions": conditions}]}

    def routed_to(self) -> list[str]:
        return [one["name"] for one in self.objects["httproutes/adds"]["spec"]["rules"][-1]["backendRefs"]]


class World:
    """Gateways over such a cluster, with a clock that the test advances."""

    def __init__(self, gateway: str = "infra/front") -> None:
        self.now = 100.0
        self.cluster = Cluster()
        listener = {"name": "http", "protocol": "HTTP", "port": 8080, "allowedRoutes": {"namespaces": {"from": "All"}}}
        self.cluster.objects = {
            "gateways/front": {
                "metadata": {"name": "front", "namespace": "infra"},
                "spec": {"gatewayClassName": "some", "listeners": [listener]},
                "status": {"addresses": [{"value": "10.9.9.9"}]},
            },
            "gatewayclasses/some": {"status": {"supportedFeatures": [{"name": "HTTPRoute"}]}},
        }
        self.selector = {"router": "ours"}
        self.begin(gateway)

    def begin(self, gateway: str = "infra/front") -> None:
        """Start a new operator."""
        installation = InstallationSettings(image="fairway:1", gateway=gateway)
        self.gateways = GatewaySync(cast(ApiClient, self.cluster), installation, lambda: self.now)

    @property
    def front(self) -> ServiceObject:
        spec = ServiceObjectSpec(selector=self.selector, ports=(KubernetesServicePort(80),))
        return ServiceObject(metadata=ObjectMetadata(name="adds", namespace="team"), spec=spec)

    async def way(self, plan: RoutePlan = PLAN, **spec: Any) -> RequestPath:
        return await self.gateways.way(service(**spec), plan, self.front, OWNER)


def service(**spec: Any) -> ServiceState:
    asked = ServiceSpec.model_validate({"model": "adds@1", **spec})
    return service_command.applied(None, KEY, asked, "adds@1", "onnx", SubmissionOrigin(), {}, 0.0)


async def test_a_gateway_leads_from_the_moment_that_it_says_so() -> None:
    world, told = World(), []
    world.gateways.changed = told.append
    first = await world.way()
    assert (first.leads, first.waits) == (False, True)
    world.cluster.judge("False")
    assert (await world.way()).waits, "it may not know yet what the route names"
    world.cluster.objects["httproutes/adds"]["status"] = {}
    world.now += PATIENCE
    late = await world.way()
    assert (late.leads, late.waits) == (False, False)
    assert "has not reported yet" in late.word
    world.cluster.judge("False")
    refused = await world.way()
    assert not refused.leads
    assert "Because: of that" in refused.word
    world.cluster.judge("True")
    assert (await world.way()).leads
    assert world.gateways.leads(KEY)
    assert len(told) == 4


async def test_another_route_that_is_not_judged_yet_leaves_whoever_leads() -> None:
    world = World()
    await world.way()
    world.cluster.judge("True")
    assert (await world.way()).leads
    world.selector = {}
    other = RoutePlan("team/adds", (*PLAN.backends, RouteBackend("r2-1", 2, "10.0.0.2:20000")), weights=((1, 5_000), (2, 5_000)))
    way = await world.way(other)
    assert (way.leads, way.unheard) == (True, True), "replicas stay until the gateway has heard of it"
    assert world.cluster.routed_to() == ["adds-r1", "adds-r2"]
    world.now += PATIENCE
    assert not (await world.way(other)).unheard, "one that says nothing for long holds nobody up"
    world.cluster.judge("True")
    assert not (await world.way(other)).unheard


async def test_until_our_router_has_taken_over_requests_go_where_the_plan_says() -> None:
    world = World()
    await world.way()
    world.cluster.judge("True")
    await world.way()
    world.selector = {}
    other = RoutePlan(
        "team/adds", (RouteBackend("r2-1", 2, "10.0.0.2:20000"),), weights=((2, 10_000),), mirror=RouteMirror(1, 5_000)
    )
    way = await world.way(other)
    assert (way.own, way.unheard) == (True, True)
    assert world.cluster.routed_to() == ["adds-r2"]
    assert "filters" not in world.cluster.objects["httproutes/adds"]["spec"]["rules"][-1]
    world.cluster.judge("True")
    assert not (await world.way(other)).unheard


async def test_a_new_operator_that_knows_nobody_ready_leaves_the_route_as_it_is() -> None:
    world = World()
    both = RoutePlan("team/adds", (*PLAN.backends, RouteBackend("r2-1", 2, "10.0.0.2:20000")), weights=((1, 5_000), (2, 5_000)))
    await world.way(both)
    world.cluster.judge("True")
    world.selector = {}
    world.begin()
    assert (await world.way(NOBODY)).leads
    assert world.cluster.routed_to() == ["adds-r1", "adds-r2"]


@pytest.mark.parametrize(
    ("spec", "plan", "word"),
    [
        ({"replicas": {"min": 0, "max": 1}}, PLAN, "lets no request wait"),
        ({"rollout": {"strategy": "shadow"}}, PLAN, "HTTPRouteRequestMirror"),
        ({}, RoutePlan("team/adds", PLAN.backends, weights=PLAN.weights, mirror=RouteMirror(1, 5_000)), "HTTPRouteRequestMirror"),
    ],
)
async def test_what_the_gateway_cannot_do_needs_our_router(spec: dict[str, Any], plan: RoutePlan, word: str) -> None:
    way = await World().way(plan, **spec)
    assert (way.leads, way.waits, way.own) == (False, False, True)
    assert word in way.word


async def test_parts_of_copies_that_an_older_api_forgets_need_our_router() -> None:
    world = World()
    world.cluster.objects["gatewayclasses/some"] = {}
    world.cluster.forgets = "fraction"
    plan = RoutePlan("team/adds", PLAN.backends, weights=PLAN.weights, mirror=RouteMirror(1, 5_000))
    assert "too old" in (await world.way(plan)).word


async def test_a_gateway_that_comes_later_is_found_and_a_missing_api_is_no_trouble() -> None:
    world = World()
    kept = {path: world.cluster.objects.pop(path) for path in ("gateways/front", "gatewayclasses/some")}
    assert (await world.way()).word == "there is no gateway infra/front"
    world.cluster.objects.update(kept)
    world.now += LOOK_EVERY
    assert (await world.way()).waits


async def test_labels_of_a_namespace_are_asked_for_where_a_gateway_chooses_by_them() -> None:
    world = World()
    (listener,) = world.cluster.objects["gateways/front"]["spec"]["listeners"]
    chosen = {"from": "Selector", "selector": {"matchLabels": {"kind": "research"}}}
    listener["allowedRoutes"] = {"namespaces": chosen}
    team = world.cluster.objects["namespaces/team"] = {"metadata": {"name": "team"}}
    assert "accepts no route from the namespace team" in (await world.way()).word
    team["metadata"]["labels"] = {"kind": "research"}
    assert (await world.way()).waits


async def test_the_name_leads_to_the_gateway_alone_whatever_the_selector_left() -> None:
    world = World()
    way = await world.way()
    assert way.gateway is not None
    await world.gateways.lead(KEY, "adds", way.gateway, OWNER)
    world.cluster.objects["endpointslices/adds-abc"] = {"metadata": {"name": "adds-abc", "uid": "1"}}
    await world.gateways.alone(KEY, "adds")
    assert world.cluster.deleted == ["endpoints/adds", "endpointslices/adds-abc"]
    await world.gateways.alone(KEY, "adds")
    assert len(world.cluster.deleted) == 2


async def test_the_name_leaves_the_gateway_when_our_router_is_ready_and_the_route_follows() -> None:
    world = World()
    way = await world.way()
    assert way.gateway is not None
    await world.gateways.lead(KEY, "adds", way.gateway, OWNER)
    own = await world.way(replicas={"min": 0, "max": 1})
    assert await world.gateways.leave(KEY, world.front, own, OWNER), "no router is ready"
    ready = {"metadata": {"name": "adds-abc", "uid": "1"}, "endpoints": [{"conditions": {"ready": True}}]}
    world.cluster.objects["endpointslices/adds-abc"] = ready
    assert await world.gateways.leave(KEY, world.front, own, OWNER), "the gateway must see first that the name leads elsewhere"
    assert world.cluster.deleted == ["endpointslices/adds-gateway"]
    assert world.cluster.routed_to() == ["adds-r1"]
    assert await world.gateways.leave(KEY, world.front, own, OWNER) is None
    assert world.cluster.routed_to() == ["adds"]
    # There are replicas again, but none is ready: the gateway must not route to a name that leads back to the gateway.
    world.cluster.judge("True")
    assert not (await world.way(NOBODY)).leads
    del world.cluster.objects["gateways/front"]
    world.now += LOOK_EVERY
    assert await world.gateways.leave(KEY, world.front, await world.way(), OWNER) is None
    assert world.cluster.deleted[1:] == ["httproutes/adds"]


@pytest.mark.parametrize(("labels", "goes"), [({"fairway.dev/service": "adds"}, True), ({}, False)])
async def test_a_route_that_another_operator_wrote_goes_too_and_that_of_somebody_else_stays(labels: Any, goes: bool) -> None:
    world = World()
    world.cluster.objects = {"httproutes/adds": {"metadata": {"uid": "0", "labels": labels}}}
    way = await world.way()
    for _ in range(2):
        assert await world.gateways.leave(KEY, world.front, way, OWNER) is None
    assert world.cluster.deleted == (["httproutes/adds"] if goes else [])


async def test_a_route_whose_deletion_failed_is_deleted_at_the_next_look(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    world.cluster.objects = {"httproutes/adds": {"metadata": {"uid": "0", "labels": {"fairway.dev/service": "adds"}}}}
    way = await world.way()
    delete = world.cluster.delete

    async def fail(*_args: Any, **_options: Any) -> bool:
        raise OSError("no route to host")

    monkeypatch.setattr(world.cluster, "delete", fail)
    with pytest.raises(OSError, match="no route"):
        await world.gateways.leave(KEY, world.front, way, OWNER)
    monkeypatch.setattr(world.cluster, "delete", delete)
    await world.gateways.leave(KEY, world.front, way, OWNER)
    assert world.cluster.deleted == ["httproutes/adds"]


async def test_without_a_gateway_of_the_installation_nothing_is_asked() -> None:
    world = World("")
    world.cluster.objects.clear()
    assert await world.way() == RequestPath()
