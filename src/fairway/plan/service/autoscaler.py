"""The autoscaler: decides the number of replicas of a service. No other module writes that number.

need = arrivals / (rate x utilisation) + backlog / (rate x 20 s)

`arrivals` is the request rate of the last minute, or of the last six seconds where that is significantly higher. `rate` is the
measured number of requests per busy second of one replica. Scaling up is immediate. Scaling down goes to the largest need of
the hold window, keeps a tenth to spare, and removes a fifth at a time; the need of a backlog counts for one minute only. The
latency objective, processors, GPUs and memory are guards: they add replicas or keep them. A server that reports no metrics of
its own (a `command`) has no rate: its resource use and its concurrent requests are used instead (`strain`). Every number is
recorded with its rule.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from fairway.plan.service import measurement as looks
from fairway.plan.service import resource_use
from fairway.plan.service.measurement import ServiceMeasurements
from fairway.spec.service import ServiceSpec
from fairway.state.service import ScaleDecision, ServiceState
from fairway.units import number as units
from fairway.units import quantity

SHORT, LONG = 6.0, 60.0
"""Windows of the arrival rate, in seconds."""
DRAIN = 20.0
"""Target time in seconds for working off a backlog."""
BACKLOG_FACTOR = 3
"""Maximum factor by which a backlog multiplies the number."""
USE_FACTOR = 2
"""Maximum factor by which resource use multiplies the number."""
PACE, PACE_PART = 10.0, 0.2
"""Scaling down removes at most the fraction `PACE_PART` within `PACE` seconds."""
SPARE = 1.1
"""Scaling down requires this margin."""
CHANCE = 3.0
"""Standard deviations by which the short rate must exceed the long one."""
COLD_STARTS = 10
"""Minimum hold window, in cold starts."""
_LATENCY_WINDOW = 15.0
_FEW_ANSWERS = 20
_FEW_SERVED = 10
_AT_WORK = 0.5
"""A lower rate is accepted only at this fraction of the target utilisation: small batches are slower."""
_NEAR = 0.02
"""Relative difference below which rates count as equal."""
_BUCKETS = 30
MOST = 1_000_000
"""Upper bound of every rule's number; the document allows fewer."""
_ROUNDING = 1e-6


@dataclass(frozen=True, slots=True)
class AutoscaleSignals:
    """The inputs of the rules."""

    arrivals: float | None
    """Requests per second; None without enough data."""
    window: float
    """The window of `arrivals`, in seconds."""
    backlog: int
    held: int
    cost: float | None
    """Busy seconds per request, averaged over the revisions by traffic share; None when not learned yet."""
    p95: float | None
    utilisation: float | None
    ready: int
    use: resource_use.FleetUse
    busy: resource_use.ReplicaNeed | None
    """For servers without metrics of their own; None otherwise, or without data."""


@dataclass(frozen=True, slots=True)
class _ReplicaProposal:
    """A proposed number, its rule, and the explanation."""

    number: int
    rule: str
    why: str
    roomy: int = 0
    """The number with a tenth to spare: scaling down stops there, to avoid oscillation at a boundary."""
    lasting: int | None = None
    """The part of the number that the hold window records: without the temporary need of a backlog; None: all of it."""


def decide(
    service: ServiceState,
    ready: dict[int, frozenset[str]],
    shares: dict[int, float],
    measured: ServiceMeasurements,
    now: float,
    *,
    may_shrink: bool,
) -> ScaleDecision:
    """Return the number of replicas over all revisions, for the names of ready replicas and the traffic shares by revision."""
    old = service.scale
    scale = replace(old, service_rate=learnt(service, ready, measured))
    scale = replace(scale, quiet_since=_quiet_since(scale, measured, now))
    inputs = signals(replace(service, scale=scale), ready, shares, measured)
    wish = _bounded(_wish(service, scale, inputs, now), service, scale, inputs.ready, now)
    lasting = max(wish.number if wish.lasting is None else wish.lasting, min(scale.wanted, wish.roomy))
    scale = replace(scale, recommendations=_remembered(service, scale, lasting, measured, now))
    if wish.rule == "backlog" and wish.number >= _backlogged(scale, now):
        scale = replace(scale, backlogged=(now, wish.number))
    return _steady(old, _settled(service, scale, wish, now, may_shrink=may_shrink))


def _steady(old: ScaleDecision, new: ScaleDecision) -> ScaleDecision:
    """Return the old value where only figures of the explanation changed slightly, to avoid a write at every cycle."""
    same = replace(new, why=old.why, service_rate=old.service_rate)
    near = old.service_rate.keys() == new.service_rate.keys() and all(
        abs(rate - old.service_rate[number]) <= _NEAR * rate for number, rate in new.service_rate.items()
    )
    return old if near and same == old else new


def learnt(service: ServiceState, ready: dict[int, frozenset[str]], measured: ServiceMeasurements) -> dict[int, float]:
    """Return the requests per busy second of one replica, by revision; entries of removed revisions are dropped."""
    measurable = {revision.number for revision in service.revisions if not revision.spec.command}
    rates = {number: rate for number, rate in looks.usable(service.scale.service_rate).items() if number in measurable}
    at_work = _AT_WORK * quantity.percent(service.spec.scaling.utilisation)
    for revision, names in ready.items():
        work_done = looks.work(measured, names, LONG)
        if revision not in measurable or work_done.rate is None or work_done.served < _FEW_SERVED:
            continue
        old = rates.get(revision)
        if old is None or work_done.rate > old or (work_done.utilisation or 0.0) >= at_work:
            rates[revision] = work_done.rate
    return rates


def signals(
    service: ServiceState, ready: dict[int, frozenset[str]], shares: dict[int, float], measured: ServiceMeasurements
) -> AutoscaleSignals:
    """Return the measurements as inputs of the rules."""
    rate, window = _arrivals(measured)
    all_ready = frozenset[str]().union(*ready.values())
    latency_histogram = looks.histogram(measured, None, _LATENCY_WINDOW)
    last = measured.last
    use = resource_use.of_replicas(measured, all_ready)
    has_no_metrics = any(revision.spec.command for revision in service.revisions if shares.get(revision.number))
    busy = resource_use.busy(service.spec.scaling, use, len(all_ready)) if has_no_metrics else None
    target_utilisation = quantity.percent(service.spec.scaling.utilisation)
    own_utilisation = looks.work(measured, all_ready, _LATENCY_WINDOW).utilisation
    return AutoscaleSignals(
        arrivals=rate,
        window=window,
        backlog=looks.backlog(measured),
        held=max(0, last.route.held) if last and last.route else 0,
        cost=None if has_no_metrics else cost(service.scale.service_rate, shares),
        p95=looks.percentile(latency_histogram, 0.95) if sum(latency_histogram) >= _FEW_ANSWERS else None,
        utilisation=min(1.0, busy.need * target_utilisation / max(1, len(all_ready))) if busy else own_utilisation,
        ready=len(all_ready),
        use=use,
        busy=busy,
    )


def _arrivals(measured: ServiceMeasurements) -> tuple[float | None, float]:
    short, long = looks.arrival_rate(measured, SHORT), looks.arrival_rate(measured, LONG)
    if short is None or long is None:
        return short or long, SHORT
    surprising = short > long + CHANCE * math.sqrt(max(long, 1.0 / SHORT) / SHORT)
    return (short, SHORT) if surprising else (long, LONG)


def cost(rates: dict[int, float], shares: dict[int, float]) -> float | None:
    """Return the busy seconds per request. A revision that is not measured yet counts as the slowest of the others."""
    rates = looks.usable(rates)
    known_rates = [rates[revision] for revision in shares if revision in rates] or list(rates.values())
    slowest = min(known_rates, default=None)
    total = sum(shares.values())
    if slowest is None or total <= 0:
        return None if slowest is None else 1.0 / slowest
    return sum(share / rates.get(revision, slowest) for revision, share in shares.items()) / total


def _wish(service: ServiceState, scale: ScaleDecision, seen: AutoscaleSignals, now: float) -> _ReplicaProposal:
    """Return the number for the current load, before bounds."""
    if seen.arrivals is not None and seen.cost is not None:
        proposal = _by_rate(service, seen, seen.arrivals, seen.cost)
    elif seen.arrivals is not None and seen.busy is not None and seen.ready and _is_asked(seen):
        most = BACKLOG_FACTOR * seen.ready
        proposal = _ReplicaProposal(
            min(most, _ceil(seen.busy.need)), seen.busy.rule, seen.busy.why, min(most, _ceil(SPARE * seen.busy.need))
        )
    elif seen.held:
        return _ReplicaProposal(max(1, scale.wanted), "held", f"{seen.held} {_requests(seen.held)} for a replica to be ready")
    elif seen.arrivals == 0 and not seen.backlog:
        return _ReplicaProposal(0, "rate", f"no requests over {seen.window:.0f} s")
    else:
        return _ReplicaProposal(scale.wanted, "unmeasured", "too few measurements yet to change the number")
    by_latency = _latency(service, scale, seen, proposal, now)
    proposal = by_latency if by_latency and by_latency.number > proposal.number else proposal
    return _guarded(service, scale, seen, proposal) if _is_asked(seen) else proposal


def _is_asked(seen: AutoscaleSignals) -> bool:
    """Return whether there are requests: a replica's work without requests is no reason to scale up."""
    return bool(seen.arrivals or seen.use.at_once)


def _guarded(service: ServiceState, scale: ScaleDecision, seen: AutoscaleSignals, found: _ReplicaProposal) -> _ReplicaProposal:
    """Raise or keep the number according to the replicas' resource use."""
    strain_result = resource_use.guard(service.spec.scaling, seen.use, seen.ready)
    most = USE_FACTOR * max(1, seen.ready)
    if strain_result:
        found = replace(found, roomy=max(found.roomy, min(most, _ceil(SPARE * strain_result.need))))
    if strain_result and min(most, _ceil(strain_result.need)) > found.number:
        found = _ReplicaProposal(min(most, _ceil(strain_result.need)), strain_result.rule, strain_result.why, found.roomy)
    memory_problem = resource_use.short_of_memory(service.spec.scaling, seen.use)
    if memory_problem and found.number < scale.wanted:
        lasting = found.number if found.lasting is None else found.lasting
        return replace(
            found,
            number=scale.wanted,
            rule="memory",
            why=f"{memory_problem}; {found.number} would be enough: {found.why}",
            lasting=lasting,
        )
    return found


def _by_rate(service: ServiceState, seen: AutoscaleSignals, arrivals: float, cost: float) -> _ReplicaProposal:
    """Return the number for the request rate and the backlog."""
    busy = quantity.percent(service.spec.scaling.utilisation) or 0.01
    by_rate = arrivals * cost / busy
    by_backlog = seen.backlog * cost / DRAIN
    uncapped = _ceil(by_rate + by_backlog)
    capped = min(uncapped, BACKLOG_FACTOR * max(1, seen.ready, _ceil(by_rate)))
    rate = f"{_number(arrivals)} requests/s over {seen.window:.0f} s"
    replica_text = f"a replica answers {_number(1 / cost)} per busy second and should be busy {busy:.0%} of the time"
    roomy = _ceil(SPARE * by_rate)
    proposal = _ReplicaProposal(_ceil(by_rate), "rate", f"{rate}; {replica_text}", roomy)
    if capped > _ceil(by_rate):
        return _ReplicaProposal(
            capped, "backlog", f"{seen.backlog} {_requests(seen.backlog)} and {rate}; {replica_text}", roomy, _ceil(by_rate)
        )
    return proposal


def _latency(
    service: ServiceState, scale: ScaleDecision, seen: AutoscaleSignals, found: _ReplicaProposal, now: float
) -> _ReplicaProposal | None:
    """Return a number when the latency objective is missed: a fifth more where replicas are busy, and never fewer."""
    objective = service.spec.objective.p95
    if objective is None or seen.p95 is None or seen.p95 <= quantity.seconds(objective):
        return None
    text = f"p95 is {quantity.show_seconds(seen.p95)}, the objective is {objective}"
    busy = quantity.percent(service.spec.scaling.utilisation)
    use = f"replicas are busy {seen.utilisation or 0:.0%}"
    proposal = replace(found, number=scale.wanted, rule="latency", why=f"{text}; {use}", lasting=found.lasting or found.number)
    if (seen.utilisation or 0.0) < _AT_WORK * busy and not seen.backlog:
        return replace(proposal, why=f"{text}; {use}, so more would not help")
    settled = seen.ready >= scale.wanted and now - scale.changed >= _LATENCY_WINDOW + (_cold_start(service) or 0.0)
    if not settled or found.number > seen.ready:
        return proposal
    return replace(proposal, number=seen.ready + max(1, _ceil(PACE_PART * seen.ready)), lasting=None)


def _bounded(wish: _ReplicaProposal, service: ServiceState, scale: ScaleDecision, ready: int, now: float) -> _ReplicaProposal:
    bounds = service.spec.replicas
    if bounds.min == bounds.max:
        return _ReplicaProposal(bounds.max, "fixed", f"the document asks for {bounds.max}")
    if service.floor and wish.number < min(service.floor, bounds.max):
        return _ReplicaProposal(min(service.floor, bounds.max), "floor", f"`fairway scale` set a minimum of {service.floor}")
    if wish.number > bounds.max:
        return _ReplicaProposal(
            bounds.max, "max", f"the document allows {bounds.max}; the load asks for {wish.number}: {wish.why}"
        )
    if wish.number < bounds.min:
        return _ReplicaProposal(bounds.min, "min", f"the document asks for at least {bounds.min}")
    return _idle(wish, service, scale, ready, now) if bounds.min == 0 else wish


def _idle(wish: _ReplicaProposal, service: ServiceState, scale: ScaleDecision, ready: int, now: float) -> _ReplicaProposal:
    """Keep the last replica until no request has arrived for `scaling.idle`."""
    awake = scale.wanted > 0 or wish.number > 0 or ready > 0
    if awake and (scale.quiet_since is None or wish.number > 1):
        return replace(wish, number=max(1, wish.number))
    quiet = now - (now if scale.quiet_since is None else scale.quiet_since)
    idle = quantity.seconds(service.spec.scaling.idle)
    if not awake or quiet >= idle:
        return _ReplicaProposal(0, "zero", f"no request arrived within `scaling.idle` ({service.spec.scaling.idle})")
    remaining = quantity.show_seconds(idle - quiet)
    return _ReplicaProposal(
        1, "idle", f"no request for {quantity.show_seconds(quiet)}; the last replica is removed in {remaining}"
    )


def _quiet_since(scale: ScaleDecision, measured: ServiceMeasurements, now: float) -> float | None:
    """Return since when no request has arrived. The time before a restart of the daemon does not count."""
    if not looks.is_quiet(measured):
        # A service at zero without measurements stays at zero until a request arrives.
        return None
    if scale.quiet_since is None or _restarted(scale, measured):
        return now
    return scale.quiet_since


def _restarted(scale: ScaleDecision, measured: ServiceMeasurements) -> bool:
    """Return whether the samples begin after the recorded history, i.e. the daemon was restarted in between."""
    return bool(scale.recommendations and measured.samples and measured.samples[0].time > scale.recommendations[-1][0])


def hold_seconds(service: ServiceState) -> float:
    """Return the seconds for which fewer replicas must have been enough before one is removed."""
    return max(quantity.seconds(service.spec.scaling.hold), COLD_STARTS * (_cold_start(service) or 0.0))


def _cold_start(service: ServiceState) -> float | None:
    cold_starts = (units.finite(revision.cold_start) for revision in service.revisions[-2:])
    return max((seconds for seconds in cold_starts if seconds is not None and seconds >= 0.0), default=None)


def _remembered(
    service: ServiceState, scale: ScaleDecision, number: int, measured: ServiceMeasurements, now: float
) -> tuple[tuple[float, int], ...]:
    """Return the needs within the hold window, the largest of each section of it.

    After a gap in the measurements the current number counts as needed now, so that nothing is removed until the window is
    full again.
    """
    if number <= service.spec.replicas.min and scale.wanted <= service.spec.replicas.min:
        # No replica could be removed; the window starts when one can.
        return ()
    window = hold_seconds(service)
    section = max(1.0, window / _BUCKETS)
    kept = [entry for entry in scale.recommendations if entry[0] > now - window - section]
    has_gap = not kept or _restarted(scale, measured) or now - kept[-1][0] > 3 * section
    if has_gap:
        return (*kept, (now, max(number, scale.wanted)))
    if now - kept[-1][0] < section:
        kept[-1] = (kept[-1][0], max(kept[-1][1], number))
        return tuple(kept)
    return (*kept, (now, number))


def _settled(
    service: ServiceState, scale: ScaleDecision, wish: _ReplicaProposal, now: float, *, may_shrink: bool
) -> ScaleDecision:
    """Apply the number: up at once; down to the largest need of the window, a fifth at a time."""
    if wish.number > scale.wanted:
        return replace(scale, wanted=wish.number, rule=wish.rule, why=wish.why, changed=now)
    if wish.number == scale.wanted:
        return replace(scale, rule=wish.rule, why=wish.why)
    if not may_shrink:
        return replace(
            scale, rule="release", why=f"no replica is removed during a release; {wish.number} would be enough: {wish.why}"
        )
    if wish.rule in ("zero", "fixed"):
        return replace(scale, wanted=wish.number, rule=wish.rule, why=wish.why, changed=now)
    window = hold_seconds(service)
    past = (_backlogged(scale, now), *(number for _, number in scale.recommendations))
    target = min(_most(service), max(wish.number, *past))
    if target >= scale.wanted:
        why = (
            f"{wish.number} would be enough ({wish.why}), "
            f"but {scale.wanted} were needed within the last {quantity.show_seconds(window)}"
        )
        return replace(scale, rule="hold", why=why)
    if now - scale.changed < PACE and scale.wanted <= _most(service):
        return replace(scale, rule="pace", why=f"on the way to {target}: {wish.why}")
    fewer = max(target, min(_most(service), scale.wanted - max(1, math.floor(PACE_PART * scale.wanted))))
    return replace(scale, wanted=fewer, rule="pace" if fewer > target else wish.rule, why=wish.why, changed=now)


def _backlogged(scale: ScaleDecision, now: float) -> int:
    """Return the number that a backlog required within the last minute."""
    time, number = scale.backlogged
    return number if now - time < LONG else 0


def _most(service: ServiceState) -> int:
    return service.spec.replicas.max


def would_change(spec: ServiceSpec, scale: ScaleDecision) -> str:
    """Return a text for users about what would change the number."""
    low, high = spec.replicas.min, spec.replicas.max
    return {
        "fixed": "another `replicas`: with {min, max} the load decides",
        "floor": "`fairway scale` with another number",
        "max": f"a larger `replicas.max` than {high}, or less load",
        "min": f"a smaller `replicas.min` than {low}, or more load",
        "zero": "the first request starts a replica",
        "idle": "a request keeps it; a longer `scaling.idle` keeps it longer",
        "held": "the first answers, which show how fast a replica is",
        "unmeasured": "the first answers, which show how fast a replica is",
        "hold": f"less load for `scaling.hold` ({spec.scaling.hold}), or at once: more load",
        "pace": "time: at most a fifth is removed in ten seconds",
        "release": "the end of the release; more load adds replicas at once",
        "latency": f"answers within the objective ({spec.objective.p95}) let it go down again",
        "cpu": "less load; more `resources.cpu` for each replica, or another `scaling.cpu`",
        "gpu": "less load; more `resources.gpu` for each replica, or another `scaling.gpu`",
        "memory": "less memory in use; more `limits.memory` for each replica, or another `scaling.memory`",
        "requests": f"other load, or another `scaling.concurrency` ({spec.scaling.concurrency}): what a replica can do at once",
    }.get(scale.rule, "more load adds replicas at once; less load for `scaling.hold` removes some")


def _requests(count: int) -> str:
    return "request waits" if count == 1 else "requests wait"


def _number(value: float) -> str:
    return f"{value:.3g}" if value < 1000 else f"{value:.0f}"


def _ceil(value: float) -> int:
    return units.ceiling(value - _ROUNDING, MOST)
