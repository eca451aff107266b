"""Waiting runs stay sorted, whatever is added and removed."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from fairway.plan.scheduling.gang_request import GangRequest
from fairway.plan.scheduling.queueing.waiting_room import WaitingLineKey, WaitingRoom
from fairway.state.job import JobKey
from fairway.testing.fake.fake_cluster import gang

GANGS = [gang(1), gang(2), gang(1, 4)]

steps = st.tuples(
    st.integers(0, 12), st.sampled_from(["a", "b"]), st.integers(0, 2), st.integers(0, 1), st.integers(0, 5), st.booleans()
)


def request(number: int, queue: str, kind: int, priority: int, submitted: int) -> GangRequest:
    limit = 60.0 * submitted or None
    return GangRequest(JobKey("default", f"r{number:02}"), GANGS[kind], float(submitted), queue, priority=priority, limit=limit)


@settings(max_examples=60, deadline=None)
@given(st.lists(steps, max_size=40))
def test_lines_are_in_the_order_of_their_first(history: list[tuple[int, str, int, int, int, bool]]) -> None:
    room = WaitingRoom()
    there: dict[JobKey, GangRequest] = {}
    for number, queue, kind, priority, submitted, leaves in history:
        asked = request(number, queue, kind, priority, submitted)
        if leaves:
            room.remove(asked.key)
            there.pop(asked.key, None)
        else:
            room.add(asked, WaitingLineKey(queue, asked.gang, priority=priority))
            there[asked.key] = asked
    assert set(room.keys()) == set(there)
    assert room.queues() == {each.queue for each in there.values()}
    for queue in ("a", "b"):
        entries = room.in_order(queue)
        assert [rank for rank, _ in entries] == sorted(line.rank() for line in room.lines() if line.key.queue == queue)
        own = [each for each in there.values() if each.queue == queue]
        own.sort(key=lambda each: (-each.priority, each.submitted, each.key))
        assert [room.ahead_of(each.key) for each in own] == list(range(len(own)))
    for line in room.lines():
        assert list(line.in_order()) == sorted(line.members.values(), key=lambda each: (each.submitted, each.key))
        limits = [each.limit for each in line.members.values() if each.limit is not None]
        briefest = line.briefest()
        assert (briefest.limit if briefest is not None else None) == min(limits, default=None)
    for kind in room.kinds():
        assert all(line.key.gang == kind.gang for entries in kind.aisles.values() for _, line in entries)
    assert sum(len(entries) for kind in room.kinds() for entries in kind.aisles.values()) == room.line_count


def test_a_line_is_new_once() -> None:
    room = WaitingRoom()
    room.add(request(1, "a", 0, 0, 1), WaitingLineKey("a", GANGS[0]))
    assert len(room.take_fresh()) == 1
    room.add(request(2, "a", 0, 0, 2), WaitingLineKey("a", GANGS[0]))
    assert room.take_fresh() == []
    room.refresh("a")
    assert len(room.take_fresh()) == 1
