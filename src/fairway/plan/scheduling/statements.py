"""What was said of starts, held against what became of them, so that later ranges hold as often as they say.

Statements and what they taught lie in the memory: a scheduler made anew states the same ranges.
"""

from __future__ import annotations

from dataclasses import replace

from fairway.plan.scheduling import forecast
from fairway.plan.scheduling.forecast import Forecast
from fairway.plan.scheduling.ledger import Ledger, key_of
from fairway.plan.scheduling.memory import SchedulerMemory, Statement
from fairway.state.job import JobKey

MOST_KEPT = 256
"""So many statements wait for their truth; older ones are forgotten."""


def say(memory: SchedulerMemory, key: JobKey, said: Forecast, now: float) -> None:
    """This was said of a run that waits. What was said of it first counts."""
    memory.said.setdefault(str(key), Statement(said, now))
    while len(memory.said) > MOST_KEPT:
        del memory.said[next(iter(memory.said))]


def settle(ledger: Ledger, now: float) -> None:
    """Learn from those that have started since, and from those that should have."""
    memory = ledger.memory
    for name, statement in list(memory.said.items()):
        running = ledger.running.get(key_of(name))
        started = running is not None and running.since >= statement.at
        waited = (running.since if running is not None and started else now) - statement.at
        late = waited > statement.said.high + forecast.GRAIN
        if not statement.learnt and (started or (late and key_of(name) in ledger.room)):
            memory.calibration = forecast.learn(memory.calibration, statement.said, waited)
            memory.said[name] = replace(statement, learnt=True)
        if started or key_of(name) not in ledger.room:
            del memory.said[name]
