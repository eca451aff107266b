"""The register of contained failures: which work on which object fails, why, and when it is retried."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from fairway.app.port.port import Clock
from fairway.errors import FairwayError
from fairway.state.event import RunEvent
from fairway.state.fault import WorkFault, failed

STORE = "store"
ENGINE = "engine"
SCHEDULER = "scheduler"
LOOP = "loop"
"""Subjects that are not objects of a user."""
MOST_EVENTS = 1000
"""Maximum number of events that wait to be stored; older ones are dropped."""

log = logging.getLogger("fairway.faults")


class FaultRegister:
    """Contains failures. An exception in contained work becomes a `WorkFault` of its object; the caller continues.

    A fault is retried with back-off (`due`). It ends when the same work succeeds, or when nothing remains to be retried. Its
    begin and end are events of the object. The register is kept in memory: after a restart, work that still fails becomes a fault
    again.
    """

    def __init__(self, clock: Clock) -> None:
        self.noted: list[Callable[[str], None]] = []
        """Called with the subject of every new fault."""
        self._clock = clock
        self._known: dict[str, dict[str, WorkFault]] = {}
        self._events: list[RunEvent] = []

    @contextmanager
    def contain(self, subject: str, work: str) -> Iterator[None]:
        """Run one piece of work on an object; an exception becomes a fault of the object, success ends the fault."""
        try:
            yield
        except Exception as problem:  # noqa: BLE001 - containing every failure is the purpose.
            self.fail(subject, work, problem)
        else:
            self.clear(subject, work)

    def fail(self, subject: str, work: str, problem: Exception) -> None:
        """Record that the work failed. The first failure, and one with another cause, is logged and becomes an event."""
        before = self._known.get(subject, {}).get(work)
        fault = failed(before, subject, work, cause_of(problem), self._clock.now())
        self._known.setdefault(subject, {})[work] = fault
        if before is None or before.cause != fault.cause:
            expected = isinstance(problem, FairwayError | OSError)
            log.warning("%s: %s; it is retried", subject, fault.text, exc_info=None if expected else problem)
            self._tell(subject, "Fault", f"{fault.text}; it is retried")
            for call in self.noted:
                call(subject)

    def clear(self, subject: str, work: str = "") -> None:
        """End the fault of the work, or of all work on the object if none is named: it succeeded, or the object is gone."""
        faults = self._known.get(subject)
        if faults is None:
            return
        for name in [work] if work else list(faults):
            fault = faults.pop(name, None)
            if fault is not None and work:
                log.info("%s: %s works again after %d tries", subject, name, fault.tries)
                self._tell(subject, "Recovered", f"{name} works again")
        if not faults:
            del self._known[subject]

    def due(self, subject: str, work: str) -> bool:
        """Return whether the work may be tried now: it has no fault, or its back-off is over."""
        fault = self._known.get(subject, {}).get(work)
        return fault is None or self._clock.now() >= fault.retry_at

    def delay(self, subject: str, work: str) -> float:
        """Return the seconds until the work may be tried; 0 if it may be tried now."""
        fault = self._known.get(subject, {}).get(work)
        return max(0.0, fault.retry_at - self._clock.now()) if fault is not None else 0.0

    def take_due(self) -> tuple[WorkFault, ...]:
        """Return every fault whose retry is due. Those that have ended because nothing retries them are dropped afterwards."""
        now = self._clock.now()
        due = tuple(fault for faults in self._known.values() for fault in faults.values() if now >= fault.retry_at)
        for fault in due:
            if not fault.stands(now):
                self.clear(fault.subject, fault.work)
        return due

    def hurry(self, subject: str) -> None:
        """Make all retries for an object due now, because a user requested something."""
        now = self._clock.now()
        for work, fault in self._known.get(subject, {}).items():
            self._known[subject][work] = WorkFault(fault.subject, fault.work, fault.cause, fault.since, fault.tries, now)

    def of(self, subject: str) -> tuple[WorkFault, ...]:
        """Return the faults of an object, oldest first."""
        if not self._known:
            return ()
        now = self._clock.now()
        return tuple(sorted((fault for fault in self._known.get(subject, {}).values() if fault.stands(now)), key=_age))

    def all(self) -> tuple[WorkFault, ...]:
        """Return all faults, oldest first."""
        return tuple(sorted((fault for subject in self._known for fault in self.of(subject)), key=_age))

    def next_retry(self, after: float) -> float | None:
        """Return the time of the first retry after the given time; None if there is none."""
        return min((fault.retry_at for fault in self.all() if fault.retry_at > after), default=None)

    def take_events(self) -> tuple[RunEvent, ...]:
        """Return the events that are not stored yet; the caller stores them, or returns them with `put_back`."""
        events, self._events = tuple(self._events), []
        return events

    def put_back(self, events: tuple[RunEvent, ...]) -> None:
        """Keep events that could not be stored."""
        self._events = [*events, *self._events][-MOST_EVENTS:]

    def _tell(self, subject: str, reason: str, message: str) -> None:
        self.put_back(())
        self._events.append(RunEvent(self._clock.now(), subject, reason, message))


def _age(fault: WorkFault) -> float:
    return fault.since


def cause_of(problem: BaseException) -> str:
    """Describe an exception: the message and fix of a Fairway error, otherwise the type and message."""
    if isinstance(problem, FairwayError):
        return f"{problem.message}; {problem.fix}" if problem.fix else problem.message
    text = str(problem)
    if isinstance(problem, OSError):
        return text or type(problem).__name__
    return f"{type(problem).__name__}: {text}" if text else type(problem).__name__
