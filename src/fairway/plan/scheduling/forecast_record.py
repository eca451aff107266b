"""Compare forecasts that were given for starts with the actual starts, to calibrate later forecasts.

Statements and the calibration are in the scheduler's memory, so that a rebuilt scheduler gives the same ranges.
"""

from __future__ import annotations

from dataclasses import replace

from fairway.plan.scheduling.forecast import start_forecast
from fairway.plan.scheduling.forecast.start_forecast import StartForecast
from fairway.plan.scheduling.scheduler_memory import ForecastRecord, SchedulerMemory
from fairway.plan.scheduling.scheduler_state import SchedulerState, key_of
from fairway.state.job import JobKey

MOST_KEPT = 256
"""Maximum number of open statements; older ones are dropped."""


def say(memory: SchedulerMemory, key: JobKey, said: StartForecast, now: float) -> None:
    """Record a forecast for a waiting run. Only its first forecast counts."""
    memory.said.setdefault(str(key), ForecastRecord(said, now))
    while len(memory.said) > MOST_KEPT:
        del memory.said[next(iter(memory.said))]


def settle(ledger: SchedulerState, now: float) -> None:
    """Learn from runs that have started since, and from runs that are overdue."""
    memory = ledger.memory
    for name, statement in list(memory.said.items()):
        running = ledger.running.get(key_of(name))
        started = running is not None and running.since >= statement.at
        waited = (running.since if running is not None and started else now) - statement.at
        late = waited > statement.said.high + start_forecast.GRAIN
        if not statement.learnt and (started or (late and key_of(name) in ledger.room)):
            memory.calibration = start_forecast.learn(memory.calibration, statement.said, waited)
            memory.said[name] = replace(statement, learnt=True)
        if started or key_of(name) not in ledger.room:
            del memory.said[name]
