"""Notes which running runs seem to hang, and which metrics are no numbers, from what the engine measured."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace

from fairway.app.fault import Faults
from fairway.app.ports import Observation
from fairway.plan import stall
from fairway.plan.service.replica import OWN_NAMESPACE
from fairway.state.event import Event
from fairway.state.job import Job, JobKey
from fairway.state.phase import JobPhase
from fairway.views import phrases


class Stalls:
    """Remembers the looks at each running run. What is lost with a restart of the daemon is seen again."""

    def __init__(self, faults: Faults, after: float = stall.AFTER) -> None:
        self.after = after
        """Seconds without a sign of life that make a stall, where no step is known."""
        self._faults = faults
        self._traces: dict[JobKey, tuple[int, stall.Trace]] = {}

    def note(self, jobs: dict[JobKey, Job], observed: Iterable[Observation], now: float) -> tuple[list[Job], list[Event]]:
        """New values of the runs that were observed, where something has changed, and what to tell of them."""
        changed: dict[JobKey, Job] = {}
        events: list[Event] = []
        for key in self._traces.keys() - jobs.keys():
            del self._traces[key]
        for seen in observed:
            job = changed.get(seen.key) or jobs.get(seen.key)
            if job is None or job.phase is not JobPhase.RUNNING or job.key.namespace.endswith(OWN_NAMESPACE):
                # A replica that is not asked has nothing to do.
                continue
            with self._faults.contain(str(seen.key), "watch"):
                folded, told = self._noted(job, seen, now)
                if folded is not job:
                    changed[job.key] = folded
                events += [Event(now, str(job.key), reason, message) for reason, message in told]
        return list(changed.values()), events

    def _noted(self, job: Job, seen: Observation, now: float) -> tuple[Job, list[tuple[str, str]]]:
        told: list[tuple[str, str]] = []
        fresh = _not_numbers(job, seen)
        if fresh:
            job = replace(job, not_numbers={**job.not_numbers, **fresh})
            told += [("NotANumber", phrases.not_a_number(name, step)) for name, step in fresh.items()]
        trace = self._trace(job, seen, now)
        found = stall.judge(trace, now, self.after)
        silent = job.stall is not None and stall.last_sign(trace) <= job.stall.since
        if found is None and silent and now - trace.begun < stall.limit(trace, self.after):
            # Looked at anew since the daemon started; nothing says that it goes on.
            return job, told
        if found is not None and (job.stall is None or (job.stall.idle, job.stall.busy) != (found.idle, found.busy)):
            told += [("Stalled", phrases.stall(found, now))] if job.stall is None else []
            return replace(job, stall=found), told
        if found is None and job.stall is not None:
            told.append(("Moving", "it prints, reports or computes again"))
            return replace(job, stall=None), told
        return job, told

    def _trace(self, job: Job, seen: Observation, now: float) -> stall.Trace:
        attempt, trace = self._traces.get(job.key, (job.attempt, None))
        if trace is None or attempt != job.attempt:
            trace = stall.Trace(now)
        trace = stall.report(trace, ((point.time, point.step) for point in seen.points))
        if seen.ranks:
            trace = stall.look(trace, seen.ranks, now)
        self._traces[job.key] = (job.attempt, trace)
        return trace


def _not_numbers(job: Job, seen: Observation) -> dict[str, int | None]:
    """Metrics that are NaN for the first time, with the step."""
    found: dict[str, int | None] = {}
    for point in seen.points:
        for name, value in point.metrics.items():
            if math.isnan(value) and name not in job.not_numbers:
                found.setdefault(name, point.step)
    return found
