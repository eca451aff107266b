import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairway.engines.kubernetes.work_queue import WorkQueue


def test_a_key_stands_in_the_queue_once():
    queue = WorkQueue()
    for key in ("a", "b", "a"):
        queue.add(key)
    assert [queue.take(0), queue.take(0), queue.take(0)] == ["a", "b", None]


def test_a_key_in_work_comes_back_when_it_is_done():
    queue = WorkQueue()
    queue.add("a")
    assert queue.take(0) == "a"
    queue.add("a")
    queue.add("a")
    assert queue.take(0) is None
    queue.done("a")
    assert [queue.take(0), queue.take(0)] == ["a", None]
    queue.done("a")
    assert queue.take(0) is None


def test_failures_come_back_later_each_time():
    queue = WorkQueue()
    queue.add("a")
    now, delays = 0.0, []
    for _ in range(20):
        assert queue.take(now) == "a"
        delays.append(queue.failed("a", now))
        assert queue.take(now + delays[-1] * 0.99) is None
        assert queue.next_due(now) == pytest.approx(delays[-1])
        now += delays[-1] + 1e-6
    assert delays[:4] == [0.005, 0.01, 0.02, 0.04]
    assert delays[-1] == 1000.0
    assert queue.failures("a") == 20
    assert queue.take(now) == "a"
    queue.succeeded("a")
    assert queue.failures("a") == 0
    queue.add("a")
    queue.take(now)
    assert queue.failed("a", now) == 0.005


def test_of_several_wishes_the_earliest_counts():
    queue = WorkQueue()
    queue.add_after("a", 10, 0)
    queue.add_after("a", 5, 0)
    queue.add_after("a", 20, 0)
    assert queue.next_due(0) == 5
    assert queue.take(4.9) is None
    assert queue.take(5) == "a"
    queue.done("a")
    assert queue.take(100) is None
    assert queue.next_due(100) is None


def test_at_once():
    queue = WorkQueue()
    queue.add_after("a", 0, 7)
    assert (queue.next_due(7), len(queue)) == (0.0, 1)


ACTS = st.tuples(st.sampled_from(["add", "later", "take", "done", "failed", "succeeded"]), st.sampled_from("abc"))


@given(st.lists(ACTS, max_size=60))
def test_no_key_is_lost_or_in_work_twice(acts):
    """For any sequence of operations: a key that was added is handed out afterwards, and never twice at a time."""
    queue, now, owed, working = WorkQueue(), 0.0, set(), set()
    for act, key in acts:
        now += 0.001
        if act == "add":
            queue.add(key)
            owed.add(key)
        elif act == "later":
            queue.add_after(key, 0.5, now)
            owed.add(key)
        elif act == "take":
            taken = queue.take(now)
            if taken:
                assert taken not in working
                working.add(taken)
                owed.discard(taken)
        elif key in working:
            working.discard(key)
            if act == "failed":
                queue.failed(key, now)
                owed.add(key)
            else:
                getattr(queue, act)(key)
    for key in list(working):
        queue.done(key)
    while (due := queue.next_due(now)) is not None:
        now += due + 1e-6
        taken = queue.take(now)
        owed.discard(taken)
        queue.done(taken)
    assert owed == set()
