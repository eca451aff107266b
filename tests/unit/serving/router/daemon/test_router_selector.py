"""Which router a service gets, and that it keeps it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from fairway.errors import ConflictError
from fairway.serving.router.daemon.router_selector import RouterSelector, needs_own
from fairway.spec.service import ServiceSpec
from fairway.state.serving.load import RouteLoad
from fairway.state.serving.route import RoutePlan, RouterFault


class Remembering:
    """A router that remembers, also for the next daemon; it fails on request of the test."""

    def __init__(self) -> None:
        self.plans: dict[str, RoutePlan] = {}
        self.problem: Exception | None = None

    async def start(self, wake: Callable[[], None]) -> None: ...

    async def close(self) -> None: ...

    async def put(self, plan: RoutePlan) -> int:
        if self.problem:
            raise self.problem
        self.plans[plan.service] = plan
        return 1

    async def drop(self, service: str) -> None:
        del self.plans[service]

    async def look(self) -> dict[str, RouteLoad]:
        if self.problem:
            raise self.problem
        return {service: RouteLoad(1.0) for service in self.plans}

    async def troubles(self) -> dict[str, RouterFault]:
        return {}

    async def kept(self) -> list[str]:
        return list(self.plans)


class Both:
    """Two routers, and daemons that run one after the other."""

    def __init__(self) -> None:
        self.own, self.envoy = Remembering(), Remembering()
        self.reasons: dict[str, str] = {}

    async def begin(self, *, wanted: bool = True) -> RouterSelector:
        router = RouterSelector(self.own, self.envoy, wanted=wanted)
        router.reason = lambda service: self.reasons.get(service, "")
        await router.start(lambda: None)
        return router


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ({"model": "m"}, ""),
        ({"model": "m", "replicas": {"min": 0, "max": 2}}, "Envoy does not hold requests"),
        ({"model": "m", "rollout": {"guard": {"metric": {"name": "clicks"}}}}, "the metric clicks"),
        ({"model": "m", "rollout": {"strategy": "shadow", "guard": {"outputs": {}}}}, "compares outputs"),
    ],
)
def test_what_envoy_cannot_do_is_named(spec: dict[str, object], said: str) -> None:
    found = needs_own(ServiceSpec.model_validate(spec))
    assert said in found
    assert bool(said) == bool(found)


async def test_new_services_get_envoy_unless_they_need_ours() -> None:
    both = Both()
    both.reasons["default/b"] = "it may have no replica"
    router = await both.begin()
    for service in ("default/a", "default/b"):
        await router.put(RoutePlan(service))
    assert (list(both.envoy.plans), list(both.own.plans)) == (["default/a"], ["default/b"])
    assert (router.told("default/a"), router.told("default/b")) == ("Envoy", "fairway's own: it may have no replica")
    assert (await router.look()).keys() == {"default/a", "default/b"}
    assert await router.kept() == ["default/a", "default/b"]
    await router.drop("default/a")
    assert not both.envoy.plans


async def test_a_service_keeps_its_router_across_daemons_and_settings() -> None:
    both = Both()
    await (await both.begin(wanted=False)).put(RoutePlan("default/a"))
    router = await both.begin()
    await router.put(RoutePlan("default/a"))
    await router.put(RoutePlan("default/b"))
    assert (list(both.own.plans), list(both.envoy.plans)) == (["default/a"], ["default/b"])
    assert "recreate the service" in router.told("default/a")
    back = await both.begin(wanted=False)
    await back.put(RoutePlan("default/b"))
    assert (sorted(both.own.plans), list(both.envoy.plans)) == (["default/a", "default/b"], [])
    assert back.told("default/a") == ""


async def test_one_that_comes_to_need_ours_moves() -> None:
    both = Both()
    router = await both.begin()
    await router.put(RoutePlan("default/a"))
    both.reasons["default/a"] = "it may have no replica"
    await router.put(RoutePlan("default/a"))
    assert (list(both.own.plans), list(both.envoy.plans)) == (["default/a"], [])


async def test_an_envoy_that_fails_holds_up_nobody() -> None:
    both = Both()
    router = await both.begin()
    await router.put(RoutePlan("default/a"))
    both.envoy.problem = ConflictError("it does not listen")
    with pytest.raises(OSError, match="it does not listen"):
        await router.put(RoutePlan("default/a"))
    await router.put(RoutePlan("default/b"))
    assert list(both.own.plans) == ["default/b"]
    assert (await router.look()).keys() == {"default/b"}
