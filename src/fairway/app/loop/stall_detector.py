"""Detect running runs that seem to hang, and metrics that are NaN, from the engine's measurements."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace

from fairway.app.loop.fault_register import FaultRegister
from fairway.app.port.port import Observation
from fairway.plan import stall
from fairway.plan.service.replica import OWN_NAMESPACE
from fairway.state.event import RunEvent
from fairway.state.job import JobKey, JobState
from fairway.state.phase import JobPhase
from fairway.views.text import phrase


class StallDetector:
    """Tracks the observations of each running run. State lost by a restart of the daemon is rebuilt from new observations."""

    def __init__(self, faults: FaultRegister, after: float = stall.AFTER) -> None:
        self.after = after
        """Seconds without a sign of life that count as a stall, if no step is known."""
        self._faults = faults
        self._traces: dict[JobKey, tuple[int, stall.ActivityTrace]] = {}

    def note(
        self, jobs: dict[JobKey, JobState], observed: Iterable[Observation], now: float
    ) -> tuple[list[JobState], list[RunEvent]]:
        """Return the observed runs whose value changes, and the events to record."""
        changed: dict[JobKey, JobState] = {}
        events: list[RunEvent] = []
        for key in self._traces.keys() - jobs.keys():
            del self._traces[key]
        for observation in observed:
            job = changed.get(observation.key) or jobs.get(observation.key)
            if job is None or job.phase is not JobPhase.RUNNING or job.key.namespace.endswith(OWN_NAMESPACE):
                # A replica without requests has nothing to do.
                continue
            with self._faults.contain(str(observation.key), "watch"):
                folded, notices = self._noted(job, observation, now)
                if folded is not job:
                    changed[job.key] = folded
                events += [RunEvent(now, str(job.key), reason, message) for reason, message in notices]
        return list(changed.values()), events

    def _noted(self, job: JobState, seen: Observation, now: float) -> tuple[JobState, list[tuple[str, str]]]:
        notices: list[tuple[str, str]] = []
        new_nans = _not_numbers(job, seen)
        if new_nans:
            job = replace(job, not_numbers={**job.not_numbers, **new_nans})
            notices += [("NotANumber", phrase.not_a_number(name, step)) for name, step in new_nans.items()]
        trace = self._trace(job, seen, now)
        verdict = stall.judge(trace, now, self.after)
        silent = job.stall is not None and stall.last_sign(trace) <= job.stall.since
        if verdict is None and silent and now - trace.begun < stall.limit(trace, self.after):
            # The observations started anew with the daemon: nothing indicates progress yet, so the stall stays.
            return job, notices
        if verdict is not None and (job.stall is None or (job.stall.idle, job.stall.busy) != (verdict.idle, verdict.busy)):
            notices += [("Stalled", phrase.stall(verdict, now))] if job.stall is None else []
            return replace(job, stall=verdict), notices
        if verdict is None and job.stall is not None:
            notices.append(("Moving", "it prints, reports or computes again"))
            return replace(job, stall=None), notices
        return job, notices

    def _trace(self, job: JobState, seen: Observation, now: float) -> stall.ActivityTrace:
        attempt, trace = self._traces.get(job.key, (job.attempt, None))
        if trace is None or attempt != job.attempt:
            trace = stall.ActivityTrace(now)
        trace = stall.report(trace, ((point.time, point.step) for point in seen.points))
        if seen.ranks:
            trace = stall.look(trace, seen.ranks, now)
        self._traces[job.key] = (job.attempt, trace)
        return trace


def _not_numbers(job: JobState, seen: Observation) -> dict[str, int | None]:
    """Return metrics that are NaN for the first time, with the step."""
    steps: dict[str, int | None] = {}
    for point in seen.points:
        for name, value in point.metrics.items():
            if math.isnan(value) and name not in job.not_numbers:
                steps.setdefault(name, point.step)
    return steps
