"""Forecast when a waiting run will start by simulating the future with the same scheduler on a virtual clock.

In each simulation ("play") the runs have other durations, drawn from the history. Runs that have not been submitted yet are in
no play; `forecast.Calibration` learns the effect of these and other unforeseen events.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from fairway.plan.scheduling import scheduler_memory
from fairway.plan.scheduling.decision import SchedulingDecision
from fairway.plan.scheduling.delta import NodeChanged, QueueDefined, RunStopped, RunWaiting
from fairway.plan.scheduling.forecast import duration_estimate, start_forecast
from fairway.plan.scheduling.gang import WHOLE, with_sizes
from fairway.plan.scheduling.gang_request import GangRequest
from fairway.plan.scheduling.scheduler import Scheduler
from fairway.plan.scheduling.scheduler_state import SchedulerState
from fairway.state.job import JobKey
from fairway.state.node import ClusterNode
from fairway.state.queue import Queue

HORIZON = 72 * 3600.0
"""Length of a play in seconds."""
MOST_WAITING = 200
"""Maximum number of waiting runs ahead of the run that take part in a play."""
LEAST_PLAYS = 2
"""Minimum number of plays for a range."""
LEAVING = 30.0
"""Assumed seconds that an evicted run needs to save and stop."""
_LEAST_STEP = 30.0
_STEP = 0.05
"""Events within this fraction of the elapsed time count as simultaneous."""

Sizes = tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class SimulationState:
    """The initial state of a play. A self-contained value: it can be played later, in another thread or process."""

    key: JobKey
    now: float
    memory: bytes
    nodes: tuple[ClusterNode, ...]
    queues: tuple[Queue, ...]
    waiting: tuple[GangRequest, ...]
    left_out: int = 0
    """Runs ahead of it that are left out because there are more than `MOST_WAITING`."""


@dataclass(frozen=True, slots=True)
class StartProspect:
    """The result of the plays."""

    forecast: start_forecast.StartForecast | None
    """When the run starts; None when it does not within the horizon, or the plays were too few."""
    plays: int
    """Number of completed plays."""
    horizon: float = HORIZON
    beyond: bool = False
    """Whether the run did not start within `horizon` seconds in most plays."""
    left_out: int = 0
    """Runs ahead of it that the plays left out; with any, it starts later rather than earlier."""
    at_least: float = 0.0
    """Where there were too few plays: a lower bound, in seconds, from the plays so far."""
    guess: bool = False
    """Whether it depends on runs whose duration is unknown: without a timeout and without similar completed runs."""
    endless: tuple[str, ...] = ()
    """Services that hold the places when all other runs have ended: they never end by themselves. Only with `beyond`."""


class SimulationTimeoutError(Exception):
    """A play ran out of its time budget."""

    def __init__(self, reached: float) -> None:
        super().__init__(f"after {reached:.0f} s")
        self.reached = reached
        """Simulated seconds at that point."""


def situation(ledger: SchedulerState, key: JobKey, now: float) -> SimulationState:
    """Return the current state for plays of a waiting run."""
    own = ledger.room.get(key)
    assert own is not None
    before = [request for request in ledger.room.requests() if request.key != key and _is_before(ledger, request, own)]
    before.sort(key=lambda request: (-request.priority, request.submitted, request.key))
    return SimulationState(
        key,
        now,
        ledger.memory.encode(),
        tuple(ledger.nodes.values()),
        tuple(ledger.queues.values()),
        (*before[:MOST_WAITING], own),
        max(0, len(before) - MOST_WAITING),
    )


def _is_before(ledger: SchedulerState, request: GangRequest, own: GangRequest) -> bool:
    """Return whether `request` may be served before `own`: by order in the same queue, by priority in another queue."""
    if request.queue != own.queue:
        return request.priority >= own.priority
    line, mine = ledger.room.line_of(request.key), ledger.room.line_of(own.key)
    assert line is not None
    assert mine is not None
    return (-line.priority, line.level, request.submitted, request.key) < (-mine.priority, mine.level, own.submitted, own.key)


def prospect(
    start: SimulationState,
    calibration: start_forecast.ForecastCalibration,
    spent: Callable[[], bool],
    plays: int = start_forecast.SCENARIOS,
) -> StartProspect:
    """Play the situation up to `plays` times, until `spent` returns true."""
    waits: list[float] = []
    beyond, reached, guess = 0, 0.0, False
    endless: tuple[str, ...] = ()
    for number in range(plays):
        play = StartSimulation(start, start_forecast.part_in(number))
        try:
            wait = play.wait(HORIZON, spent)
        except SimulationTimeoutError as cutoff:
            reached = cutoff.reached
            break
        guess = guess or play.guessed
        if wait is None:
            beyond += 1
            endless = endless or play.endless
        else:
            waits.append(wait)
    played = len(waits) + beyond
    if played < min(LEAST_PLAYS, plays):
        return StartProspect(None, played, left_out=start.left_out, at_least=min([reached, *waits]))
    if 2 * len(waits) <= played:
        return StartProspect(None, played, beyond=True, left_out=start.left_out, guess=guess, endless=endless)
    return StartProspect(start_forecast.calibrated(waits, calibration), played, left_out=start.left_out, guess=guess)


class StartSimulation:
    """One simulated future, in which `part` determines the duration of every run."""

    def __init__(self, start: SimulationState, part: start_forecast.Part) -> None:
        self._key, self._begun, self._now = start.key, start.now, start.now
        self._scheduler = Scheduler(scheduler_memory.decode(start.memory))
        ledger = self._scheduler.ledger
        self._history, self._part = ledger.memory.history, part
        self._left: dict[JobKey, float] = {}
        """Remaining seconds of work, by run."""
        self._turn: dict[JobKey, int] = {}
        """Number of events scheduled for a run; only the last one is valid."""
        self._coming: list[tuple[float, JobKey, int, Sizes | None]] = []
        """Heap of events: when a run ends (sizes None), or leaves and returns to the queue with these maximum sizes."""
        self.guessed = False
        """Whether a run of unknown duration has ended."""
        self.endless: tuple[str, ...] = ()
        """The services that hold places, set when no other event remains."""
        for node in start.nodes:
            self._scheduler.apply(NodeChanged(node), start.now)
        for queue in start.queues:
            self._scheduler.apply(QueueDefined(queue), start.now)
        for request in start.waiting:
            self._scheduler.apply(RunWaiting(request), start.now)
        claimed = {name for kept in ledger.memory.reservations.values() for name in kept.claims}
        for key, running in ledger.running.items():
            self._left[key] = self._work_left(running.request, start.now - running.since)
            if running.leaving:
                self._expect(key, start.now + LEAVING, () if str(key) in claimed else None)
            else:
                self._expect(key, start.now + self._left[key])

    def wait(self, horizon: float, spent: Callable[[], bool]) -> float | None:
        """Return the seconds until the run starts; None when it does not start within `horizon`.

        Raises `SimulationTimeoutError` when `spent` returns true.
        """
        while True:
            decision = self._scheduler.decide(self._now)
            if any(start.key == self._key for start in decision.starts):
                return self._now - self._begun
            self._carry_out(decision)
            at = self._next_look(decision.wake_at)
            if at is None or at > self._begun + horizon:
                if not self._coming or self._coming[0][0] == math.inf:
                    self.endless = self._services()
                return None
            if spent():
                raise SimulationTimeoutError(self._now - self._begun)
            self._pass_to(at)

    def _carry_out(self, decision: SchedulingDecision) -> None:
        for start in decision.starts:
            running = self._scheduler.ledger.running[start.key]
            if start.key not in self._left:
                self._left[start.key] = self._work_left(running.request, 0.0)
            self._expect(start.key, self._now + self._left[start.key])
        for evict in decision.evictions:
            self._expect(evict.key, self._now + LEAVING, evict.sizes)

    def _next_look(self, wake_at: float | None) -> float | None:
        """Return the time of the next event or requested decision; the latter not before the current step has passed."""
        while self._coming and self._turn[self._coming[0][1]] != self._coming[0][2]:
            heapq.heappop(self._coming)
        times = [self._coming[0][0]] if self._coming else []
        if wake_at is not None:
            times.append(max(wake_at, self._now + self._step()))
        return min(times, default=None)

    def _pass_to(self, at: float) -> None:
        until = at + self._step()
        self._now = max(self._now, at)
        while self._coming and self._coming[0][0] <= until:
            time, key, turn, sizes = heapq.heappop(self._coming)
            if self._turn[key] == turn:
                self._now = max(self._now, time)
                self._leave(key, sizes)

    def _services(self) -> tuple[str, ...]:
        running = self._scheduler.ledger.running.values()
        return tuple(dict.fromkeys(run.request.service for run in running if run.request.service))

    def _step(self) -> float:
        return max(_LEAST_STEP, _STEP * (self._now - self._begun))

    def _leave(self, key: JobKey, sizes: Sizes | None) -> None:
        running = self._scheduler.ledger.running[key]
        request = running.request
        if sizes is None and not self.guessed:
            self.guessed = not duration_estimate.is_known(
                self._history, request.user, request.name, _gpus(request), request.limit
            )
        self._scheduler.apply(RunStopped(key, self._now, finished=sizes is None and not running.leaving), self._now)
        if sizes is not None:
            # A run that can resume saves before it leaves; any other loses its work.
            done = self._now - running.since if request.resumes else 0.0
            self._left[key] = max(1.0, self._left[key] - done)
            gang = with_sizes(request.gang, dict(sizes)) if sizes else request.gang
            self._scheduler.apply(RunWaiting(replace(request, gang=gang)), self._now)

    def _expect(self, key: JobKey, at: float, sizes: Sizes | None = None) -> None:
        turn = self._turn[key] = self._turn.get(key, 0) + 1
        heapq.heappush(self._coming, (at, key, turn, sizes))

    def _work_left(self, request: GangRequest, running_for: float) -> float:
        if request.service:
            return math.inf  # It ends only on request, which no play can foresee.
        ran = self._scheduler.ledger.memory.ran.get(str(request.key), (0.0, 0.0))[0] + max(0.0, running_for)
        part = self._part(request.key)
        return duration_estimate.remaining(self._history, request.user, request.name, _gpus(request), request.limit, ran, part)


def _gpus(request: GangRequest) -> float:
    return request.gang.gpus / WHOLE
