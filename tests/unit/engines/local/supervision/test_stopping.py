"""When which signal is due."""

from __future__ import annotations

from fairway.engines.local.supervision.stopping import LINGER, LINGER_AFTER_TERM, Stopping


def test_nothing_is_due_before_anybody_asks() -> None:
    stopping = Stopping()
    assert not stopping.asked
    assert not stopping.must_term(1e9)
    assert not stopping.must_kill(1e9)
    assert stopping.next(0.0) is None


def test_first_term_then_kill() -> None:
    stopping = Stopping()
    stopping.within(100.0, 30.0)
    assert stopping.must_term(100.0)
    assert not stopping.must_kill(129.9)
    assert stopping.next(100.0) == 130.0
    assert stopping.must_kill(130.0)


def test_a_later_request_never_delays() -> None:
    stopping = Stopping()
    stopping.within(100.0, 30.0)
    stopping.within(110.0, 600.0)
    assert stopping.kill_at == 130.0
    stopping.within(120.0, 0.0)
    assert stopping.must_kill(120.0)


def test_what_is_left_behind_gets_a_moment() -> None:
    stopping = Stopping()
    stopping.alone(100.0)
    assert not stopping.must_term(100.0)
    assert stopping.next(100.0) == 100.0 + LINGER
    assert stopping.must_term(100.0 + LINGER)
    assert stopping.must_kill(100.0 + LINGER + LINGER_AFTER_TERM)
    stopping.alone(200.0)
    assert stopping.term_at == 100.0 + LINGER


def test_what_is_left_behind_after_a_stop_gets_the_rest_of_the_grace() -> None:
    stopping = Stopping()
    stopping.within(100.0, 30.0)
    stopping.alone(101.0)
    assert stopping.kill_at == 130.0
