"""Queue rules: limits, quotas and fair shares, and what a queue borrows or may reclaim."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fairway.plan.scheduling import resource_amount
from fairway.plan.scheduling.decision import LimitObstacle
from fairway.plan.scheduling.queueing.usage_account import UsageAccounts
from fairway.state.queue import GPU_TYPE, Queue

_SLACK = 1e-9
"""Relative tolerance of a share, so that rounding does not turn a queue into a borrower."""

Gone = Sequence[tuple[str, Mapping[str, int]]]
"""Runs of the queue that are assumed to have left: their user and what they held."""
Own = Mapping[str, float]
"""What a queue is entitled to, by resource. Resources that are not named are unbounded."""


def limit(queue: Queue, user: str, asked: Mapping[str, int], accounts: UsageAccounts, gone: Gone = ()) -> LimitObstacle | None:
    """Return the first limit of the queue that forbids the run to start now; None when all allow it."""
    if not queue.quota and not queue.per_user:
        return None
    used = _without(accounts.used.get(queue.name, {}), [held for _, held in gone])
    if not queue.borrow:
        for name, allowed in queue.quota.items():
            if asked.get(name, 0) and used.get(name, 0) + asked[name] > allowed:
                return LimitObstacle(name, "quota", asked[name], used.get(name, 0), allowed, queue.name)
    own = _without(accounts.used_by.get((queue.name, user), {}), [{**held, "runs": 1} for who, held in gone if who == user])
    for name, allowed in queue.per_user.items():
        needed = 1 if name == "runs" else asked.get(name, 0)
        if needed and own.get(name, 0) + needed > allowed:
            return LimitObstacle(name, "per_user", needed, own.get(name, 0), allowed, queue.name, user)
    return None


def _without(used: Mapping[str, int], gone: Sequence[Mapping[str, int]]) -> Mapping[str, int]:
    if not gone:
        return used
    remaining = dict(used)
    for held in gone:
        resource_amount.add(remaining, held, -1)
    return remaining


def never(queue: Queue, user: str, asked: Mapping[str, int]) -> LimitObstacle | None:
    """Return the first limit that forbids the run even if nothing else runs."""
    return limit(queue, user, asked, UsageAccounts({}))


def order(queue: Queue, accounts: UsageAccounts, now: float) -> tuple[bool, float]:
    """Return the sort key of a queue: queues below their quota first, then the least usage by weight."""
    used = accounts.used.get(queue.name, {})
    within = bool(queue.quota) and all(used.get(name, 0) < count for name, count in queue.quota.items())
    return (not within, accounts.had(queue.name, now) / queue.weight)


def belongings(active: Sequence[Queue], totals: Mapping[str, int]) -> dict[str, Own]:
    """Return the entitlement of each active queue.

    A queue with a quota is entitled to its quota. What the quotas leave of a resource is divided among the other queues by
    weight.
    """
    shared = [queue for queue in active if not queue.quota]
    weight = sum(queue.weight for queue in shared)
    unassigned = dict(totals)
    for queue in active:
        resource_amount.add(unassigned, {name: min(count, totals.get(name, 0)) for name, count in queue.quota.items()}, -1)
    entitlements: dict[str, Own] = {queue.name: queue.quota for queue in active if queue.quota}
    named = {name for queue in active for name in queue.quota}
    counted = [name for name in totals if name in named or not name.startswith(GPU_TYPE)]
    for queue in shared:
        entitlements[queue.name] = {name: max(0, unassigned.get(name, 0)) * queue.weight / weight for name in counted}
    return entitlements


def spare(own: Own, used: Mapping[str, int]) -> Own:
    """Return the unused part of an entitlement; negative where the queue borrows."""
    return {name: count + _SLACK * count - used.get(name, 0) for name, count in own.items()}


def beyond(queue: Queue, spare: Own, asked: Mapping[str, int]) -> Mapping[str, float] | None:
    """Return by how much a run takes its queue beyond its entitlement; empty when it does not; None when it must not.

    A quota is a hard bound. A share by weight is approximated: a run that does not fit into the unused part may exceed the share
    by as much as was unused. Otherwise a queue of large gangs would always stay below its share, in favour of queues of small
    ones.
    """
    excess = {name: asked.get(name, 0) - count for name, count in spare.items() if asked.get(name, 0) > count}
    if excess and (queue.quota or any(surplus > spare[name] for name, surplus in excess.items())):
        return None
    return excess


def borrowed(queue: Queue, accounts: UsageAccounts) -> dict[str, int]:
    """Return what the queue holds beyond its quota."""
    used = accounts.used.get(queue.name, {})
    return {name: used[name] - allowed for name, allowed in queue.quota.items() if used.get(name, 0) > allowed}
