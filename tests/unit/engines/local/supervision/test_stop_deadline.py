"""When each signal is due."""

from __future__ import annotations

from fairway.engines.local.supervision.stop_deadline import LINGER, LINGER_AFTER_TERM, LOOK_AGAIN, StopDeadlines


def test_nothing_is_due_before_anybody_asks() -> None:
    stopping = StopDeadlines()
    assert not stopping.asked
    assert not stopping.must_term(1e9)
    assert not stopping.must_kill(1e9)
    assert stopping.next(0.0) is None


def test_first_term_then_kill() -> None:
    stopping = StopDeadlines()
    stopping.within(100.0, 30.0)
    assert stopping.must_term(100.0)
    assert not stopping.must_kill(129.9)
    assert stopping.next(100.0) == 130.0
    assert stopping.must_kill(130.0)


def test_a_later_request_never_delays() -> None:
    stopping = StopDeadlines()
    stopping.within(100.0, 30.0)
    stopping.within(110.0, 600.0)
    assert stopping.kill_at == 130.0
    stopping.within(120.0, 0.0)
    assert stopping.must_kill(120.0)


def test_what_is_left_behind_gets_a_moment() -> None:
    stopping = StopDeadlines()
    stopping.alone(100.0)
    assert not stopping.must_term(100.0)
    assert stopping.next(100.0) == 100.0 + LINGER
    assert stopping.must_term(100.0 + LINGER)
    assert stopping.must_kill(100.0 + LINGER + LINGER_AFTER_TERM)
    stopping.alone(200.0)
    assert stopping.term_at == 100.0 + LINGER


def test_what_is_left_behind_after_a_stop_gets_the_rest_of_the_grace() -> None:
    stopping = StopDeadlines()
    stopping.within(100.0, 30.0)
    stopping.alone(101.0)
    assert stopping.kill_at == 130.0


def test_a_program_that_listens_is_asked_first_and_gets_sigterm_near_the_end_of_the_grace() -> None:
    stopping = StopDeadlines()
    stopping.within(100.0, 30.0, patient=True)
    assert not stopping.must_term(124.9)
    assert stopping.must_term(125.0)
    assert stopping.must_kill(130.0)
    assert stopping.next(100.0) == 100.0 + LOOK_AGAIN


def test_when_the_last_listener_has_ended_the_rest_gets_a_moment_and_then_sigterm() -> None:
    stopping = StopDeadlines()
    stopping.within(100.0, 30.0, patient=True)
    stopping.unheard(104.0)
    assert not stopping.must_term(104.0)
    assert stopping.must_term(104.0 + LINGER)
    assert stopping.kill_at == 130.0


def test_a_broken_gang_does_not_wait_for_listeners() -> None:
    stopping = StopDeadlines()
    stopping.within(100.0, 30.0, patient=True)
    stopping.within(101.0, 30.0)
    assert stopping.must_term(101.0)
    assert not stopping.patient


def test_a_second_request_does_not_end_the_patience() -> None:
    stopping = StopDeadlines()
    stopping.within(100.0, 30.0, patient=True)
    stopping.within(101.0, 30.0, patient=True)
    assert not stopping.must_term(124.0)
    stopping.within(102.0, 0.0)
    assert stopping.must_kill(102.0)


def test_sigterm_waits_while_an_interrupt_is_handled() -> None:
    stopping = StopDeadlines()
    stopping.interrupted(100.0)
    stopping.within(100.5, 30.0)
    assert not stopping.must_term(109.9)
    assert stopping.must_term(110.0)
    assert not stopping.must_kill(130.4)
    assert stopping.must_kill(130.5)


def test_a_stop_that_a_person_wanted_does_not_wait_for_an_interrupt() -> None:
    stopping = StopDeadlines()
    stopping.interrupted(100.0)
    stopping.within(100.5, 30.0, wanted=True)
    assert stopping.must_term(100.5)


def test_an_interrupt_delays_no_kill() -> None:
    stopping = StopDeadlines()
    stopping.interrupted(100.0)
    stopping.within(100.5, 0.0)
    assert stopping.must_kill(100.5)


def test_what_an_interrupted_program_left_behind_gets_a_moment() -> None:
    stopping = StopDeadlines()
    stopping.interrupted(100.0)
    stopping.within(100.5, 30.0)
    stopping.alone(101.0)
    assert stopping.must_term(101.3)
