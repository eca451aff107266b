"""What a waiting run may expect, computed from the state of the scheduler without disturbing it."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass

from fairway.app.loop.loop import ReconcileLoop
from fairway.app.queue import QueueUseCases
from fairway.errors import FairwayError
from fairway.plan.scheduling import forecast_record, start_simulation
from fairway.plan.scheduling.explanation import start_hint, wait_explanation
from fairway.plan.scheduling.forecast import start_forecast
from fairway.plan.scheduling.preemption import defragmentation, preemption
from fairway.plan.scheduling.scheduler_state import SchedulerState
from fairway.plan.scheduling.start_simulation import SimulationState, StartProspect
from fairway.state.job import JobKey, JobState, WaitReason
from fairway.state.node import ClusterNode
from fairway.views.diagnosis import start_forecast as diagnosis_start_forecast
from fairway.views.diagnosis.waiting_run import HelpfulChangeView, WaitingRunView

PATIENCE = 0.5
"""CPU time limit for an answer, in seconds."""
FRESH = 30.0
"""Seconds for which an answer is reused if nothing has changed."""
MOST_KEPT = 256
MOVE_TRIALS = 300
"""Number of sets of runs tried for moving; kept low because the loop waits meanwhile. `defragment` itself tries more."""


@dataclass(frozen=True, slots=True)
class _CacheKey:
    """The inputs of an answer; equal inputs give equal answers."""

    memory: bytes
    nodes: tuple[ClusterNode, ...]
    waiting: frozenset[JobKey]


@dataclass(frozen=True, slots=True)
class WaitAnswer:
    """Why a run waits now, and what it may expect."""

    hold: WaitReason
    view: WaitingRunView


@dataclass(frozen=True, slots=True)
class _CachedAnswer:
    at: float
    generation: _CacheKey
    answer: WaitAnswer


class WaitForecaster:
    """Answers about waiting runs; repeated requests are answered from a cache."""

    def __init__(self, loop: ReconcileLoop, queues: QueueUseCases) -> None:
        self._loop = loop
        self._queues = queues
        self._kept: dict[JobKey, _CachedAnswer] = {}
        self._one_at_a_time = asyncio.Lock()

    async def answer(self, job: JobState) -> WaitAnswer | None:
        """Return the answer about a run that waits for resources; None for any other run."""
        async with self._one_at_a_time:
            ledger, now = self._ledger(), self._loop.clock.now()
            request = ledger.room.get(job.key) if ledger is not None else None
            if ledger is None or request is None:
                return None
            generation = self._generation(ledger)
            cached = self._kept.get(job.key)
            if cached is not None and cached.generation == generation and now - cached.at < FRESH:
                return cached.answer
            obstacles = wait_explanation.obstacles(ledger, [request], now)
            spared = preemption.spared(ledger, request, now)
            hold = wait_explanation.hold(request, obstacles[ledger.line_key(request, now)], ledger.nodes, spared)
            of = len(ledger.room.requests(request.queue))
            position = 1 + ledger.room.ahead_of(job.key)
            changes = self._changes(ledger, job, now)
            # The simulation takes long; it works on its own copy, and the loop continues meanwhile.
            start = start_simulation.situation(ledger, job.key, now)
            prospect = await asyncio.to_thread(_play, start, ledger.memory.calibration)
            answer = WaitAnswer(hold, diagnosis_start_forecast.waiting_view(job, position, of, prospect, changes))
            self._keep(job.key, _CachedAnswer(now, generation, answer))
            self._remember(job.key, prospect, now)
            return answer

    def _ledger(self) -> SchedulerState | None:
        scheduler = self._loop.scheduler
        return scheduler.ledger if scheduler is not None else None

    def _generation(self, ledger: SchedulerState) -> _CacheKey:
        snapshot = self._loop.snapshot
        return _CacheKey(snapshot.memory, snapshot.nodes, frozenset(request.key for request in ledger.room.requests()))

    def _changes(self, ledger: SchedulerState, job: JobState, now: float) -> list[HelpfulChangeView]:
        changes = start_hint.cheapest(ledger, job.key, now, self._open_queues(job))
        views = [view for change in changes if (view := diagnosis_start_forecast.change_view(job, change)) is not None]
        plan = defragmentation.plan_moves(ledger, now, whom=job.key, trials=MOVE_TRIALS)
        if plan is not None:
            dearer = (start_hint.StartHintKind.PRIORITY, start_hint.StartHintKind.ENDS)
            at = next((index for index, view in enumerate(views) if view.kind in dearer), len(views))
            views.insert(at, diagnosis_start_forecast.moves_view([move.key for move in plan.moves]))
        return views

    def _open_queues(self, job: JobState) -> list[str]:
        """Return the other queues that would admit the run as it is."""
        return [queue.name for queue in self._queues.all() if queue.name != job.spec.queue and self._takes(queue.name, job)]

    def _takes(self, queue: str, job: JobState) -> bool:
        spec = job.spec.model_copy(update={"queue": queue})
        try:
            return self._queues.admitted(job.series, spec, job.origin.user).priority == job.spec.priority
        except FairwayError:
            return False

    def _keep(self, key: JobKey, kept: _CachedAnswer) -> None:
        self._kept[key] = kept
        while len(self._kept) > MOST_KEPT:
            del self._kept[next(iter(self._kept))]

    def _remember(self, key: JobKey, prospect: StartProspect, now: float) -> None:
        """Record the forecast so that it can be compared with what happens.

        The scheduler may be another one by now, and the run may have started.
        """
        ledger = self._ledger()
        if ledger is not None and key in ledger.room and prospect.forecast is not None:
            forecast_record.say(ledger.memory, key, prospect.forecast, now)


def _play(start: SimulationState, calibration: start_forecast.ForecastCalibration) -> StartProspect:
    begun = time.thread_time()
    return start_simulation.prospect(start, calibration, lambda: time.thread_time() - begun > PATIENCE)
