"""Forecast starts that were reported, and what is learned from them."""

from __future__ import annotations

import pytest

from fairway.plan.scheduling import forecast_record, scheduler_memory, start_simulation
from fairway.plan.scheduling.forecast import start_forecast
from fairway.plan.scheduling.forecast.start_forecast import ForecastCalibration, StartForecast, calibrated
from fairway.state.job import JobKey
from fairway.testing.fake.fake_cluster import FakeCluster, gang, machine


def floor_with_one_waiting() -> tuple[FakeCluster, JobKey, JobKey]:
    floor = FakeCluster([machine("n", 1)])
    busy = floor.ask("busy", gang())
    floor.settle()
    return floor, busy, floor.ask("waits", gang())


def say(floor: FakeCluster, key: JobKey, *waits: float) -> StartForecast:
    memory = floor.scheduler.ledger.memory
    forecast = calibrated(waits, memory.calibration)
    forecast_record.say(memory, key, forecast, floor.now)
    return forecast


def test_a_start_teaches_how_long_the_wait_was() -> None:
    floor, busy, waits = floor_with_one_waiting()
    said = say(floor, waits, 600.0)
    floor.pass_time(700)
    floor.end(busy)
    floor.settle()
    floor.pass_time(50)
    forecast_record.settle(floor.scheduler.ledger, floor.now)
    memory = floor.scheduler.ledger.memory
    assert memory.calibration == start_forecast.learn(ForecastCalibration(), said, 700.0)
    assert memory.said == {}


def test_one_that_waits_longer_than_was_said_is_learnt_from_at_once_and_only_once() -> None:
    floor, busy, waits = floor_with_one_waiting()
    forecast = say(floor, waits, 60.0)
    memory = floor.scheduler.ledger.memory
    floor.pass_time(forecast.high)
    forecast_record.settle(floor.scheduler.ledger, floor.now)
    assert memory.calibration.seen == 0
    for _ in range(3):
        floor.pass_time(600)
        forecast_record.settle(floor.scheduler.ledger, floor.now)
    assert (memory.calibration.seen, memory.calibration.held) == (1, 0)
    floor.end(busy)
    floor.settle()
    forecast_record.settle(floor.scheduler.ledger, floor.now)
    assert (memory.calibration.seen, memory.said) == (1, {})


def test_what_was_said_first_counts_and_who_is_withdrawn_teaches_nothing() -> None:
    floor, _, waits = floor_with_one_waiting()
    first = say(floor, waits, 600.0)
    floor.pass_time(10)
    say(floor, waits, 5.0)
    memory = floor.scheduler.ledger.memory
    assert [(each.said, each.at) for each in memory.said.values()] == [(first, floor.now - 10)]
    floor.withdraw(waits)
    forecast_record.settle(floor.scheduler.ledger, floor.now)
    assert (memory.calibration, memory.said) == (ForecastCalibration(), {})


def test_of_very_many_statements_the_oldest_are_forgotten() -> None:
    floor, _, _ = floor_with_one_waiting()
    for number in range(forecast_record.MOST_KEPT + 5):
        say(floor, JobKey("default", f"r{number}"), 60.0)
    assert next(iter(floor.scheduler.ledger.memory.said)) == "default/r5"


def test_a_scheduler_made_anew_states_the_same() -> None:
    floor, busy, waits = floor_with_one_waiting()
    say(floor, waits, 60.0)
    floor.pass_time(4000)
    forecast_record.settle(floor.scheduler.ledger, floor.now)
    floor.look_on()
    ledgers = [scheduler.ledger for scheduler in floor.schedulers]
    assert ledgers[1].memory.calibration.seen == 1
    assert ledgers[1].memory.said == ledgers[0].memory.said
    said = [
        start_simulation.prospect(start_simulation.situation(ledger, waits, floor.now), ledger.memory.calibration, lambda: False)
        for ledger in ledgers
    ]
    assert said[0] == said[1]
    floor.end(busy)
    floor.settle()
    for ledger in ledgers:
        forecast_record.settle(ledger, floor.now)
    assert ledgers[0].memory.calibration == ledgers[1].memory.calibration


@pytest.mark.parametrize("kept", [b"", b'{"usage": {}}'])
def test_a_memory_from_before_knows_of_no_statements(kept: bytes) -> None:
    assert scheduler_memory.decode(kept).calibration == ForecastCalibration()
