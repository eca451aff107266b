"""Conformance suite of the `ServiceRouter` port. Subclass it in a test module with a fixture `world`, a `RouterStage`."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Protocol

from fairway.app.port.serving import ServiceRouter
from fairway.state.serving.route import WHOLE, RouteBackend, RouteHeaderMatch, RouteMirror, RoutePlan

SERVICE = "default/mnist"


@dataclass(frozen=True, slots=True)
class RouterReply:
    """The result of a request."""

    status: int
    backend: str = ""
    revision: int | None = None


class RouterStage(Protocol):
    """A router with its clients and replicas."""

    router: ServiceRouter
    exact: bool
    """Whether weights are exact and latencies are counted at once, or only on average and with a delay."""
    holds: bool
    """Whether the router holds requests while there is no backend."""
    woken: asyncio.Event

    async def backend(self, name: str, revision: int) -> RouteBackend:
        """Start a replica that responds; return its backend."""
        ...

    async def refuse(self, backend: RouteBackend) -> None:
        """Make a replica refuse connections."""
        ...

    async def answer(self, backend: RouteBackend, status: int) -> None:
        """Make a replica respond with this status from now on."""
        ...

    async def ask(self, port: int, headers: Mapping[str, str] | None = None) -> RouterReply:
        """Send a POST; raise `ConnectionRefusedError` when the port is closed."""
        ...

    async def copies(self, backend: RouteBackend, number: int) -> None:
        """Wait until this many copies of requests have reached the replica."""
        ...

    async def restart(self) -> None:
        """Simulate a restart of the daemon: replace `router` by a new one over the same state."""
        ...


async def ask_many(world: RouterStage, port: int, number: int, headers: Mapping[str, str] | None = None) -> Counter[int | None]:
    """Send requests and return the answers by revision; all must have status 200."""
    replies = [await world.ask(port, headers) for _ in range(number)]
    assert {reply.status for reply in replies} == {200}
    return Counter(reply.revision for reply in replies)


async def waits(world: RouterStage, number: int) -> None:
    """Wait until this many requests are held."""
    async with asyncio.timeout(30.0):
        while True:
            load = (await world.router.look()).get(SERVICE)
            if load is not None and load.held == number:
                return
            await asyncio.sleep(0.01)


class RouterConformance:
    """The suite."""

    async def test_the_port_stays(self, world: RouterStage) -> None:
        plan = RoutePlan(SERVICE, (await world.backend("a", 1),), ((1, WHOLE),))
        port = await world.router.put(plan)
        assert port > 0
        assert await world.router.put(plan) == port
        assert await world.router.put(replace(plan, weights=((1, 1),))) == port
        assert await world.ask(port) == RouterReply(200, "a", 1)
        assert await world.router.kept() == [SERVICE]

    async def test_services_are_apart(self, world: RouterStage) -> None:
        first_port = await world.router.put(RoutePlan("default/one", (await world.backend("a", 1),), ((1, WHOLE),)))
        second_port = await world.router.put(RoutePlan("default/two", (await world.backend("b", 1),), ((1, WHOLE),)))
        assert first_port != second_port
        assert (await world.ask(first_port)).backend == "a"
        assert (await world.ask(second_port)).backend == "b"
        assert await world.router.kept() == ["default/one", "default/two"]

    async def test_weights(self, world: RouterStage) -> None:
        backends = (await world.backend("a", 1), await world.backend("b", 2))
        port = await world.router.put(RoutePlan(SERVICE, backends, ((1, 7_500), (2, 2_500))))
        answers_by_revision = await ask_many(world, port, 200)
        if world.exact:
            assert answers_by_revision == {1: 150, 2: 50}
        else:
            assert 100 < answers_by_revision[1] < 190
        await world.router.put(RoutePlan(SERVICE, backends, ((1, 0), (2, WHOLE))))
        assert await ask_many(world, port, 20) == {2: 20}

    async def test_a_revision_without_a_backend_gives_its_part_away(self, world: RouterStage) -> None:
        port = await world.router.put(RoutePlan(SERVICE, (await world.backend("a", 1),), ((1, 1_000), (2, 9_000))))
        assert await ask_many(world, port, 10) == {1: 10}

    async def test_backends_share(self, world: RouterStage) -> None:
        backends = (await world.backend("a", 1), await world.backend("b", 1))
        port = await world.router.put(RoutePlan(SERVICE, backends, ((1, WHOLE),)))
        answers_by_backend = Counter([(await world.ask(port)).backend for _ in range(40)])
        assert min(answers_by_backend["a"], answers_by_backend["b"]) >= 5
        await world.router.put(RoutePlan(SERVICE, backends[:1], ((1, WHOLE),)))
        assert {(await world.ask(port)).backend for _ in range(20)} == {"a"}

    async def test_matches_go_first(self, world: RouterStage) -> None:
        backends = (await world.backend("a", 1), await world.backend("b", 2))
        matches = (RouteHeaderMatch("x-group", "beta", 2), RouteHeaderMatch("x-group", "gamma", 3))
        port = await world.router.put(RoutePlan(SERVICE, backends, ((1, WHOLE),), matches))
        assert await ask_many(world, port, 10) == {1: 10}
        assert await ask_many(world, port, 10, {"X-Group": "beta"}) == {2: 10}
        assert await ask_many(world, port, 10, {"x-group": "gamma"}) == {1: 10}
        assert await ask_many(world, port, 10, {"x-group": "betas"}) == {1: 10}

    async def test_senders_stay(self, world: RouterStage) -> None:
        backends = (await world.backend("a", 1), await world.backend("b", 2))
        plan = RoutePlan(SERVICE, backends, ((1, 8_000), (2, 2_000)), sticky="x-user")
        port = await world.router.put(plan)
        users = [{"x-user": f"user-{number}"} for number in range(60)]
        first = [(await world.ask(port, user)).revision for user in users]
        assert [(await world.ask(port, user)).revision for user in users] == first
        assert set(first) == {1, 2}
        await world.router.put(replace(plan, weights=((1, 4_000), (2, 6_000))))
        second = [(await world.ask(port, user)).revision for user in users]
        moved = [(before, after) for before, after in zip(first, second, strict=True) if before != after]
        assert set(moved) == {(1, 2)}

    async def test_a_mirror_gets_copies_and_answers_nobody(self, world: RouterStage) -> None:
        backends = (await world.backend("a", 1), await world.backend("b", 2))
        await world.answer(backends[1], 500)
        port = await world.router.put(RoutePlan(SERVICE, backends, ((1, WHOLE),), mirror=RouteMirror(2, WHOLE)))
        assert await ask_many(world, port, 10) == {1: 10}
        await world.copies(backends[1], 10)

    async def test_a_backend_that_refuses_is_passed_over(self, world: RouterStage) -> None:
        backends = (await world.backend("a", 1), await world.backend("b", 1))
        port = await world.router.put(RoutePlan(SERVICE, backends, ((1, WHOLE),)))
        await world.refuse(backends[0])
        assert {(await world.ask(port)).backend for _ in range(20)} == {"b"}

    async def test_what_is_counted(self, world: RouterStage) -> None:
        backends = (await world.backend("a", 1), await world.backend("b", 2))
        port = await world.router.put(RoutePlan(SERVICE, backends, ((1, WHOLE),)))
        for status in (200, 404, 429, 500):
            await world.answer(backends[0], status)
            assert (await world.ask(port)).status == status
        load = (await world.router.look())[SERVICE]
        revision_load = load.revisions[1]
        assert (
            load.arrived,
            revision_load.arrived,
            revision_load.answered,
            revision_load.client_errors,
            revision_load.rejected,
            revision_load.failed,
        ) == (4, 4, 2, 1, 1, 1)
        if world.exact:
            assert sum(revision_load.latency) == 1, "only successful answers count for the latency"
        assert load.backends["a"].in_flight == 0
        assert (load.held, load.held_since, load.expired) == (0, None, 0)

    async def test_client_errors_are_counted_by_version(self, world: RouterStage) -> None:
        backends = (await world.backend("a", 1), await world.backend("b", 2))
        port = await world.router.put(RoutePlan(SERVICE, backends, ((1, 5_000), (2, 5_000)), mirror=RouteMirror(2, WHOLE)))
        await world.answer(backends[1], 400)
        statuses = Counter([(await world.ask(port)).status for _ in range(40)])
        assert set(statuses) == {200, 400}
        async with asyncio.timeout(30.0):
            while True:
                revision_loads = (await world.router.look())[SERVICE].revisions
                if revision_loads[2].mirror_client_errors >= statuses[200]:
                    break
                await asyncio.sleep(0.05)
        assert (revision_loads[1].client_errors, revision_loads[2].client_errors) == (0, statuses[400])
        assert (revision_loads[1].answered, revision_loads[2].answered) == (statuses[200], statuses[400])
        assert revision_loads[2].mirror_failed == 0

    async def test_a_restart_of_the_daemon_changes_nothing(self, world: RouterStage) -> None:
        plan = RoutePlan(SERVICE, (await world.backend("a", 1),), ((1, WHOLE),))
        port = await world.router.put(plan)
        assert (await world.ask(port)).status == 200
        before = (await world.router.look())[SERVICE]
        await world.restart()
        assert (await world.ask(port)).status == 200
        assert await world.router.kept() == [SERVICE]
        after = (await world.router.look())[SERVICE]
        assert (after.epoch, after.arrived) == (before.epoch, 2)
        assert await world.router.put(plan) == port

    async def test_changes_under_load_fail_nobody(self, world: RouterStage) -> None:
        backends = (await world.backend("a", 1), await world.backend("b", 2))
        plans = [RoutePlan(SERVICE, backends[:1], ((1, WHOLE),)), RoutePlan(SERVICE, backends[1:], ((2, WHOLE),))]
        port = await world.router.put(plans[0])
        stop = asyncio.Event()
        statuses: Counter[int] = Counter()

        async def load() -> None:
            while not stop.is_set():
                statuses[(await world.ask(port)).status] += 1
                await asyncio.sleep(0)

        clients = [asyncio.create_task(load()) for _ in range(4)]
        for turn in range(12):
            await world.router.put(plans[turn % 2])
            await asyncio.sleep(0.01)
        stop.set()
        await asyncio.gather(*clients)
        assert set(statuses) == {200}

    async def test_a_drop_closes_the_socket(self, world: RouterStage) -> None:
        port = await world.router.put(RoutePlan(SERVICE, (await world.backend("a", 1),), ((1, WHOLE),)))
        await world.router.drop(SERVICE)
        assert await world.router.kept() == []
        assert await world.router.look() == {}
        try:
            await world.ask(port)
        except ConnectionRefusedError:
            return
        message = "the port of the dropped service still accepts connections"
        raise AssertionError(message)

    async def test_requests_wait_for_the_first_backend(self, world: RouterStage) -> None:
        if not world.holds:
            return
        port = await world.router.put(RoutePlan(SERVICE, weights=((1, WHOLE),)))
        requests = [asyncio.create_task(world.ask(port)) for _ in range(3)]
        async with asyncio.timeout(30.0):
            await world.woken.wait()
        await waits(world, 3)
        load = (await world.router.look())[SERVICE]
        assert load.arrived == 3
        assert load.held_since is not None
        assert load.held_since <= load.time
        backend = await world.backend("a", 1)
        await world.router.put(RoutePlan(SERVICE, (backend,), ((1, WHOLE),)))
        assert [reply.status for reply in await asyncio.gather(*requests)] == [200, 200, 200]
        load = (await world.router.look())[SERVICE]
        assert (load.held, load.expired, load.revisions[1].answered) == (0, 0, 3)

    async def test_too_many_or_too_long_is_answered_503(self, world: RouterStage) -> None:
        if not world.holds:
            return
        port = await world.router.put(RoutePlan(SERVICE, weights=((1, WHOLE),), hold_limit=1, hold_seconds=0.3))
        first = asyncio.create_task(world.ask(port))
        await waits(world, 1)
        assert (await world.ask(port)).status == 503
        assert (await first).status == 503
        assert (await world.router.look())[SERVICE].expired == 2

    async def test_a_drop_answers_those_who_wait(self, world: RouterStage) -> None:
        if not world.holds:
            return
        port = await world.router.put(RoutePlan(SERVICE, weights=((1, WHOLE),)))
        request = asyncio.create_task(world.ask(port))
        await waits(world, 1)
        await world.router.drop(SERVICE)
        assert (await request).status == 503
