"""Forecasts of starts in a simulated queue, compared with what then happened."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from fairway.plan.scheduling import forecast_record, start_simulation
from fairway.plan.scheduling.forecast import duration_estimate, start_forecast
from fairway.plan.scheduling.scheduler import Scheduler
from fairway.simulation.queue.free_gpus import EqualNodes
from fairway.simulation.queue.queue_replay import Progress, QueueReplay, policy_named
from fairway.simulation.queue.queue_state import QueuePolicy, SimulatedQueue
from fairway.simulation.queue.recorded_job import RecordedJob
from fairway.simulation.queue.scheduler_policy import SchedulerPolicy, key_of


@dataclass(frozen=True, slots=True)
class AssessedForecast:
    """The forecast of one wait, and its actual length."""

    said: start_forecast.StartForecast
    naive: float
    """The mean of all waits that had ended when the forecast was made."""
    waited: float

    @property
    def held(self) -> bool:
        """Whether the wait ended within the forecast range."""
        return self.said.low - start_forecast.GRAIN <= self.waited <= self.said.high + start_forecast.GRAIN


@dataclass(frozen=True, slots=True)
class ForecastAccuracy:
    """Accuracy of the forecasts. Errors are in hours."""

    policy: str
    forecasts: int
    median_error_h: float
    p90_error_h: float
    naive_median_error_h: float
    naive_p90_error_h: float
    covered: float
    """Part of the waits that ended within the forecast range."""
    median_width_h: float
    guesses: tuple[AssessedForecast, ...]
    unsaid: int
    """Number of waits without a forecast: in most simulations they did not end within the horizon, or no forecast was
    possible."""


class ForecastSource(Protocol):
    """Forecasts when a job will start, and learns from the outcome."""

    def ended(self, entry: RecordedJob) -> None:
        """Record a job that is over, with its known duration."""

    def look(self, hall: SimulatedQueue) -> None:
        """Process the current state after an event."""

    def say(self, hall: SimulatedQueue, index: int) -> start_forecast.StartForecast | None:
        """Return a forecast of when the job that begins to wait will start."""

    def learn(self, said: start_forecast.StartForecast, waited: float) -> None:
        """Record that the job started after this wait, or still waits although its range is over."""


def foresee(
    hall: SimulatedQueue,
    index: int,
    history: duration_estimate.DurationHistory,
    calibration: start_forecast.ForecastCalibration,
    policy: Callable[[], QueuePolicy],
) -> start_forecast.StartForecast | None:
    """Forecast when the waiting job will start, by simulating the queue with durations drawn from the history."""

    def run(part: start_forecast.Part) -> float | None:
        lasting = {
            job.index: duration_estimate.remaining(
                history, job.entry.user, job.entry.name, job.entry.gpus, None, job.worked(hall.now), part(job.index)
            )
            for job in (*hall.running.values(), *hall.waiting.values())
        }
        return _wait_of(index, hall.imagine(lasting, policy()))

    return start_forecast.play(run, calibration)


def _wait_of(index: int, hall: SimulatedQueue) -> float | None:
    began = hall.now
    hall.policy.decide(hall)
    while index in hall.waiting:
        times = [time for time in (hall.next_end(), hall.policy.next_look(hall)) if time is not None]
        if not times:
            return None
        hall.pass_to(min(times))
        hall.policy.decide(hall)
    return hall.now - began


class _SimulatedForecasts:
    """Forecasts by simulating the queue itself. For policies on counted places."""

    def __init__(self, policy: str) -> None:
        self._policy = policy
        self._history = duration_estimate.DurationHistory()
        self._calibration = start_forecast.ForecastCalibration()

    def ended(self, entry: RecordedJob) -> None:
        self._history = duration_estimate.record(self._history, entry.user, entry.name, entry.gpus, entry.duration)

    def look(self, hall: SimulatedQueue) -> None:
        """Do nothing."""

    def say(self, hall: SimulatedQueue, index: int) -> start_forecast.StartForecast | None:
        return foresee(hall, index, self._history, self._calibration, lambda: policy_named(self._policy))

    def learn(self, said: start_forecast.StartForecast, waited: float) -> None:
        self._calibration = start_forecast.learn(self._calibration, said, waited)


class _SchedulerForecasts:
    """Forecasts with the production scheduler, as `why` does: the same code makes the forecasts and learns from them."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler

    def ended(self, entry: RecordedJob) -> None:
        """Do nothing: the scheduler learns this by itself."""

    def look(self, hall: SimulatedQueue) -> None:
        forecast_record.settle(self._scheduler.ledger, hall.now)

    def say(self, hall: SimulatedQueue, index: int) -> start_forecast.StartForecast | None:
        ledger, key = self._scheduler.ledger, key_of(index)
        prospect = start_simulation.prospect(
            start_simulation.situation(ledger, key, hall.now), ledger.memory.calibration, lambda: False
        )
        if prospect.forecast is not None:
            forecast_record.say(ledger.memory, key, prospect.forecast, hall.now)
        return prospect.forecast

    def learn(self, said: start_forecast.StartForecast, waited: float) -> None:
        """Do nothing: `look` does this."""


def assess(
    entries: Sequence[RecordedJob], nodes: EqualNodes, policy: str = "timeshare", every: int = 1, progress: Progress | None = None
) -> ForecastAccuracy:
    """Replay the queue, and forecast the end of every n-th wait (`every`) that does not end immediately."""
    replay = QueueReplay(entries, nodes, policy_named(policy))
    replayed_policy = replay.hall.policy
    watcher = _ForecastRecorder(
        policy,
        every,
        _SchedulerForecasts(replayed_policy.scheduler)
        if isinstance(replayed_policy, SchedulerPolicy)
        else _SimulatedForecasts(policy),
    )
    over = 0
    while replay.step() is not None:
        for record in replay.records[over:]:
            watcher.seer.ended(record.entry)
        over = len(replay.records)
        watcher.look(replay.hall)
        if progress is not None:
            progress(over, len(entries))
    return watcher.sum_up()


class _ForecastRecorder:
    """Requests a forecast when a wait begins, and learns from it when the wait ends."""

    def __init__(self, policy: str, every: int, seer: ForecastSource) -> None:
        self._policy, self._every, self.seer = policy, every, seer
        self._waiting: dict[int, tuple[float, start_forecast.StartForecast | None, float]] = {}
        self._learnt: set[int] = set()
        self._begun = 0
        self._waits: list[float] = []
        self._guesses: list[AssessedForecast] = []
        self._unsaid = 0

    def look(self, hall: SimulatedQueue) -> None:
        """Process the current state after an event."""
        self.seer.look(hall)
        for index, (began, predicted, naive) in list(self._waiting.items()):
            waited = hall.now - began
            over = _is_over(index, began, hall)
            if predicted is not None and index not in self._learnt and (over or waited > predicted.high + start_forecast.GRAIN):
                self.seer.learn(predicted, waited)
                self._learnt.add(index)
            if over:
                self._waits.append(waited)
                self._learnt.discard(index)
                del self._waiting[index]
                if predicted is not None:
                    self._guesses.append(AssessedForecast(predicted, naive, waited))
        for index, job in hall.waiting.items():
            if index not in self._waiting:
                self._begin(hall, index, job.waiting_since)

    def _begin(self, hall: SimulatedQueue, index: int, since: float) -> None:
        self._begun += 1
        predicted = None
        if self._begun % self._every == 0 and self._waits:
            predicted = self.seer.say(hall, index)
            self._unsaid += predicted is None
        self._waiting[index] = (since, predicted, statistics.fmean(self._waits) if self._waits else 0.0)

    def sum_up(self) -> ForecastAccuracy:
        """Return the results."""
        guesses = self._guesses
        errors = sorted(abs(guess.said.median - guess.waited) / 3600 for guess in guesses)
        naive = sorted(abs(guess.naive - guess.waited) / 3600 for guess in guesses)
        widths = sorted((guess.said.high - guess.said.low) / 3600 for guess in guesses)
        return ForecastAccuracy(
            self._policy,
            len(guesses),
            _at(errors, 0.5),
            _at(errors, 0.9),
            _at(naive, 0.5),
            _at(naive, 0.9),
            sum(guess.held for guess in guesses) / max(1, len(guesses)),
            _at(widths, 0.5),
            tuple(guesses),
            self._unsaid,
        )


def _is_over(index: int, began: float, hall: SimulatedQueue) -> bool:
    """Return whether the wait that began then has ended; the job may already wait again."""
    job = hall.waiting.get(index)
    return job is None or job.waiting_since != began


def _at(ordered: Sequence[float], part: float) -> float:
    return ordered[min(len(ordered) - 1, int(part * len(ordered)))] if ordered else 0.0
