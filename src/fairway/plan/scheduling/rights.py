"""What a queue may use, what belongs to it, and who must give way to whom."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fairway.plan.scheduling import amounts
from fairway.plan.scheduling.accounts import Accounts
from fairway.plan.scheduling.decision import Limit
from fairway.state.queue import GPU_TYPE, Queue

_SLACK = 1e-9
"""Of a part, so that rounding does not make a borrower of anybody."""

Gone = Sequence[tuple[str, Mapping[str, int]]]
"""Users of the queue, and what a run of theirs held that is thought to have left."""
Own = Mapping[str, float]
"""What belongs to a queue, by resource. What is not named is not bounded."""


def limit(queue: Queue, user: str, asked: Mapping[str, int], accounts: Accounts, gone: Gone = ()) -> Limit | None:
    """The first rule of the queue that forbids the run to start now; None when all allow it."""
    if not queue.quota and not queue.per_user:
        return None
    used = _without(accounts.used.get(queue.name, {}), [held for _, held in gone])
    if not queue.borrow:
        for name, allowed in queue.quota.items():
            if asked.get(name, 0) and used.get(name, 0) + asked[name] > allowed:
                return Limit(name, "quota", asked[name], used.get(name, 0), allowed, queue.name)
    own = _without(accounts.used_by.get((queue.name, user), {}), [{**held, "runs": 1} for who, held in gone if who == user])
    for name, allowed in queue.per_user.items():
        wanted = 1 if name == "runs" else asked.get(name, 0)
        if wanted and own.get(name, 0) + wanted > allowed:
            return Limit(name, "per_user", wanted, own.get(name, 0), allowed, queue.name, user)
    return None


def _without(used: Mapping[str, int], gone: Sequence[Mapping[str, int]]) -> Mapping[str, int]:
    if not gone:
        return used
    left = dict(used)
    for held in gone:
        amounts.add(left, held, -1)
    return left


def never(queue: Queue, user: str, asked: Mapping[str, int]) -> Limit | None:
    """The first rule that forbids the run whatever else runs."""
    return limit(queue, user, asked, Accounts({}))


def order(queue: Queue, accounts: Accounts, now: float) -> tuple[bool, float]:
    """Which queue is served first: one that has not all of its quota yet, then the one that has had least by its weight."""
    used = accounts.used.get(queue.name, {})
    within = bool(queue.quota) and all(used.get(name, 0) < count for name, count in queue.quota.items())
    return (not within, accounts.had(queue.name, now) / queue.weight)


def belongings(active: Sequence[Queue], totals: Mapping[str, int]) -> dict[str, Own]:
    """What belongs to each of the queues that want any.

    A quota is its queue's own. What quotas leave of a resource belongs to the queues without any, by weight.
    """
    shared = [queue for queue in active if not queue.quota]
    weight = sum(queue.weight for queue in shared)
    left = dict(totals)
    for queue in active:
        amounts.add(left, {name: min(count, totals.get(name, 0)) for name, count in queue.quota.items()}, -1)
    found: dict[str, Own] = {queue.name: queue.quota for queue in active if queue.quota}
    named = {name for queue in active for name in queue.quota}
    counted = [name for name in totals if name in named or not name.startswith(GPU_TYPE)]
    for queue in shared:
        found[queue.name] = {name: max(0, left.get(name, 0)) * queue.weight / weight for name in counted}
    return found


def spare(own: Own, used: Mapping[str, int]) -> Own:
    """What is not used of what belongs to a queue; below zero what it borrows."""
    return {name: count + _SLACK * count - used.get(name, 0) for name, count in own.items()}


def beyond(queue: Queue, spare: Own, asked: Mapping[str, int]) -> Mapping[str, float] | None:
    """How far a run takes its queue past what belongs to it; nothing: not at all. None: further than the queue has a right to.

    A quota is a bound. A part by weight is come near to: a run that does not fit into what is missing may pass it by as much as
    was missing, or a queue of large gangs would always have less than its part, and one of small ones the rest.
    """
    passed = {name: asked.get(name, 0) - count for name, count in spare.items() if asked.get(name, 0) > count}
    if passed and (queue.quota or any(over > spare[name] for name, over in passed.items())):
        return None
    return passed


def borrowed(queue: Queue, accounts: Accounts) -> dict[str, int]:
    """What it holds beyond its quota."""
    used = accounts.used.get(queue.name, {})
    return {name: used[name] - allowed for name, allowed in queue.quota.items() if used.get(name, 0) > allowed}
