"""Forecasts in a simulated queue."""

from __future__ import annotations

from fairway.plan.scheduling.forecast.duration_estimate import DurationHistory, record
from fairway.plan.scheduling.forecast.start_forecast import ForecastCalibration
from fairway.simulation.queue.forecast_assessment import assess, foresee
from fairway.simulation.queue.free_gpus import EqualNodes
from fairway.simulation.queue.queue_replay import QueueReplay, policy_named
from fairway.simulation.queue.recorded_job import RecordedJob

ONE = EqualNodes(1, 8)


def test_the_start_is_foreseen_by_playing_the_queue_forward() -> None:
    history = DurationHistory()
    for _ in range(10):
        history = record(history, "", "", 8, 500.0)
    replay = QueueReplay(
        [RecordedJob(0.0, 8, 900.0), RecordedJob(100.0, 8, 50.0), RecordedJob(200.0, 8, 50.0)], ONE, policy_named("fifo")
    )
    for _ in range(3):
        replay.step()
    forecast = foresee(replay.hall, 2, history, ForecastCalibration(), lambda: policy_named("fifo"))
    assert forecast is not None
    # The first has run for 200 of 500 seconds, then the second takes 500.
    assert forecast.spread == (800.0, 800.0, 800.0)
    assert forecast.low < 800.0 < forecast.high


def test_looking_ahead_changes_nothing() -> None:
    queue = [RecordedJob(100.0 * number, 8 - number % 3, 900.0 + 300 * (number % 5)) for number in range(12)]
    plain = QueueReplay(queue, ONE, policy_named("timeshare")).run("timeshare")
    replay = QueueReplay(queue, ONE, policy_named("timeshare"))
    while replay.step() is not None:
        for index in list(replay.hall.waiting)[:1]:
            foresee(replay.hall, index, DurationHistory(), ForecastCalibration(), lambda: policy_named("timeshare"))
    assert tuple(replay.records) == plain.records


def test_a_steady_queue_is_foreseen_well() -> None:
    queue = [RecordedJob(400.0 * number, 8, 500.0) for number in range(60)]
    foresight = assess(queue, ONE, "fifo")
    assert foresight.median_error_h < 0.3 * foresight.naive_median_error_h
    assert foresight.covered > 0.9


def test_what_the_scheduler_itself_states_holds() -> None:
    """Forecasts are requested as `why` does, while the scheduler plays the queue."""
    queue = [RecordedJob(400.0 * number, 8, 500.0) for number in range(40)]
    foresight = assess(queue, ONE, "fairway", every=2)
    assert foresight.forecasts >= 10
    assert foresight.unsaid == 0
    assert foresight.covered >= 0.8
    assert foresight.median_error_h < 0.5 * foresight.naive_median_error_h
