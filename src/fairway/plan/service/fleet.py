"""The replicas themselves: what they taught, which are missing, which may go.

A ready replica that is not wanted stays as long as those that are wanted are not enough, so that what ran before goes only
when something else is ready. Replicas that end by themselves are replaced: the first at once, then with a growing pause; so
are those that do not answer any more.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from fairway.plan.service.measured import Measured
from fairway.plan.service.split import Part, speed
from fairway.state.batching import BatchingVerdict
from fairway.state.service import Replica, ReplicaPhase, Revision, RevisionPhase, Service
from fairway.units import quantity

PAUSE_MOST = 300.0
"""Seconds between two tries at the most."""
WAITS = 10.0
"""A replica that waits for a place for longer than this is worth a word."""
PROVEN = 60.0
"""A replica that has been ready for this long makes earlier failures forgotten."""
COLD_MOST = 86_400.0
"""Seconds that a cold start can take; what is longer was measured by clocks that do not agree."""
_MOST_DOUBLINGS = 16
_STRESS = 0.95
"""How busy the good replicas may be for a moment, so that a bad revision gets less."""

_LIVE = (ReplicaPhase.WAITING, ReplicaPhase.STARTING, ReplicaPhase.READY)


@dataclass(frozen=True, slots=True)
class Orders:
    """What is to be done with replicas."""

    start: tuple[int, ...] = ()
    drain: tuple[str, ...] = ()
    stop: tuple[str, ...] = ()
    wake_at: float | None = None
    """When a pause or a grace is over."""


def ready_names(replicas: Iterable[Replica]) -> dict[int, frozenset[str]]:
    """The names of the ready replicas, by revision."""
    found: dict[int, set[str]] = {}
    for replica in replicas:
        if replica.phase is ReplicaPhase.READY:
            found.setdefault(replica.revision, set()).add(replica.name)
    return {revision: frozenset(names) for revision, names in found.items()}


def learn(service: Service, replicas: Sequence[Replica], now: float) -> Service:
    """What the replicas taught of their revisions: that they get ready, how soon, and how often they fail."""
    revisions = tuple(
        _learnt(revision, [replica for replica in replicas if replica.revision == revision.number], now)
        for revision in service.revisions
    )
    return service if revisions == service.revisions else replace(service, revisions=revisions)


def _learnt(revision: Revision, replicas: Sequence[Replica], now: float) -> Revision:
    ready = [replica for replica in replicas if replica.phase is ReplicaPhase.READY]
    if ready and revision.phase is RevisionPhase.NEW:
        revision = replace(revision, phase=RevisionPhase.TRIED)
    timed = [replica for replica in ready if replica.started is not None and replica.number > revision.cold_number]
    if timed:
        newest = max(timed, key=lambda replica: replica.number)
        took = max(0.0, newest.since - (newest.started or 0.0))
        known = took if took <= COLD_MOST else revision.cold_start
        revision = replace(revision, cold_start=known, cold_number=newest.number)
    seen = (revision.failed_at, revision.failed_number)
    failed = sorted(
        (replica.since, replica.number)
        for replica in replicas
        if replica.phase is ReplicaPhase.GONE and replica.failed and (replica.since, replica.number) > seen
    )
    if failed:
        at, number = failed[-1]
        return replace(revision, failures=revision.failures + len(failed), failed_at=at, failed_number=number)
    proven = any(replica.since <= now - PROVEN for replica in ready) and revision.failed_at <= now - PROVEN
    return replace(revision, failures=0) if revision.failures and proven else revision


def learn_batching(service: Service, replicas: Sequence[Replica], measured: Measured) -> Service:
    """What the replicas report of batching, by revision. Where they differ, one that does not batch counts."""
    loads = measured.last.replicas if measured.last is not None else {}
    told: dict[int, tuple[bool, int, BatchingVerdict]] = {}
    for replica in replicas:
        verdict = loads[replica.name].batching if replica.name in loads else None
        if verdict is not None:
            one = (verdict.batched, replica.number, verdict)
            told[replica.revision] = min(told.get(replica.revision, one), one, key=lambda each: each[:2])
    revisions = tuple(replace(one, batching=told[one.number][2]) if one.number in told else one for one in service.revisions)
    return service if revisions == service.revisions else replace(service, revisions=revisions)


def without_room(replicas: Iterable[Replica], revision: int, now: float) -> Replica | None:
    """A replica of the revision that has waited for a place for a while, with what it waits for."""
    waiting = (one for one in replicas if one.revision == revision and one.phase is ReplicaPhase.WAITING and one.message)
    return next((one for one in waiting if one.created <= now - WAITS), None)


def not_before(revision: Revision) -> float:
    """When the next replica may be started."""
    if revision.failures <= 1:
        return 0.0
    doublings = min(revision.failures - 2, _MOST_DOUBLINGS)
    return revision.failed_at + min(PAUSE_MOST, 2.0**doublings)


def orders(service: Service, replicas: Sequence[Replica], parts: Mapping[int, Part], measured: Measured, now: float) -> Orders:
    """What to start, drain and stop, so that each revision has what it should."""
    start: list[int] = []
    wakes: list[float] = []
    stuck = {replica.name for replica in replicas if _is_stuck(service, replica, now)}
    replicas = [replica for replica in replicas if replica.name not in stuck]
    for number, part in sorted(parts.items()):
        live = sum(replica.revision == number and replica.phase in _LIVE for replica in replicas)
        revision = service.revision(number)
        if part.wanted <= live or revision is None:
            continue
        if now < not_before(revision):
            wakes.append(not_before(revision))
        else:
            start.extend([number] * (part.wanted - live))
    useless, spare = _surplus(replicas, parts)
    drain = _free(service, replicas, spare, parts)
    over, due = _finished(service, replicas, measured, now)
    wakes.extend(due)
    return Orders(tuple(start), tuple(drain), (*sorted(stuck), *useless, *over), min(wakes, default=None))


def _is_stuck(service: Service, replica: Replica, now: float) -> bool:
    """Whether its process has not answered for so long that another one should be tried."""
    return replica.phase is ReplicaPhase.STARTING and now >= replica.since + quantity.seconds(service.spec.rollout.guard.ready)


def _surplus(replicas: Sequence[Replica], parts: Mapping[int, Part]) -> tuple[list[str], list[Replica]]:
    """Replicas beyond what their revisions should have: those that are not ready (no use), and those that are."""
    useless: list[str] = []
    spare: list[Replica] = []
    order = {ReplicaPhase.WAITING: 0, ReplicaPhase.STARTING: 1, ReplicaPhase.READY: 2}
    for number in sorted({replica.revision for replica in replicas}):
        live = [replica for replica in replicas if replica.revision == number and replica.phase in _LIVE]
        live.sort(key=lambda replica: (order[replica.phase], -replica.number))
        part = parts.get(number, Part(0))
        beyond = [] if part.keeps else live[: max(0, len(live) - part.wanted)]
        useless.extend(replica.name for replica in beyond if replica.phase is not ReplicaPhase.READY)
        spare.extend(replica for replica in beyond if replica.phase is ReplicaPhase.READY)
    return useless, spare


def _free(service: Service, replicas: Sequence[Replica], spare: list[Replica], parts: Mapping[int, Part]) -> list[str]:
    """Of the ready ones beyond, those that may go because others are enough without them."""
    ready = ready_names(replicas)

    def lack(factor: float) -> float:
        """What is missing, in requests a second."""
        missing = {number: math.ceil(part.need * factor) - len(ready.get(number, ())) for number, part in parts.items()}
        return sum(max(0, count) * speed(service, number) for number, count in missing.items())

    def rank(replica: Replica) -> tuple[bool, bool, int]:
        return (is_bad(service, replica.revision), replica.revision != service.stable, replica.number)

    kept = 0.0
    free: list[str] = []
    for replica in sorted(spare, key=rank):
        if parts.get(replica.revision, Part(0)).makes_way:
            free.append(replica.name)
        elif kept < lack(stress(service) if is_bad(service, replica.revision) else 1.0):
            kept += speed(service, replica.revision)
        else:
            free.append(replica.name)
    return free


def is_bad(service: Service, number: int) -> bool:
    """Whether the revision was rolled back."""
    revision = service.revision(number)
    return revision is not None and revision.phase is RevisionPhase.BAD


def stress(service: Service) -> float:
    """The part of the planned replicas that is enough for a moment."""
    return min(1.0, quantity.percent(service.spec.scaling.utilisation) / _STRESS)


def _finished(service: Service, replicas: Sequence[Replica], measured: Measured, now: float) -> tuple[list[str], list[float]]:
    """Draining replicas that have nothing left or were given long enough; and when the others' time is over."""
    over: list[str] = []
    due: list[float] = []
    # Without a port there is no router, which would be asked what is under way.
    never_asked = service.deleting and not service.port
    for replica in replicas:
        if replica.phase is not ReplicaPhase.DRAINING:
            continue
        revision = service.revision(replica.revision)
        end = replica.since + quantity.seconds((revision.spec if revision else service.spec).grace)
        if now >= end or never_asked or _is_idle(replica, measured):
            over.append(replica.name)
        else:
            due.append(end)
    return over, due


def _is_idle(replica: Replica, measured: Measured) -> bool:
    """Whether a look from after the drain found nothing under way."""
    last = measured.last
    if last is None or last.route is None or last.time <= replica.since:
        return False
    seen, own = last.route.backends.get(replica.name), last.replicas.get(replica.name)
    return not (seen and seen.in_flight) and not (own and (own.in_flight or own.queue))
