"""When a waiting run will start: the future is played through by the very same scheduler, on a clock that is not real.

Each time the runs last otherwise, as those before them did. What has not been submitted yet is in no play; what that and
other surprises make of it is learnt by `forecast.Calibration`.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from fairway.plan.scheduling import durations, forecast, memory
from fairway.plan.scheduling.decision import Decision
from fairway.plan.scheduling.delta import Asked, Left, NodeSeen, QueueSet
from fairway.plan.scheduling.ledger import Ledger
from fairway.plan.scheduling.request import Request
from fairway.plan.scheduling.scheduler import Scheduler
from fairway.plan.scheduling.shape import WHOLE, with_sizes
from fairway.state.job import JobKey
from fairway.state.node import Node
from fairway.state.queue import Queue

HORIZON = 72 * 3600.0
"""Seconds that are looked ahead."""
MOST_WAITING = 200
"""So many of those that are served before the run play a part."""
LEAST_PLAYS = 2
"""Fewer plays say nothing of a range."""
LEAVING = 30.0
"""Seconds that a run is thought to need to save and leave."""
_LEAST_STEP = 30.0
_STEP = 0.05
"""What happens within this part of the time that has passed counts as happening at once."""

Sizes = tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class Situation:
    """Everything that a play begins with. A value of its own: it can be played anywhere, later."""

    key: JobKey
    now: float
    memory: bytes
    nodes: tuple[Node, ...]
    queues: tuple[Queue, ...]
    waiting: tuple[Request, ...]
    left_out: int = 0
    """Runs that are served before it and play no part, because there are so many."""


@dataclass(frozen=True, slots=True)
class Prospect:
    """What the plays say of the start."""

    forecast: forecast.Forecast | None
    """When it starts; None when it does not within the time looked at, or nobody can say."""
    plays: int
    """Plays that came to an end."""
    horizon: float = HORIZON
    beyond: bool = False
    """Whether most plays did not see it start within `horizon` seconds."""
    left_out: int = 0
    """More runs are before it than play a part: it starts later rather than sooner."""
    at_least: float = 0.0
    """How far the play that was broken off had come without seeing it start, where there were too few plays."""
    guess: bool = False
    """Whether it rests on runs of which nothing says how long they take: neither a timeout nor runs that have ended."""
    endless: tuple[str, ...] = ()
    """Services that hold the room when all else has ended: they never end by themselves. Only where it is `beyond`."""


class OutOfPatienceError(Exception):
    """A play took too long."""

    def __init__(self, reached: float) -> None:
        super().__init__(f"after {reached:.0f} s")
        self.reached = reached
        """Seconds that had been played by then."""


def situation(ledger: Ledger, key: JobKey, now: float) -> Situation:
    """What is, for a run that waits."""
    own = ledger.room.get(key)
    assert own is not None
    before = [request for request in ledger.room.requests() if request.key != key and _is_before(ledger, request, own)]
    before.sort(key=lambda request: (-request.priority, request.submitted, request.key))
    return Situation(
        key,
        now,
        ledger.memory.encode(),
        tuple(ledger.nodes.values()),
        tuple(ledger.queues.values()),
        (*before[:MOST_WAITING], own),
        max(0, len(before) - MOST_WAITING),
    )


def _is_before(ledger: Ledger, request: Request, own: Request) -> bool:
    """Whether it may be served before the run: it is in its queue, or it is of another and not less urgent."""
    if request.queue != own.queue:
        return request.priority >= own.priority
    line, mine = ledger.room.line_of(request.key), ledger.room.line_of(own.key)
    assert line is not None
    assert mine is not None
    return (-line.priority, line.level, request.submitted, request.key) < (-mine.priority, mine.level, own.submitted, own.key)


def prospect(
    start: Situation, calibration: forecast.Calibration, spent: Callable[[], bool], plays: int = forecast.SCENARIOS
) -> Prospect:
    """Play it through, as often as `spent` allows."""
    waits: list[float] = []
    beyond, reached, guess = 0, 0.0, False
    endless: tuple[str, ...] = ()
    for number in range(plays):
        play = Play(start, forecast.part_in(number))
        try:
            wait = play.wait(HORIZON, spent)
        except OutOfPatienceError as cut:
            reached = cut.reached
            break
        guess = guess or play.guessed
        if wait is None:
            beyond += 1
            endless = endless or play.endless
        else:
            waits.append(wait)
    played = len(waits) + beyond
    if played < min(LEAST_PLAYS, plays):
        return Prospect(None, played, left_out=start.left_out, at_least=min([reached, *waits]))
    if 2 * len(waits) <= played:
        return Prospect(None, played, beyond=True, left_out=start.left_out, guess=guess, endless=endless)
    return Prospect(forecast.calibrated(waits, calibration), played, left_out=start.left_out, guess=guess)


class Play:
    """One future: every run lasts as long as `part` says of it."""

    def __init__(self, start: Situation, part: forecast.Part) -> None:
        self._key, self._begun, self._now = start.key, start.now, start.now
        self._scheduler = Scheduler(memory.decode(start.memory))
        ledger = self._scheduler.ledger
        self._history, self._part = ledger.memory.history, part
        self._left: dict[JobKey, float] = {}
        """Seconds of work that a run has still to do."""
        self._turn: dict[JobKey, int] = {}
        """How often something was expected of a run: of several expectations the last one counts."""
        self._coming: list[tuple[float, JobKey, int, Sizes | None]] = []
        """Who ends when; and who leaves when to come again, with how many tasks at most."""
        self.guessed = False
        """Whether a run has ended whose length was only guessed."""
        self.endless: tuple[str, ...] = ()
        """The services that hold places, once nothing else will happen any more."""
        for node in start.nodes:
            self._scheduler.apply(NodeSeen(node), start.now)
        for queue in start.queues:
            self._scheduler.apply(QueueSet(queue), start.now)
        for request in start.waiting:
            self._scheduler.apply(Asked(request), start.now)
        claimed = {name for kept in ledger.memory.reservations.values() for name in kept.claims}
        for key, running in ledger.running.items():
            self._left[key] = self._work_left(running.request, start.now - running.since)
            if running.leaving:
                self._expect(key, start.now + LEAVING, () if str(key) in claimed else None)
            else:
                self._expect(key, start.now + self._left[key])

    def wait(self, horizon: float, spent: Callable[[], bool]) -> float | None:
        """Seconds until the run starts; None when it does not in that time. Raises when patience is spent."""
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
                raise OutOfPatienceError(self._now - self._begun)
            self._pass_to(at)

    def _carry_out(self, decision: Decision) -> None:
        for start in decision.starts:
            running = self._scheduler.ledger.running[start.key]
            if start.key not in self._left:
                self._left[start.key] = self._work_left(running.request, 0.0)
            self._expect(start.key, self._now + self._left[start.key])
        for evict in decision.evictions:
            self._expect(evict.key, self._now + LEAVING, evict.sizes)

    def _next_look(self, wake_at: float | None) -> float | None:
        """When something happens, or the scheduler wants to look again; not for every little thing."""
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
        return tuple(dict.fromkeys(each.request.service for each in running if each.request.service))

    def _step(self) -> float:
        return max(_LEAST_STEP, _STEP * (self._now - self._begun))

    def _leave(self, key: JobKey, sizes: Sizes | None) -> None:
        running = self._scheduler.ledger.running[key]
        request = running.request
        if sizes is None and not self.guessed:
            self.guessed = not durations.is_known(self._history, request.user, request.name, _gpus(request), request.limit)
        self._scheduler.apply(Left(key, self._now, finished=sizes is None and not running.leaving), self._now)
        if sizes is not None:
            # Who can resume saves before it leaves; who cannot has done nothing.
            done = self._now - running.since if request.resumes else 0.0
            self._left[key] = max(1.0, self._left[key] - done)
            gang = with_sizes(request.gang, dict(sizes)) if sizes else request.gang
            self._scheduler.apply(Asked(replace(request, gang=gang)), self._now)

    def _expect(self, key: JobKey, at: float, sizes: Sizes | None = None) -> None:
        turn = self._turn[key] = self._turn.get(key, 0) + 1
        heapq.heappush(self._coming, (at, key, turn, sizes))

    def _work_left(self, request: Request, running_for: float) -> float:
        if request.service:
            return math.inf  # It ends when it is told to, which no play knows.
        ran = self._scheduler.ledger.memory.ran.get(str(request.key), (0.0, 0.0))[0] + max(0.0, running_for)
        part = self._part(request.key)
        return durations.remaining(self._history, request.user, request.name, _gpus(request), request.limit, ran, part)


def _gpus(request: Request) -> float:
    return request.gang.gpus / WHOLE
