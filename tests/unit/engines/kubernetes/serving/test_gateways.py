"""What leads to services by a gateway goes with it, whoever wrote it; what others wrote stays."""

from __future__ import annotations

from typing import Any, cast

import msgspec
import pytest

from fairway.engines.kubernetes import marks
from fairway.engines.kubernetes.client import errors
from fairway.engines.kubernetes.client.api import Client
from fairway.engines.kubernetes.objects import Service
from fairway.engines.kubernetes.operator.installation import Installation
from fairway.engines.kubernetes.serving.gateways import Gateways
from fairway.state.service import ServiceKey

KEY = ServiceKey("team", "adds")
FRONT = msgspec.convert({"metadata": {"name": "adds-serving", "namespace": "team"}}, Service)


class ApiServer:
    """Objects by plural and name; counts what is asked."""

    def __init__(self, labels: dict[str, str]) -> None:
        self.there = {("httproutes", "adds"): labels, ("endpointslices", "adds-serving-gateway"): labels}
        self.asked = 0

    async def get(self, resource: Any, name: str, _namespace: str) -> dict[str, Any]:
        self.asked += 1
        if (resource.plural, name) not in self.there:
            raise errors.NotFound("no such thing", fix="none", asked="get", http=404)
        return {"metadata": {"uid": "u", "labels": self.there[resource.plural, name]}}

    async def delete(self, resource: Any, name: str, _namespace: str, *, uid: str) -> bool:
        assert uid == "u"
        return bool(self.there.pop((resource.plural, name)))


def gateways(server: ApiServer, gateway: str = "infra/front") -> Gateways:
    return Gateways(cast("Client", server), Installation(image="i", gateway=gateway), lambda: 0.0)


async def test_an_operator_that_begins_takes_away_what_the_one_before_had_written_and_looks_once() -> None:
    server = ApiServer({marks.SERVICE: "adds"})
    found = gateways(server)
    await found.leave(KEY, FRONT, None)
    assert (server.there, server.asked) == ({}, 2)
    await found.leave(KEY, FRONT, None)
    assert server.asked == 2


@pytest.mark.parametrize(("labels", "gateway"), [({}, "infra/front"), ({marks.SERVICE: "adds"}, "")])
async def test_what_is_not_ours_stays_and_without_a_gateway_nobody_looks(labels: dict[str, str], gateway: str) -> None:
    server = ApiServer(labels)
    await gateways(server, gateway).leave(KEY, FRONT, None)
    assert len(server.there) == 2
    assert server.asked == (2 if gateway else 0)
