"""Preemption: evict the cheapest victims that let a blocked gang start, and no run whose eviction would not help.

Tasks beyond the minimum of an elastic gang are evicted first, whole gangs after them. An evicted gang returns to the queue
and resumes later.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import chain, islice, repeat

from fairway.plan.scheduling import queue_fill, resource_amount, seat_finder, seat_reservation
from fairway.plan.scheduling.decision import EvictDecision, EvictionCause, SchedulingDraft
from fairway.plan.scheduling.gang import TaskSeat
from fairway.plan.scheduling.gang_request import GangRequest
from fairway.plan.scheduling.preemption import victim_selection
from fairway.plan.scheduling.preemption.queue_balance import QueueBalanceCache
from fairway.plan.scheduling.preemption.victim import PreemptionClaim, PreemptionVictim, leaving_cost
from fairway.plan.scheduling.queue_fill import BlockedLines
from fairway.plan.scheduling.queueing.waiting_room import WaitingLine
from fairway.plan.scheduling.reservation import idle_reserved_node
from fairway.plan.scheduling.scheduler_memory import SeatReservation
from fairway.plan.scheduling.scheduler_state import SchedulerState, key_of
from fairway.state.job import JobKey

__all__ = ["leaving_cost", "make_room", "spared", "sparing", "would_leave"]

MOST_PREEMPTORS = 16
"""Maximum number of preempting gangs in one decision."""
MANY = 512
"""With more running gangs than this, a failed search for victims is not repeated for `REST` seconds."""
REST = 60.0
"""Seconds before such a search is repeated. Other events trigger decisions often enough in the meantime."""


def make_room(
    ledger: SchedulerState, standings: QueueBalanceCache, blocked: BlockedLines, now: float, draft: SchedulingDraft
) -> None:
    """Evict runs for blocked gangs that have a right to their places."""
    _end_rests(ledger, now)
    rivals = standings.at(ledger, now)
    remaining, size_before = MOST_PREEMPTORS, draft.size
    for line, own_queue in chain(zip(blocked.for_room, repeat(False)), zip(blocked.by_rule, repeat(True))):
        if remaining > 0 and _rests(ledger, line):
            continue
        for request in line.in_order() if rivals.matter_to(ledger, line.key, line.asks()) else ():
            if remaining <= 0:
                if draft.size > size_before:
                    # The next gangs may have the same right and must not wait for another event.
                    draft.wake(now)
                return
            name = str(request.key)
            if _is_served(ledger, name):
                continue
            if name in ledger.memory.futile:
                break
            claim = PreemptionClaim(ledger, rivals, request, line.asks(), now, _joining(ledger, draft))
            if not claim.is_promising(line.asks()):
                break
            remaining -= 1
            if not _make_room(ledger, claim, now, draft, own_queue=own_queue):
                _rest(ledger, request, now)
                break
            rivals = standings.at(ledger, now)


def _end_rests(ledger: SchedulerState, now: float) -> None:
    """Drop expired entries of `memory.futile`."""
    for name in [name for name, until in ledger.memory.futile.items() if until <= now]:
        del ledger.memory.futile[name]


def _rests(ledger: SchedulerState, line: WaitingLine) -> bool:
    """Return whether the search for victims rests for the line's first run, and so for the whole line."""
    if line.filed is None:
        return True
    name = str(line.filed[3])
    return name in ledger.memory.futile and not _is_served(ledger, name)


def _rest(ledger: SchedulerState, request: GangRequest, now: float) -> None:
    if len(ledger.running) > MANY:
        ledger.memory.futile[str(request.key)] = now + REST


def would_leave(ledger: SchedulerState, request: GangRequest, now: float) -> list[PreemptionVictim]:
    """Return the victims that would be evicted for the run now; empty when there are none or they would not help."""
    rivals = QueueBalanceCache().at(ledger, now, (request.queue,))
    claim = PreemptionClaim(ledger, rivals, request, resource_amount.of_gang(request.gang), now)
    result = victim_selection.cheapest(ledger, claim)
    return [] if result is None else result[0]


def spared(ledger: SchedulerState, request: GangRequest, now: float) -> list[JobKey]:
    """Return the runs that are spared for a replica only because they would lose all their work; none if others suffice."""
    if not request.service or would_leave(ledger, request, now):
        return []
    as_job = replace(request, service="")
    return sorted(victim.key for victim in would_leave(ledger, as_job, now) if victim.running.request.loses_all)


def sparing(ledger: SchedulerState, requests: Iterable[GangRequest], now: float) -> dict[JobKey, list[JobKey]]:
    """Return `spared` for the first `MOST_PREEMPTORS` waiting replicas; all of them would take too long where many wait."""
    replicas = (request for request in requests if request.service)
    return {request.key: spared(ledger, request, now) for request in islice(replicas, MOST_PREEMPTORS)}


def _is_served(ledger: SchedulerState, name: str) -> bool:
    """Return whether runs that leave for it, or a plan of moves, already provide its places."""
    kept = ledger.memory.reservations.get(name)
    return kept is not None and (kept.exact or seat_reservation.is_coming(ledger, kept))


def _make_room(ledger: SchedulerState, claim: PreemptionClaim, now: float, draft: SchedulingDraft, *, own_queue: bool) -> bool:
    """Try to free places for the claim, by eviction or from weaker reservations; return whether that succeeded."""
    request = claim.request
    if not own_queue and _displace(ledger, claim, now, draft):
        return True
    result = victim_selection.cheapest(ledger, claim, own_queue=own_queue)
    if result is None:
        return False
    victims, seats = result
    leaving = [victim for victim in victims if not _take_back(ledger, victim, now, draft)]
    if not leaving and queue_fill.try_start(ledger, request, now, draft):
        return True
    for victim in leaving:
        _evict(ledger, victim, request, now, draft)
    if _drop_lesser(ledger, claim, {seat.node for seat in seats}) and victims:
        draft.wake(now)
    claims = [str(victim.key) for victim in leaving]
    claims += [str(key) for key in _leaving_from(ledger, seats) if str(key) not in claims]
    if claims or not victims or not queue_fill.try_start(ledger, request, now, draft):
        ledger.reserve(request.key, SeatReservation(seats, now, now, tuple(claims)))
    return True


def _joining(ledger: SchedulerState, draft: SchedulingDraft) -> set[JobKey]:
    """Return runs that get additional tasks in this decision: their start cannot be revoked, nor can they be evicted."""
    return {started.key for started in draft.starts if ledger.running[started.key].seats != started.seats}


def _take_back(ledger: SchedulerState, victim: PreemptionVictim, now: float, draft: SchedulingDraft) -> bool:
    """Revoke the victim's seats if it was started in this decision, instead of evicting it; return whether it was."""
    if all(started.key != victim.key for started in draft.starts):
        return False
    queue_fill.take_back(ledger, victim.key, victim.seats, now, draft)
    # Its remaining places are offered at once.
    draft.wake(now)
    return True


def _evict(ledger: SchedulerState, victim: PreemptionVictim, whom: GangRequest, now: float, draft: SchedulingDraft) -> None:
    draft.evictions.append(EvictDecision(victim.key, victim.cause, whom.key, _sizes_after(victim), whom.service))
    ledger.mark_leaving(victim.key)
    if victim.cause is EvictionCause.SHRINK:
        freed = set(victim.seats)
        kept_seats = tuple(seat for seat in victim.running.seats if seat not in freed)
        ledger.reserve(victim.key, SeatReservation(kept_seats, now, now, (str(victim.key),), exact=True))


def _leaving_from(ledger: SchedulerState, seats: Sequence[TaskSeat]) -> list[JobKey]:
    nodes = {seat.node for seat in seats}
    return sorted(key for key in ledger.roster.leaving if any(seat.node in nodes for seat in ledger.running[key].seats))


def _displace(ledger: SchedulerState, claim: PreemptionClaim, now: float, draft: SchedulingDraft) -> bool:
    """Start the run on places reserved for runs that the claim could preempt; return whether it started."""
    nodes = [idle for idle in idle_reserved_node.idle_nodes(ledger) if all(claim.is_lesser(name) for name in idle.owners)]
    if not idle_reserved_node.may_hold(claim.request.gang, nodes):
        return False
    mark = ledger.cluster.mark()
    idle_reserved_node.give(ledger, claim.request, nodes)
    seats = seat_finder.would_do(ledger, claim.request)
    ledger.cluster.undo(mark)
    if seats is None:
        return False
    dropped = _drop_lesser(ledger, claim, {seat.node for seat in seats})
    started = queue_fill.try_start(ledger, claim.request, now, draft)
    if started and dropped:
        # The other places of the dropped reservations are offered at once.
        draft.wake(now)
    return started


def _drop_lesser(ledger: SchedulerState, claim: PreemptionClaim, nodes: set[str]) -> bool:
    """Drop the reservations on these nodes that the claim overrides; return whether there were any."""
    freed = ledger.freed
    names = {name for node in nodes for name, _ in ledger.promises.kept_for(node)} - {str(claim.request.key)}
    for name in sorted(names):
        if claim.is_lesser(name) and not ledger.memory.reservations[name].exact:
            ledger.unreserve(key_of(name))
    return ledger.freed > freed


def _sizes_after(victim: PreemptionVictim) -> tuple[tuple[str, int], ...]:
    if victim.cause is not EvictionCause.SHRINK:
        return ()
    freed = set(victim.seats)
    counts = {part.role: 0 for part in victim.running.request.gang.parts}
    for seat in victim.running.seats:
        counts[seat.role] += seat not in freed
    return tuple(sorted(counts.items()))
