"""How a new revision comes in: by parts of the traffic, each taken only when enough replicas of it are ready.

Every strategy is a rising series of parts. A part is in force (`share` in the rollout's marks) or being prepared; replicas of
the old revision go only after the part they served has moved.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from fairway.plan.service import fleet, guards, outputs, split
from fairway.plan.service.measured import Measured, usable
from fairway.plan.service.split import Shares
from fairway.spec.service import RolloutPolicy, RolloutStep, RolloutStrategy
from fairway.state.service import Replica, RevisionPhase, Rollout, RolloutPhase, Service
from fairway.units import quantity

SHARE = "share"
"""The mark that holds the new revision's part of the traffic, 0 to 1."""
SEEN = "step.seen"
"""The mark that holds how many answers of the new revision there were when the step began."""
SEEN_PAIRS = "step.seen_pairs"
"""The mark that holds how many answers were compared with those of the old revision when the step began."""
ACCEPTED = "step.accepted"
"""The mark that holds the step that may end without having been judged, because a person was asked."""
MIRROR = "mirror"
"""The mark that holds the part of the requests of which it gets copies."""
PACE = 10.0
"""Seconds between two batches of a rolling release."""
SURGE = 0.25
"""The part of the replicas that a rolling release changes at once; at least one."""
BAKE = 60.0
"""Seconds for which the guards go on looking after all traffic has moved."""

_DEFAULTS = {
    RolloutStrategy.CANARY: (RolloutStep(to="5%"), RolloutStep(to="50%")),
    RolloutStrategy.SHADOW: (RolloutStep(to="5%"), RolloutStep(to="50%")),
    RolloutStrategy.AB: (RolloutStep(to="50%", for_="1h"),),
}
_KEEPING = (RolloutStrategy.BLUE_GREEN, RolloutStrategy.SHADOW)
"""Strategies that keep the old replicas until the end."""

Events = tuple[tuple[str, str], ...]


def is_active(rollout: Rollout | None) -> bool:
    """Whether a release is under way, held ones included."""
    return rollout is not None and rollout.phase in (RolloutPhase.STARTING, RolloutPhase.STEPPING, RolloutPhase.PAUSED)


def steps(policy: RolloutPolicy) -> tuple[tuple[float, float], ...]:
    """(part, seconds) of a canary, an A/B or a shadow release; the others have none."""
    given = policy.steps or _DEFAULTS.get(policy.strategy, ())
    return tuple((quantity.percent(step.to), quantity.seconds(step.for_)) for step in given)


def shares(service: Service, now: float) -> Shares:
    """How traffic is shared now, and for what replicas are made."""
    rollout = service.rollout
    if rollout is None or not is_active(rollout):
        return Shares({service.stable: 1.0}, {service.stable: 1.0}) if service.stable else Shares()
    if not rollout.source:
        return Shares({}, {rollout.target: 1.0})
    share = rollout.marks.get(SHARE, 0.0)
    strategy = service.spec.rollout.strategy
    is_needed = _is_unmeasured(service, rollout) or bool(_too_slow(service, rollout))
    kept = rollout.source if strategy in _KEEPING or is_needed else 0
    is_due = _is_due(service, rollout, now)
    if strategy is RolloutStrategy.SHADOW and share < 1:
        return _shadowed(service, rollout, kept, is_due=is_due)
    next_ = _next(service, rollout) if is_due else share
    started = rollout.step >= 0
    serving = {rollout.source: 1.0 - share, **({rollout.target: share} if started else {})}
    return Shares(serving, {rollout.source: 1.0 - next_, rollout.target: next_}, None, kept)


def _shadowed(service: Service, rollout: Rollout, kept: int, *, is_due: bool) -> Shares:
    """The shares of a shadow release before it takes over: the old revision serves, the new one gets copies."""
    serving, copied = {rollout.source: 1.0}, rollout.marks.get(MIRROR, 0.0)
    if not is_due:
        return Shares(serving, serving, (rollout.target, copied), kept)
    if _is_copy(service, rollout):
        return Shares(serving, serving, (rollout.target, max(copied, _next(service, rollout))), kept)
    # Replicas for all of the traffic are made while the copies go on.
    return Shares(serving, {rollout.source: 0.0, rollout.target: 1.0}, (rollout.target, copied), kept)


def _is_copy(service: Service, rollout: Rollout) -> bool:
    """Whether the next step of the release only copies requests."""
    policy = service.spec.rollout
    return policy.strategy is RolloutStrategy.SHADOW and rollout.step + 1 < len(steps(policy))


def _is_unmeasured(service: Service, rollout: Rollout) -> bool:
    """Whether the new revision's speed is not known yet: until then it may need more replicas than the old one."""
    rates = service.scale.service_rate
    return rollout.source in rates and rollout.target not in rates


def _next(service: Service, rollout: Rollout) -> float:
    """The part that comes after the one in force."""
    policy, share = service.spec.rollout, rollout.marks.get(SHARE, 0.0)
    if policy.strategy is RolloutStrategy.ROLLING:
        number = service.scale.wanted
        at_once = 1 if policy.in_place else max(1, math.ceil(SURGE * number))
        return min(1.0, share + at_once / number) if number else 1.0
    plan = steps(policy)
    return plan[rollout.step + 1][0] if rollout.step + 1 < len(plan) else 1.0


def _is_due(service: Service, rollout: Rollout, now: float) -> bool:
    """Whether the next part may be prepared."""
    if rollout.phase is RolloutPhase.PAUSED or rollout.marks.get(SHARE, 0.0) >= 1.0:
        return False
    if rollout.step < 0:
        return True
    over = rollout.step_since + _seconds(service, rollout)
    policy = service.spec.rollout
    gives_up = policy.unjudged == "continue" and now >= over + quantity.seconds(policy.patience)
    return now >= over and (gives_up or not unseen(service, rollout))


def unseen(service: Service, rollout: Rollout) -> str:
    """What the guards have not seen enough of to judge the part in force; empty: they have, or time alone counts."""
    policy, marks = service.spec.rollout, rollout.marks
    timed = 0 <= rollout.step < len(steps(policy)) and marks.get(SHARE, 0.0) < 1.0
    if not timed or not policy.requests or marks.get(ACCEPTED) == rollout.step:
        return ""
    seen = max(0.0, guards.answers(marks) - marks.get(SEEN, 0.0))
    if seen < policy.requests:
        return f"{policy.requests} answers of r{rollout.target}, has {seen:.0f}"
    paired = max(0.0, outputs.compared(marks) - marks.get(SEEN_PAIRS, 0.0))
    if policy.guard.outputs and paired < policy.requests:
        return f"{policy.requests} compared answers of r{rollout.target}, has {paired:.0f}"
    metric = policy.guard.metric
    told = min(guards.reports(marks, side).count for side in ("new", "old"))
    if metric and policy.strategy is not RolloutStrategy.SHADOW and told < policy.requests:
        return f"{policy.requests} reports of {metric.name} of both revisions, has {told:.0f}"
    return ""


def _waiting(service: Service, rollout: Rollout, now: float) -> tuple[Service, Events]:
    """A step whose time is over and that was not judged yet: it says so, and is held when that lasts too long."""
    lacks = unseen(service, rollout)
    over = rollout.step_since + _seconds(service, rollout)
    if rollout.phase is RolloutPhase.PAUSED or not lacks or now < over:
        return service, ()
    policy = service.spec.rollout
    if now < over + quantity.seconds(policy.patience):
        return replace(service, rollout=replace(rollout, reason=f"waits for {lacks}")), ()
    why = f"waited {policy.patience} longer than its step for {lacks}"
    marks = {**rollout.marks, guards.PAUSED_AT: now, ACCEPTED: float(rollout.step)}
    reason = f"{why}; `fairway rollout resume` goes on without, `undo` goes back"
    held = replace(rollout, phase=RolloutPhase.PAUSED, marks=marks, reason=reason)
    return replace(service, rollout=held), (("RolloutPaused", f"r{rollout.target} {why}"),)


def _seconds(service: Service, rollout: Rollout) -> float:
    """How long the part in force stays."""
    if rollout.marks.get(SHARE, 0.0) >= 1.0:
        return BAKE
    plan = steps(service.spec.rollout)
    return plan[rollout.step][1] if 0 <= rollout.step < len(plan) else PACE


def judged(service: Service, replicas: Sequence[Replica], measured: Measured, now: float) -> tuple[Service, Events]:
    """The release as the guards leave it: sent back, at its end, or as it was."""
    rollout = service.rollout
    if rollout is None or not is_active(rollout):
        return service, ()
    if not rollout.source:
        # The first revision has nothing to be compared with and nowhere to go back to.
        is_ready = rollout.target in fleet.ready_names(replicas)
        return _done(service, rollout, now) if is_ready else (service, ())
    rollout = guards.with_ends(rollout, replicas)
    verdict = guards.of_replicas(service, rollout, replicas, now)
    if verdict:
        way = way_out(service, rollout.target) if fleet.without_room(replicas, rollout.target, now) else ""
        return rolled_back(service, rollout, f"{verdict.guard}: {verdict.reason}{way}", now)
    marks, verdict = guards.of_answers(service, rollout, measured)
    rollout = replace(rollout, marks=marks)
    service = replace(service, rollout=rollout)
    if verdict:
        return rolled_back(service, rollout, f"{verdict.guard}: {verdict.reason}", now)
    if rollout.marks.get(SHARE, 0.0) >= 1.0:
        return _baking(service, rollout, now)
    return service, ()


def _baking(service: Service, rollout: Rollout, now: float) -> tuple[Service, Events]:
    """All traffic has moved; the old replicas go when the guards have looked for long enough and the new ones are enough."""
    if rollout.phase is RolloutPhase.PAUSED:
        return service, ()
    slow = _too_slow(service, rollout)
    if now >= rollout.step_since + BAKE and not slow:
        return _done(service, rollout, now)
    return replace(service, rollout=replace(rollout, reason=f"waits: {slow}" if slow else "")), ()


def stepped(service: Service, replicas: Sequence[Replica], now: float) -> tuple[Service, Events]:
    """The next part comes in force when its time has come and enough replicas of the new revision are ready for it.

    The number of replicas must have been decided for that part already.
    """
    rollout = service.rollout
    if rollout is None or not is_active(rollout) or not rollout.source:
        return service, ()
    if not _is_due(service, rollout, now):
        return _waiting(service, rollout, now)
    wanted = split.parts(service, shares(service, now))[rollout.target].wanted
    there = len(fleet.ready_names(replicas).get(rollout.target, ()))
    lacking = f"{there} of {wanted} replicas are ready" if there < wanted else ""
    reason = _too_slow(service, rollout) or _unproven(service, rollout) or lacking
    waiting = fleet.without_room(replicas, rollout.target, now) if there < wanted else None
    if waiting:
        reason += f"; {waiting.name} has no place: {waiting.message}{way_out(service, rollout.target)}"
    if reason:
        return replace(service, rollout=replace(rollout, reason=f"waits: {reason}")), ()
    part = _next(service, rollout)
    is_copy = _is_copy(service, rollout)
    marks = {**guards.without_metric(rollout.marks), **({MIRROR: part} if is_copy else {SHARE: part, MIRROR: 0.0})}
    marks[SEEN] = guards.answers(marks)
    if service.spec.rollout.guard.outputs:
        marks[SEEN_PAIRS] = outputs.compared(marks)
    on = replace(rollout, phase=RolloutPhase.STEPPING, step=rollout.step + 1, step_since=now, marks=marks, reason="")
    what = f"answers copies of {part:.0%} of the requests" if is_copy else f"gets {part:.0%} of the traffic"
    return replace(service, rollout=on), (("RolloutStep", f"r{rollout.target} {what}"),)


def way_out(service: Service, revision: int) -> str:
    """What a person can do for a new revision that finds no room; nothing for another one, or where it was done."""
    rollout = service.rollout
    if rollout is None or not is_active(rollout) or not rollout.source or rollout.target != revision:
        return ""
    policy = service.spec.rollout
    if policy.in_place:
        return ""
    other = " and `strategy: rolling`" if policy.strategy in _KEEPING else ""
    return f"; free some room, or say `rollout.in_place: true`{other}: then an old replica makes way for each new one"


def _unproven(service: Service, rollout: Rollout) -> str:
    """A revision whose replicas ended by themselves takes no more until one was ready for a while since, or the guard speaks."""
    target = service.revision(rollout.target)
    if rollout.step < 0 or target is None or not target.failures:
        return ""
    one = target.failures == 1
    ended = f"{target.failures} replica{'' if one else 's'} of r{target.number} ended by {'itself' if one else 'themselves'}"
    return f"{ended}; the next part comes when one has been ready for {fleet.PROVEN:.0f} s without another end"


def _too_slow(service: Service, rollout: Rollout) -> str:
    """A slower revision takes no more while all replicas that the document allows would not be enough."""
    rates = usable(service.scale.service_rate)
    mine, old = rates.get(rollout.target), rates.get(rollout.source)
    if service.scale.rule != "max" or mine is None or old is None or mine >= old:
        return ""
    slower = f"r{rollout.target} answers {mine:.3g} a busy second, r{rollout.source} {old:.3g}"
    return f"{slower}, and {service.spec.replicas.max} replicas, which the document allows, would not be enough"


def _done(service: Service, rollout: Rollout, now: float) -> tuple[Service, Events]:
    done = replace(rollout, phase=RolloutPhase.DONE, finished=now, reason="nothing spoke against it" if rollout.source else "")
    revisions = tuple(
        replace(revision, phase=RevisionPhase.GOOD, reason="") if revision.number == rollout.target else revision
        for revision in service.revisions
    )
    whole = f"r{rollout.target} serves all of the traffic"
    return replace(service, rollout=done, revisions=revisions, stable=rollout.target), (("RolledOut", whole),)


def rolled_back(service: Service, rollout: Rollout, reason: str, now: float) -> tuple[Service, Events]:
    """Back to the revision that served before; the new one is known as bad."""
    back = replace(rollout, phase=RolloutPhase.ROLLED_BACK, finished=now, reason=reason)
    revisions = tuple(
        replace(revision, phase=RevisionPhase.BAD, reason=reason) if revision.number == rollout.target else revision
        for revision in service.revisions
    )
    said = f"r{rollout.target} was sent back to r{rollout.source} by the guard {reason}"
    return replace(service, rollout=back, revisions=revisions), (("RolledBack", said),)


def wake_at(service: Service) -> float | None:
    """When the next step, or the end of a guard's patience, is due."""
    rollout = service.rollout
    if rollout is None or not is_active(rollout) or rollout.phase is RolloutPhase.PAUSED:
        return None
    patience = rollout.started + quantity.seconds(service.spec.rollout.guard.ready)
    return patience if rollout.step < 0 else rollout.step_since + _seconds(service, rollout)
