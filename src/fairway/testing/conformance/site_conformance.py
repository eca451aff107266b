"""Conformance suite for cross-site requests that routers at a loopback address must refuse."""

from __future__ import annotations

from fairway.state.serving.route import WHOLE, RoutePlan
from fairway.testing.conformance.router_conformance import SERVICE
from fairway.testing.conformance.router_stage import LocalRouterStage

_HOSTS = ("localhost", "localhost:8000", "127.0.0.1:1", "[::1]:8000", "gpu7", "evil.example", "localhost.evil.example:80")
_FORM = "application/x-www-form-urlencoded"

_SENT: tuple[tuple[int, dict[str, str]], ...] = (
    (200, {}),
    (200, {"Content-Type": _FORM}),
    (200, {"Content-Type": "application/json", "Origin": "https://evil.example", "Sec-Fetch-Site": "cross-site"}),
    (200, {"Content-Type": "text/plain", "Origin": "http://localhost:3000"}),
    (403, {"Content-Type": "text/plain;charset=UTF-8", "Origin": "https://evil.example"}),
    (403, {"Content-Type": _FORM, "Sec-Fetch-Site": "cross-site"}),
    (403, {"Origin": "null"}),
)


class SiteConformance:
    """The tests; subclasses provide the fixture `world`."""

    async def test_pages_of_other_sites_send_nothing(self, world: LocalRouterStage) -> None:
        port = await world.router.put(RoutePlan(SERVICE, (await world.backend("a", 1),), ((1, WHOLE),)))
        for status, lines in _SENT:
            assert ((await world.ask(port, lines)).status, lines) == (status, lines)

    async def test_other_names_are_refused(self, world: LocalRouterStage) -> None:
        backends = (await world.backend("a", 1),)
        port = await world.router.put(RoutePlan(SERVICE, backends, ((1, WHOLE),), hosts=("gpu7",)))
        statuses = {host: await world.status_at(port, host) for host in _HOSTS}
        assert statuses == {host: 403 if "evil" in host else 200 for host in _HOSTS}
