"""Unhealthy at once, healthy only after a while."""

from __future__ import annotations

from fairway.engines.kubernetes.agent.device_health import DeviceHealth
from fairway.state.node import NodeDevice

WELL = NodeDevice("a", 0)
SICK = NodeDevice("a", 0, healthy=False)


def test_one_that_fails_is_sick_at_once_and_well_only_when_it_has_been_for_a_while() -> None:
    health = DeviceHealth(60.0)
    looks = [(WELL, 0.0), (SICK, 5.0), (WELL, 10.0), (WELL, 69.0), (WELL, 70.0)]
    assert [health.judge([device], now)[0].healthy for device, now in looks] == [True, False, False, False, True]


def test_one_that_comes_and_goes_stays_sick() -> None:
    health = DeviceHealth(60.0)
    for second in range(0, 600, 10):
        (judged,) = health.judge([SICK if second % 50 == 0 else WELL], float(second))
        assert not judged.healthy


def test_one_that_is_gone_is_sick_and_keeps_its_place() -> None:
    health = DeviceHealth(60.0)
    assert len(health.judge([WELL, NodeDevice("b", 1)], 0.0)) == 2
    assert [(one.uuid, one.healthy) for one in health.judge([NodeDevice("b", 1)], 5.0)] == [("a", False), ("b", True)]


def test_an_agent_that_begins_again_trusts_what_was_said_before() -> None:
    health = DeviceHealth(60.0, [SICK, NodeDevice("gone", 7)])
    assert [(one.uuid, one.healthy) for one in health.judge([WELL], 0.0)] == [("a", False), ("gone", False)]
    assert health.judge([WELL], 60.0)[0].healthy
