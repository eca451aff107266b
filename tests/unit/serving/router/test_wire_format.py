from __future__ import annotations

import math
from dataclasses import replace

import msgspec
import pytest

from fairway.errors import BugError
from fairway.serving.router.counter import BackendCounters, RevisionCounters
from fairway.serving.router.wire_format import add_loads, decode_load, decode_plan, encode_load, encode_plan
from fairway.state.serving.access import AccessRules, CorsRule, TlsRule
from fairway.state.serving.load import LATENCY_BOUNDS, BackendLoad, OutputComparison, RevisionLoad, RouteLoad
from fairway.state.serving.route import RouteBackend, RouteHeaderMatch, RouteMirror, RoutePlan

PLAN = RoutePlan(
    "default/mnist",
    (RouteBackend("r1-1", 1, "127.0.0.1:40123"), RouteBackend("r2-7", 2, "127.0.0.1:40124")),
    ((1, 9_500), (2, 500)),
    (RouteHeaderMatch("x-group", "beta", 2),),
    sticky="x-user",
    mirror=RouteMirror(3, 100),
    port=8000,
    hold_seconds=5.0,
)


def test_a_plan_comes_back_as_it_was() -> None:
    assert decode_plan(encode_plan(PLAN)) == PLAN
    assert b"\n" not in encode_plan(PLAN)


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b'{"service": 1}'])
def test_what_is_no_plan(data: bytes) -> None:
    with pytest.raises(BugError):
        decode_plan(data)


@pytest.mark.parametrize("address", ["", "127.0.0.1", "127.0.0.1:", ":80", "127.0.0.1:0", "127.0.0.1:65536", "127.0.0.1:x"])
def test_an_address_that_leads_nowhere(address: str) -> None:
    with pytest.raises(BugError) as caught:
        decode_plan(encode_plan(RoutePlan("a/b", (RouteBackend("r1-1", 1, address),))))
    assert "r1-1" in caught.value.message


def test_a_load_comes_back_as_it_was() -> None:
    revision = RevisionLoad(arrived=4, latency=(1, 2) + (0,) * (len(LATENCY_BOUNDS) - 1), outcomes={"x": (1, 2.0, 4.0)})
    load = RouteLoad(1.0, "a", 2, 0.5, 7, 1, {3: revision}, {"r3-1": BackendLoad(in_flight=2)})
    assert decode_load(encode_load(load)) == load


def test_two_routers_of_one_service_are_added_up() -> None:
    load = RouteLoad(
        5.0, "b", 1, 3.0, 10, 1, {1: RevisionLoad(5, 4, latency=(1, 2), latency_sum=0.5)}, {"x": BackendLoad(1, 2, 3, 4, 5.0)}
    )
    two = RouteLoad(
        5.0, "a", 2, 2.0, 20, 2, {1: RevisionLoad(7, 6, latency=(3, 4), latency_sum=1.5), 2: RevisionLoad(1)},
        {"x": BackendLoad(1, 1, 1, 1, 1.0), "y": BackendLoad(2)},
    )  # fmt: skip
    assert add_loads([load]) == load
    assert add_loads([load, two]) == RouteLoad(
        5.0, "a+b", 3, 2.0, 30, 3,
        {1: RevisionLoad(12, 10, latency=(4, 6), latency_sum=2.0), 2: RevisionLoad(1)},
        {"x": BackendLoad(2, 3, 4, 5, 6.0), "y": BackendLoad(2)},
    )  # fmt: skip
    assert add_loads([load, RouteLoad(5.0, "c")]).revisions[1].latency == (1, 2)


def test_answers_are_counted_by_what_they_are() -> None:
    count = RevisionCounters()
    for status in (200, 302, 404, 429, 500, 503):
        count.ended(status, 0.001)
    load = count.load()
    assert (load.answered, load.client_errors, load.rejected, load.failed) == (3, 1, 1, 2)
    assert (len(load.latency), sum(load.latency), round(load.latency_sum, 6)) == (len(LATENCY_BOUNDS) + 1, 1, 0.001)
    bucket = next(number for number, found in enumerate(load.latency) if found)
    assert LATENCY_BOUNDS[bucket - 1] < 0.001 <= LATENCY_BOUNDS[bucket]
    count.took(1e9)
    assert count.load().latency[-1] == 1
    assert RevisionCounters().load().latency == ()


def test_answers_to_copies_are_counted_by_what_they_are() -> None:
    count = RevisionCounters()
    count.mirrored = 5
    for status in (200, 302, 400, 429, 500):
        count.copy_ended(status, 0.001)
    load = count.load()
    assert (load.mirrored, load.mirror_client_errors, load.mirror_failed) == (5, 1, 1)
    assert (load.answered, load.client_errors, load.failed, sum(load.latency)) == (0, 0, 0, 1)


def test_a_router_of_an_earlier_version_has_no_client_errors_of_copies() -> None:
    sent = encode_load(RouteLoad(1.0, revisions={2: RevisionLoad(mirrored=3, mirror_client_errors=2)}))
    assert decode_load(sent).revisions[2].mirror_client_errors == 2
    earlier = sent.replace(b',"mirror_client_errors":2', b"")
    assert earlier != sent
    assert decode_load(earlier).revisions[2] == RevisionLoad(mirrored=3)
    with pytest.raises(ValueError, match="a number out of range"):
        decode_load(sent.replace(b'"mirror_client_errors":2', b'"mirror_client_errors":-2'))


def test_routers_of_an_earlier_version_compare_nothing() -> None:
    outputs = OutputComparison(compared=9, differing=2, largest=0.5)
    sent = encode_load(RouteLoad(1.0, revisions={2: RevisionLoad(mirrored=9, outputs=outputs)}))
    assert decode_load(sent).revisions[2].outputs == outputs
    earlier = msgspec.json.decode(sent)
    del earlier["revisions"]["2"]["outputs"]
    assert decode_load(msgspec.json.encode(earlier)).revisions[2] == RevisionLoad(mirrored=9)
    for wrong in (b'"compared":-9', b'"compared":1.5', b'"compared":99999999999999999999'):
        with pytest.raises(ValueError, match="load"):
            decode_load(sent.replace(b'"compared":9', wrong))
    with pytest.raises(ValueError, match="load"):
        decode_load(sent.replace(b'"largest":0.5', b'"largest":1e300'))
    plan = replace(PLAN, mirror=RouteMirror(3, 100, tolerance=0.25))
    assert decode_plan(encode_plan(plan)) == plan
    earlier = msgspec.json.decode(encode_plan(plan))
    del earlier["mirror"]["tolerance"]
    assert decode_plan(msgspec.json.encode(earlier)) == PLAN


def test_busy_time_is_counted_once() -> None:
    count = BackendCounters()
    count.begin(1.0)
    count.begin(2.0)
    assert count.load(3.0) == BackendLoad(in_flight=2, busy_seconds=2.0)
    count.end(4.0)
    count.end(5.0)
    assert count.load(9.0) == BackendLoad(busy_seconds=4.0)
    count.begin(10.0)
    assert count.load(10.5).busy_seconds == 4.5


def load(**more: object) -> bytes:
    return encode_load(RouteLoad(time=0.0, epoch="e", revisions={1: RevisionLoad(**more)}))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "said",
    [
        b"", b"{", b'{"time":1e999}', b'{"time":null}', b'{"time":0,"arrived":-1}', b'{"time":0,"arrived":%d}' % 2**70,
        b'{"time":0,"arrived":1.5}', b'{"time":0,"held_since":1e300}', load(latency=(1,)), load(latency_sum=math.inf),
        load(latency_sum=1e300), load(answered=-5), b'{"time":0,"backends":{"a":{"busy_seconds":1e200}}}',
        b'{"time":0,"revisions":{"1":{"outcomes":{"x":[1,null,null]}}}}', b'{"time":0,"revisions":{"x":{}}}',
    ],
)  # fmt: skip
def test_a_load_that_no_router_can_have_counted(said: bytes) -> None:
    with pytest.raises(ValueError, match="load"):
        decode_load(said)


@pytest.mark.parametrize("outcome", [(1, 1e308, 1.0), (1, 1.0, 1e300), (1, 1.0, -1.0), (-1, 1.0, 1.0), (2**60, 1.0, 1.0)])
def test_outcomes_that_cannot_be_compared_are_left_out(outcome: tuple[int, float, float]) -> None:
    found = decode_load(load(answered=3, outcomes={"good": (2, 3.0, 5.0), "bad": outcome})).revisions[1]
    assert (found.answered, found.outcomes) == (3, {"good": (2, 3.0, 5.0)})


class _PlanOfOldRouters(msgspec.Struct):
    """The fields of a plan that a router without access rules requires."""

    service: str


def test_a_plan_with_rules_is_refused_by_routers_that_do_not_know_them() -> None:
    plan = RoutePlan("default/mnist", access=AccessRules(keys_required=True, tls=TlsRule("/a", "/b"), cors=CorsRule(("*",))))
    wire = encode_plan(plan)
    assert decode_plan(wire) == plan
    with pytest.raises(msgspec.ValidationError, match="service"):
        msgspec.json.decode(wire, type=_PlanOfOldRouters)
    open_plan = RoutePlan("default/mnist")
    assert msgspec.json.decode(encode_plan(open_plan), type=_PlanOfOldRouters).service == "default/mnist"
    assert decode_plan(encode_plan(open_plan)) == open_plan
