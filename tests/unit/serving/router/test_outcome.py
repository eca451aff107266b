"""What answers were worth, told by whoever asked."""

import pytest

from fairway.serving.router.desk import Desk, Limits
from fairway.serving.router.head import RequestHead, read_request
from fairway.serving.router.outcome import MOST_OUTCOMES, read_outcome
from fairway.state.route import Backend, RoutePlan


def told(revision: str, outcome: str) -> RequestHead:
    lines = [f"fairway-revision: {revision}", f"fairway-outcome: {outcome}", "host: x"]
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


async def test_they_are_counted_for_the_revision_that_answered() -> None:
    desk = Desk("e", Limits(), lambda: None)
    desk.put(RoutePlan("default/x", (Backend("r2-1", 2, "127.0.0.1:9"),), ((2, 10_000),)))
    assert [desk.note_outcome(told("2", text)) for text in ("clicked=1", "clicked=3", "paid=0.5")] == ["", "", ""]
    assert desk.load(0.0).revisions[2].outcomes == {"clicked": (2, 4.0, 10.0), "paid": (1, 0.5, 0.25)}
    assert desk.note_outcome(told("7", "clicked=1")) == "no answer came from revision 7"
    for number in range(MOST_OUTCOMES):
        desk.note_outcome(told("2", f"kind{number}=1"))
    assert "already" in desk.note_outcome(told("2", "onemore=1"))
    assert len(desk.load(0.0).revisions[2].outcomes) == MOST_OUTCOMES
