"""Outcomes of answers, as reported by the clients."""

import math

import pytest
from router_stage import Answer, Stage

from fairway.serving.router.counter import LARGEST_SUM
from fairway.serving.router.message_head import RequestHead, read_request
from fairway.serving.router.outcome_report import MOST_OUTCOMES, read_outcome
from fairway.serving.router.routing.router_state import RouterLimits, RouterState
from fairway.serving.router.wire_format import decode_load, encode_load
from fairway.state.serving.route import RouteBackend, RoutePlan


def told(revision: str, outcome: str, *more: str) -> RequestHead:
    lines = [f"fairway-revision: {revision}", f"fairway-outcome: {outcome}", "host: x", *more]
    return read_request("\r\n".join(["POST /fairway/outcome HTTP/1.1", *lines, "content-length: 0", "", ""]).encode())


@pytest.mark.parametrize(
    ("outcome", "name", "value"), [("clicked=1", "clicked", 1.0), ("a.b-c=-2.5e-1", "a.b-c", -0.25), ("x=.5", "x", 0.5)]
)
def test_name_and_number(outcome: str, name: str, value: float) -> None:
    assert read_outcome(told("3", outcome)) == (3, name, value)


@pytest.mark.parametrize(
    "outcome", ["", "clicked", "clicked=", "clicked=yes", "=1", "a b=1", "x=1e999", "x=nan", "x=--1", "y" * 65 + "=1"]
)
def test_anything_else_is_refused(outcome: str) -> None:
    with pytest.raises(ValueError, match="NAME=NUMBER"):
        read_outcome(told("3", outcome))


@pytest.mark.parametrize("revision", ["", "-1", "r3", "9999999999"])
def test_the_revision_must_be_named(revision: str) -> None:
    with pytest.raises(ValueError, match="fairway-revision"):
        read_outcome(told(revision, "x=1"))


@pytest.mark.parametrize("number", ["1e308", "-1e308", "1.1e12", "9" * 30])
def test_a_value_beyond_all_measure_is_refused(number: str) -> None:
    with pytest.raises(ValueError, match="between -1e\\+12 and 1e\\+12"):
        read_outcome(told("3", f"x={number}"))


TOKEN = "authorization: Bearer secret"


def desk_with(token: str) -> RouterState:
    desk = RouterState("e", RouterLimits(), lambda: None)
    desk.outcome_token = lambda: token
    desk.put(RoutePlan("default/x", (RouteBackend("r2-1", 2, "127.0.0.1:9"),), ((2, 10_000),)))
    return desk


async def test_they_are_counted_for_the_revision_that_answered() -> None:
    desk = desk_with("secret")
    noted = [desk.note_outcome(told("2", text, TOKEN)) for text in ("clicked=1", "clicked=3", "paid=0.5")]
    assert noted == [(200, "")] * 3
    assert desk.load(0.0).revisions[2].outcomes == {"clicked": (2, 4.0, 10.0), "paid": (1, 0.5, 0.25)}
    assert desk.note_outcome(told("7", "clicked=1", TOKEN)) == (400, "no answer came from revision 7")
    for number in range(MOST_OUTCOMES):
        desk.note_outcome(told("2", f"kind{number}=1", TOKEN))
    status, problem = desk.note_outcome(told("2", "onemore=1", TOKEN))
    assert (status, "already" in problem) == (400, True)
    assert len(desk.load(0.0).revisions[2].outcomes) == MOST_OUTCOMES


@pytest.mark.parametrize(
    "lines",
    [
        (),
        ("authorization: Bearer",),
        ("authorization: Bearer wrong",),
        ("authorization: Basic secret",),
        ("authorization: secret",),
    ],
)
async def test_without_the_token_nothing_is_counted(lines: tuple[str, ...]) -> None:
    desk = desk_with("secret")
    assert desk.note_outcome(told("2", "clicked=1", *lines))[0] == 401
    assert desk.load(0.0).revisions[2].outcomes == {}


async def test_where_there_is_no_token_nothing_is_counted() -> None:
    assert desk_with("").note_outcome(told("2", "clicked=1", "authorization: Bearer "))[0] == 401


async def test_sums_stay_finite_and_come_back_from_the_wire() -> None:
    desk = desk_with("secret")
    count = desk._revisions[2]
    count.outcomes["x"] = (10, 0.0, math.nextafter(LARGEST_SUM, math.inf))
    assert desk.note_outcome(told("2", "x=1e12", TOKEN)) == (400, "the sum of the outcomes x would be too large to be compared")
    count.outcomes["x"] = (2**53 - 1, 1.0, 1.0)
    assert desk.note_outcome(told("2", "x=1", TOKEN))[0] == 400
    assert decode_load(encode_load(desk.load(0.0))).revisions[2].outcomes["x"] == (2**53 - 1, 1.0, 1.0)


async def test_over_the_network(stage: Stage) -> None:
    stage.desk.outcome_token = lambda: "secret"
    await stage.one()
    assert (await stage.ask()).status == 200
    post = "POST /fairway/outcome HTTP/1.1\r\nHost: here\r\nConnection: close\r\nfairway-revision: 1\r\n{}\r\n\r\n"
    answer = Answer(await stage.talk(post.format("fairway-outcome: x=1").encode()))
    assert (answer.status, answer.headers["www-authenticate"]) == (401, "Bearer")
    answer = Answer(await stage.talk(post.format(f"fairway-outcome: x=1e308\r\n{TOKEN}").encode()))
    assert answer.status == 400
    answer = Answer(await stage.talk(post.format(f"fairway-outcome: x=1\r\n{TOKEN}").encode()))
    assert answer.status == 200
    assert stage.load().revisions[1].outcomes == {"x": (1, 1.0, 1.0)}


@pytest.mark.parametrize(
    "target", ["/fairway/load", "/fairway/", "/%66airway/load", "/fairway%2Fload?x=1", "http://x/fairway/load"]
)
async def test_paths_that_are_fairways_own_do_not_reach_a_replica(stage: Stage, target: str) -> None:
    replica = await stage.one()
    raw = await stage.talk(f"GET {target} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n".encode())
    assert raw.startswith(b"HTTP/1.1 404 ")
    assert stage.load().revisions.get(1) is None or stage.load().revisions[1].arrived == 0
    del replica
