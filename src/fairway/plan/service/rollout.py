"""Release of a new revision: shift traffic in increasing shares, each only when enough new replicas are ready.

Every strategy is a rising series of shares. A share is in force (`share` in the rollout's marks) or being prepared; replicas
of the old revision go only after the share that they served has moved.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from fairway.plan.service import replica_fleet, replica_split
from fairway.plan.service.guard import output_guard, rollout_guard
from fairway.plan.service.measurement import ServiceMeasurements, usable
from fairway.plan.service.replica_split import TrafficShares
from fairway.spec.service import RolloutPolicy, RolloutStep, RolloutStrategy
from fairway.state.service import RevisionPhase, RolloutPhase, ServiceReplica, ServiceRollout, ServiceState
from fairway.units import quantity

SHARE = "share"
"""Mark: the new revision's share of the traffic, 0 to 1."""
SEEN = "step.seen"
"""Mark: the number of the new revision's answers when the step began."""
SEEN_PAIRS = "step.seen_pairs"
"""Mark: the number of compared answers when the step began."""
ACCEPTED = "step.accepted"
"""Mark: the step that may end without a judgement, because it was paused for the user's decision."""
MIRROR = "mirror"
"""Mark: the fraction of requests that are copied to the new revision."""
PACE = 10.0
"""Seconds between two batches of a rolling release."""
SURGE = 0.25
"""Fraction of the replicas that a rolling release replaces at a time; at least one."""
BAKE = 60.0
"""Seconds for which the guards continue after all traffic has moved."""

_DEFAULTS = {
    RolloutStrategy.CANARY: (RolloutStep(to="5%"), RolloutStep(to="50%")),
    RolloutStrategy.SHADOW: (RolloutStep(to="5%"), RolloutStep(to="50%")),
    RolloutStrategy.AB: (RolloutStep(to="50%", for_="1h"),),
}
_KEEPING = (RolloutStrategy.BLUE_GREEN, RolloutStrategy.SHADOW)
"""Strategies that keep all old replicas until the end."""

Events = tuple[tuple[str, str], ...]


def is_active(rollout: ServiceRollout | None) -> bool:
    """Return whether a release is under way, including a paused one."""
    return rollout is not None and rollout.phase in (RolloutPhase.STARTING, RolloutPhase.STEPPING, RolloutPhase.PAUSED)


def steps(policy: RolloutPolicy) -> tuple[tuple[float, float], ...]:
    """Return (share, seconds) of each step of a canary, A/B or shadow release; other strategies have none."""
    configured = policy.steps or _DEFAULTS.get(policy.strategy, ())
    return tuple((quantity.percent(step.to), quantity.seconds(step.for_)) for step in configured)


def shares(service: ServiceState, now: float) -> TrafficShares:
    """Return the current traffic shares and the shares for which replicas are being prepared."""
    rollout = service.rollout
    if rollout is None or not is_active(rollout):
        return TrafficShares({service.stable: 1.0}, {service.stable: 1.0}) if service.stable else TrafficShares()
    if not rollout.source:
        return TrafficShares({}, {rollout.target: 1.0})
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
    return TrafficShares(serving, {rollout.source: 1.0 - next_, rollout.target: next_}, None, kept)


def _shadowed(service: ServiceState, rollout: ServiceRollout, kept: int, *, is_due: bool) -> TrafficShares:
    """Return the shares of a shadow release before the switch: the old revision serves, the new one gets copies."""
    serving, copied = {rollout.source: 1.0}, rollout.marks.get(MIRROR, 0.0)
    if not is_due:
        return TrafficShares(serving, serving, (rollout.target, copied), kept)
    if _is_copy(service, rollout):
        return TrafficShares(serving, serving, (rollout.target, max(copied, _next(service, rollout))), kept)
    # Replicas for all of the traffic are started while copying continues.
    return TrafficShares(serving, {rollout.source: 0.0, rollout.target: 1.0}, (rollout.target, copied), kept)


def _is_copy(service: ServiceState, rollout: ServiceRollout) -> bool:
    """Return whether the next step of the release only copies requests."""
    policy = service.spec.rollout
    return policy.strategy is RolloutStrategy.SHADOW and rollout.step + 1 < len(steps(policy))


def _is_unmeasured(service: ServiceState, rollout: ServiceRollout) -> bool:
    """Return whether the new revision's speed is unknown: it may need more replicas than the old one."""
    rates = service.scale.service_rate
    return rollout.source in rates and rollout.target not in rates


def _next(service: ServiceState, rollout: ServiceRollout) -> float:
    """Return the share that follows the one in force."""
    policy, share = service.spec.rollout, rollout.marks.get(SHARE, 0.0)
    if policy.strategy is RolloutStrategy.ROLLING:
        number = service.scale.wanted
        at_once = 1 if policy.in_place else max(1, math.ceil(SURGE * number))
        return min(1.0, share + at_once / number) if number else 1.0
    plan = steps(policy)
    return plan[rollout.step + 1][0] if rollout.step + 1 < len(plan) else 1.0


def _is_due(service: ServiceState, rollout: ServiceRollout, now: float) -> bool:
    """Return whether the next share may be prepared."""
    if rollout.phase is RolloutPhase.PAUSED or rollout.marks.get(SHARE, 0.0) >= 1.0:
        return False
    if rollout.step < 0:
        return True
    due_at = rollout.step_since + _seconds(service, rollout)
    policy = service.spec.rollout
    gives_up = policy.unjudged == "continue" and now >= due_at + quantity.seconds(policy.patience)
    return now >= due_at and (gives_up or not unseen(service, rollout))


def unseen(service: ServiceState, rollout: ServiceRollout) -> str:
    """Return what the guards still need to judge the share in force; empty when nothing, or if only time counts."""
    policy, marks = service.spec.rollout, rollout.marks
    is_timed = 0 <= rollout.step < len(steps(policy)) and marks.get(SHARE, 0.0) < 1.0
    if not is_timed or not policy.requests or marks.get(ACCEPTED) == rollout.step:
        return ""
    answer_count = max(0.0, rollout_guard.answers(marks) - marks.get(SEEN, 0.0))
    if answer_count < policy.requests:
        return f"{policy.requests} answers of r{rollout.target}, has {answer_count:.0f}"
    pair_count = max(0.0, output_guard.compared(marks) - marks.get(SEEN_PAIRS, 0.0))
    if policy.guard.outputs and pair_count < policy.requests:
        return f"{policy.requests} compared answers of r{rollout.target}, has {pair_count:.0f}"
    metric = policy.guard.metric
    report_count = min(rollout_guard.reports(marks, side).count for side in ("new", "old"))
    if metric and policy.strategy is not RolloutStrategy.SHADOW and report_count < policy.requests:
        return f"{policy.requests} reports of {metric.name} of both revisions, has {report_count:.0f}"
    return ""


def _waiting(service: ServiceState, rollout: ServiceRollout, now: float) -> tuple[ServiceState, Events]:
    """Process a step that is over but not judged yet: record the reason, and pause the release after `patience`."""
    missing = unseen(service, rollout)
    due_at = rollout.step_since + _seconds(service, rollout)
    if rollout.phase is RolloutPhase.PAUSED or not missing or now < due_at:
        return service, ()
    policy = service.spec.rollout
    if now < due_at + quantity.seconds(policy.patience):
        return replace(service, rollout=replace(rollout, reason=f"waits for {missing}")), ()
    why = f"waited {policy.patience} longer than its step for {missing}"
    marks = {**rollout.marks, rollout_guard.PAUSED_AT: now, ACCEPTED: float(rollout.step)}
    reason = f"{why}; `fairway rollout resume` continues without them, `undo` goes back"
    paused = replace(rollout, phase=RolloutPhase.PAUSED, marks=marks, reason=reason)
    return replace(service, rollout=paused), (("RolloutPaused", f"r{rollout.target} {why}"),)


def _seconds(service: ServiceState, rollout: ServiceRollout) -> float:
    """Return the duration of the share in force, in seconds."""
    if rollout.marks.get(SHARE, 0.0) >= 1.0:
        return BAKE
    plan = steps(service.spec.rollout)
    return plan[rollout.step][1] if 0 <= rollout.step < len(plan) else PACE


def judged(
    service: ServiceState, replicas: Sequence[ServiceReplica], measured: ServiceMeasurements, now: float
) -> tuple[ServiceState, Events]:
    """Apply the guards to the release: roll it back, finish it, or leave it unchanged."""
    rollout = service.rollout
    if rollout is None or not is_active(rollout):
        return service, ()
    if not rollout.source:
        # The first revision has no other revision to compare with or to return to.
        is_ready = rollout.target in replica_fleet.ready_names(replicas)
        return _done(service, rollout, now) if is_ready else (service, ())
    rollout = rollout_guard.with_ends(rollout, replicas)
    verdict = rollout_guard.of_replicas(service, rollout, replicas, now)
    if verdict:
        way = way_out(service, rollout.target) if replica_fleet.without_room(replicas, rollout.target, now) else ""
        return rolled_back(service, rollout, f"{verdict.guard}: {verdict.reason}{way}", now)
    marks, verdict = rollout_guard.of_answers(service, rollout, measured)
    rollout = replace(rollout, marks=marks)
    service = replace(service, rollout=rollout)
    if verdict:
        return rolled_back(service, rollout, f"{verdict.guard}: {verdict.reason}", now)
    if rollout.marks.get(SHARE, 0.0) >= 1.0:
        return _baking(service, rollout, now)
    return service, ()


def _baking(service: ServiceState, rollout: ServiceRollout, now: float) -> tuple[ServiceState, Events]:
    """Finish a release whose traffic has all moved, after `BAKE` seconds and if the new replicas are sufficient."""
    if rollout.phase is RolloutPhase.PAUSED:
        return service, ()
    slow = _too_slow(service, rollout)
    if now >= rollout.step_since + BAKE and not slow:
        return _done(service, rollout, now)
    return replace(service, rollout=replace(rollout, reason=f"waits: {slow}" if slow else "")), ()


def stepped(service: ServiceState, replicas: Sequence[ServiceReplica], now: float) -> tuple[ServiceState, Events]:
    """Put the next share in force when it is due and enough replicas of the new revision are ready for it.

    The number of replicas must have been decided for that share already.
    """
    rollout = service.rollout
    if rollout is None or not is_active(rollout) or not rollout.source:
        return service, ()
    if not _is_due(service, rollout, now):
        return _waiting(service, rollout, now)
    target_count = replica_split.parts(service, shares(service, now))[rollout.target].wanted
    ready_count = len(replica_fleet.ready_names(replicas).get(rollout.target, ()))
    lacking = f"{ready_count} of {target_count} replicas are ready" if ready_count < target_count else ""
    reason = _too_slow(service, rollout) or _unproven(service, rollout) or lacking
    waiting = replica_fleet.without_room(replicas, rollout.target, now) if ready_count < target_count else None
    if waiting:
        reason += f"; {waiting.name} cannot be placed: {waiting.message}{way_out(service, rollout.target)}"
    if reason:
        return replace(service, rollout=replace(rollout, reason=f"waits: {reason}")), ()
    share = _next(service, rollout)
    is_copy = _is_copy(service, rollout)
    marks = {**rollout_guard.without_metric(rollout.marks), **({MIRROR: share} if is_copy else {SHARE: share, MIRROR: 0.0})}
    marks[SEEN] = rollout_guard.answers(marks)
    if service.spec.rollout.guard.outputs:
        marks[SEEN_PAIRS] = output_guard.compared(marks)
    advanced = replace(rollout, phase=RolloutPhase.STEPPING, step=rollout.step + 1, step_since=now, marks=marks, reason="")
    what = f"answers copies of {share:.0%} of the requests" if is_copy else f"gets {share:.0%} of the traffic"
    return replace(service, rollout=advanced), (("RolloutStep", f"r{rollout.target} {what}"),)


def way_out(service: ServiceState, revision: int) -> str:
    """Return advice for the user if the new revision finds no capacity; empty for other revisions or if already followed."""
    rollout = service.rollout
    if rollout is None or not is_active(rollout) or not rollout.source or rollout.target != revision:
        return ""
    policy = service.spec.rollout
    if policy.in_place:
        return ""
    other = " and `strategy: rolling`" if policy.strategy in _KEEPING else ""
    return f"; free some room, or set `rollout.in_place: true`{other}: then an old replica is stopped for each new one"


def _unproven(service: ServiceState, rollout: ServiceRollout) -> str:
    """Return why the share must not grow: replicas ended by themselves, and none has been ready long enough since."""
    target = service.revision(rollout.target)
    if rollout.step < 0 or target is None or not target.failures:
        return ""
    single = target.failures == 1
    text = f"{target.failures} replica{'' if single else 's'} of r{target.number} ended by {'itself' if single else 'themselves'}"
    return f"{text}; its share grows when one has been ready for {replica_fleet.PROVEN:.0f} s and no other has ended"


def _too_slow(service: ServiceState, rollout: ServiceRollout) -> str:
    """Return why the share must not grow: the new revision is slower, and even `replicas.max` would not be enough."""
    rates = usable(service.scale.service_rate)
    mine, old = rates.get(rollout.target), rates.get(rollout.source)
    if service.scale.rule != "max" or mine is None or old is None or mine >= old:
        return ""
    slower = f"r{rollout.target} answers {mine:.3g} requests per busy second, r{rollout.source} {old:.3g}"
    return f"{slower}; {service.spec.replicas.max} replicas, the maximum of the document, would not be enough"


def _done(service: ServiceState, rollout: ServiceRollout, now: float) -> tuple[ServiceState, Events]:
    finished_rollout = replace(rollout, phase=RolloutPhase.DONE, finished=now, reason="no guard failed" if rollout.source else "")
    revisions = tuple(
        replace(revision, phase=RevisionPhase.GOOD, reason="") if revision.number == rollout.target else revision
        for revision in service.revisions
    )
    message = f"r{rollout.target} serves all of the traffic"
    return replace(service, rollout=finished_rollout, revisions=revisions, stable=rollout.target), (("RolledOut", message),)


def rolled_back(service: ServiceState, rollout: ServiceRollout, reason: str, now: float) -> tuple[ServiceState, Events]:
    """Roll back to the revision that served before, and mark the new one as bad."""
    back = replace(rollout, phase=RolloutPhase.ROLLED_BACK, finished=now, reason=reason)
    revisions = tuple(
        replace(revision, phase=RevisionPhase.BAD, reason=reason) if revision.number == rollout.target else revision
        for revision in service.revisions
    )
    message = f"r{rollout.target} was rolled back to r{rollout.source} by the guard {reason}"
    return replace(service, rollout=back, revisions=revisions), (("RolledBack", message),)


def wake_at(service: ServiceState) -> float | None:
    """Return when the next step or the deadline of the `ready` guard is due."""
    rollout = service.rollout
    if rollout is None or not is_active(rollout) or rollout.phase is RolloutPhase.PAUSED:
        return None
    patience = rollout.started + quantity.seconds(service.spec.rollout.guard.ready)
    return patience if rollout.step < 0 else rollout.step_since + _seconds(service, rollout)
