"""The forecast start of a waiting run."""

from __future__ import annotations

import math
import random

import pytest

from fairway.plan.scheduling.forecast import start_forecast
from fairway.plan.scheduling.forecast.start_forecast import (
    GRAIN,
    ForecastCalibration,
    Part,
    calibrated,
    learn,
    part_in,
    play,
)

PLAIN = ForecastCalibration(shift=0.0, stretch=0.0)


def test_the_range_leaves_out_the_outermost_tenth_on_each_side() -> None:
    forecast = calibrated([float(wait) for wait in range(0, 2100, 100)], PLAIN)
    assert (round(forecast.low), round(forecast.median), round(forecast.high)) == (200, 1000, 1800)
    assert forecast.spread == (200.0, 1000.0, 1800.0)


def test_a_calibration_shifts_and_widens() -> None:
    forecast = calibrated([600.0 - GRAIN] * 3, ForecastCalibration(shift=math.log(2.0), stretch=math.log(3.0)))
    assert (round(forecast.low), round(forecast.median), round(forecast.high)) == (340, 1140, 3540)


def test_nobody_starts_before_now() -> None:
    assert calibrated([0.0], ForecastCalibration(shift=-3.0, stretch=2.0)).low == 0.0


def test_the_same_key_draws_the_same_and_others_draw_evenly() -> None:
    assert part_in(3)("a-1") == part_in(3)("a-1") != part_in(4)("a-1")
    drawn = sorted(part_in(0)(key) for key in range(1000))
    assert all(abs(part - position / 1000) < 0.05 for position, part in enumerate(drawn))
    assert 0.0 < drawn[0] < drawn[-1] < 1.0


def test_every_scenario_is_played_with_its_own_draws() -> None:
    seen: list[float] = []

    def run(part: Part) -> float:
        seen.append(part("x"))
        return 100.0 * part("x")

    forecast = play(run, PLAIN, scenarios=5)
    assert forecast is not None
    assert len(set(seen)) == 5
    assert forecast.spread[1] == pytest.approx(100 * sorted(seen)[2])


def test_what_mostly_never_starts_has_no_forecast() -> None:
    assert play(lambda part: None, PLAIN) is None
    waits = iter([1.0, None, None, 2.0, None])
    assert play(lambda part: next(waits), PLAIN, scenarios=5) is None


def test_confidence_is_how_often_ranges_held() -> None:
    calibration = ForecastCalibration()
    assert calibrated([100.0], calibration).confidence == start_forecast.PROMISED
    for _ in range(20):
        said = calibrated([100.0], calibration)
        calibration = learn(calibration, said, 10_000_000.0)
        calibration = ForecastCalibration(seen=calibration.seen, held=calibration.held)
    assert calibrated([100.0], calibration).confidence == 0.4


@pytest.mark.parametrize(("bias", "noise"), [(1.0, 0.3), (5.0, 1.0), (0.2, 2.0)])
def test_ranges_come_to_hold_as_often_as_promised_whatever_the_scenarios_are_worth(bias: float, noise: float) -> None:
    chance = random.Random(7)
    calibration = ForecastCalibration()
    held, errors = 0, []
    for number in range(1500):
        truth = math.exp(chance.gauss(8.0, 1.5))
        waits = [truth / bias * math.exp(chance.gauss(0.0, noise)) for _ in range(9)]
        forecast = calibrated(waits, calibration)
        if number >= 500:
            held += forecast.low <= truth <= forecast.high
            errors.append(math.log((forecast.median + GRAIN) / (truth + GRAIN)))
        calibration = learn(calibration, forecast, truth)
    assert 0.8 <= held / 1000 <= 0.97
    assert abs(sorted(errors)[500]) < 0.35
