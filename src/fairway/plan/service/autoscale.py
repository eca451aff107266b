"""How many replicas a service should have: the one writer of that number.

    need = arrivals / (rate x utilisation) + backlog / (rate x 20 s)

`arrivals` is the rate of the last minute, or of the last six seconds where that is more than chance above it. `rate` is
requests a busy second of one replica, measured. Going up is at once. Going down is to the largest need of the hold window,
where a tenth would be to spare, and a fifth at a time; what a backlog asked for counts for a minute only. The latency
objective, processors, GPUs and memory are guards: they add replicas, and keep them. A server that says nothing of itself (a
`command`) has no rate: what it uses and its requests at once take its place (`strain`). Every number comes with its rule.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from fairway.plan.service import measured as looks
from fairway.plan.service import strain
from fairway.plan.service.measured import Measured
from fairway.spec.service import ServiceSpec
from fairway.state.service import Scale, Service
from fairway.units import number as units
from fairway.units import quantity

SHORT, LONG = 6.0, 60.0
"""Windows of the arrival rate, in seconds."""
DRAIN = 20.0
"""A backlog should be gone within this many seconds."""
BACKLOG_FACTOR = 3
"""A backlog at most multiplies the number by this."""
USE_FACTOR = 2
"""So does what replicas use."""
PACE, PACE_PART = 10.0, 0.2
"""Going down: this part within this many seconds."""
SPARE = 1.1
"""Going down needs this much room."""
CHANCE = 3.0
"""Standard deviations that the short rate must be above the long one."""
COLD_STARTS = 10
"""The hold window is at least this many cold starts."""
_LATENCY_WINDOW = 15.0
_FEW_ANSWERS = 20
_FEW_SERVED = 10
_AT_WORK = 0.5
"""A rate that fell counts only when replicas were this busy, of what they should be: small batches are slower ones."""
_NEAR = 0.02
"""Rates that differ by less than this are the same."""
_BUCKETS = 30
MOST = 1_000_000
"""Replicas that any rule asks for; what the document allows is fewer."""
_ROUNDING = 1e-6


@dataclass(frozen=True, slots=True)
class Signals:
    """What the rules look at."""

    arrivals: float | None
    """Requests a second; None: too little was seen."""
    window: float
    """Over which window, in seconds."""
    backlog: int
    held: int
    cost: float | None
    """Busy seconds of one replica a request, over the revisions as they share the traffic; None: not learnt yet."""
    p95: float | None
    utilisation: float | None
    ready: int
    use: strain.Use
    busy: strain.Strain | None
    """Of servers that say nothing of themselves; None: they do, or nothing is known of them."""


@dataclass(frozen=True, slots=True)
class _Wish:
    """A number, its rule, and the rule with its numbers."""

    number: int
    rule: str
    why: str
    roomy: int = 0
    """The number at which a tenth would be to spare: going down stops there, so that a boundary is not crossed to and fro."""
    lasting: int | None = None
    """What of it the hold window remembers: not what a backlog asks for, which will be gone; None: all."""


def decide(
    service: Service,
    ready: dict[int, frozenset[str]],
    shares: dict[int, float],
    measured: Measured,
    now: float,
    *,
    may_shrink: bool,
) -> Scale:
    """The number of replicas over all revisions. `ready` names the ready ones, `shares` says how traffic is split."""
    old = service.scale
    scale = replace(old, service_rate=learnt(service, ready, measured))
    scale = replace(scale, quiet_since=_quiet_since(scale, measured, now))
    seen = signals(replace(service, scale=scale), ready, shares, measured)
    wish = _bounded(_wish(service, scale, seen, now), service, scale, seen.ready, now)
    lasting = max(wish.number if wish.lasting is None else wish.lasting, min(scale.wanted, wish.roomy))
    scale = replace(scale, recommendations=_remembered(service, scale, lasting, measured, now))
    if wish.rule == "backlog" and wish.number >= _backlogged(scale, now):
        scale = replace(scale, backlogged=(now, wish.number))
    return _steady(old, _settled(service, scale, wish, now, may_shrink=may_shrink))


def _steady(old: Scale, new: Scale) -> Scale:
    """The old value where only the figures in its sentence changed a little: what is remembered is not written at every look."""
    same = replace(new, why=old.why, service_rate=old.service_rate)
    near = old.service_rate.keys() == new.service_rate.keys() and all(
        abs(rate - old.service_rate[number]) <= _NEAR * rate for number, rate in new.service_rate.items()
    )
    return old if near and same == old else new


def learnt(service: Service, ready: dict[int, frozenset[str]], measured: Measured) -> dict[int, float]:
    """Requests a busy second of one replica, by revision; what nobody knows any more is forgotten."""
    known = {revision.number for revision in service.revisions if not revision.spec.command}
    found = {number: rate for number, rate in looks.usable(service.scale.service_rate).items() if number in known}
    at_work = _AT_WORK * quantity.percent(service.spec.scaling.utilisation)
    for revision, names in ready.items():
        done = looks.work(measured, names, LONG)
        if revision not in known or done.rate is None or done.served < _FEW_SERVED:
            continue
        old = found.get(revision)
        if old is None or done.rate > old or (done.utilisation or 0.0) >= at_work:
            found[revision] = done.rate
    return found


def signals(service: Service, ready: dict[int, frozenset[str]], shares: dict[int, float], measured: Measured) -> Signals:
    """What was measured, in the words of the rules."""
    rate, window = _arrivals(measured)
    everybody = frozenset[str]().union(*ready.values())
    bars = looks.histogram(measured, None, _LATENCY_WINDOW)
    last = measured.last
    use = strain.of_replicas(measured, everybody)
    is_silent = any(revision.spec.command for revision in service.revisions if shares.get(revision.number))
    busy = strain.busy(service.spec.scaling, use, len(everybody)) if is_silent else None
    should = quantity.percent(service.spec.scaling.utilisation)
    own = looks.work(measured, everybody, _LATENCY_WINDOW).utilisation
    return Signals(
        arrivals=rate,
        window=window,
        backlog=looks.backlog(measured),
        held=max(0, last.route.held) if last and last.route else 0,
        cost=None if is_silent else cost(service.scale.service_rate, shares),
        p95=looks.percentile(bars, 0.95) if sum(bars) >= _FEW_ANSWERS else None,
        utilisation=min(1.0, busy.need * should / max(1, len(everybody))) if busy else own,
        ready=len(everybody),
        use=use,
        busy=busy,
    )


def _arrivals(measured: Measured) -> tuple[float | None, float]:
    short, long = looks.arrival_rate(measured, SHORT), looks.arrival_rate(measured, LONG)
    if short is None or long is None:
        return short or long, SHORT
    surprising = short > long + CHANCE * math.sqrt(max(long, 1.0 / SHORT) / SHORT)
    return (short, SHORT) if surprising else (long, LONG)


def cost(rates: dict[int, float], shares: dict[int, float]) -> float | None:
    """Busy seconds a request. A revision that has not been measured yet counts as the slowest of those beside it."""
    rates = looks.usable(rates)
    beside = [rates[revision] for revision in shares if revision in rates] or list(rates.values())
    slowest = min(beside, default=None)
    total = sum(shares.values())
    if slowest is None or total <= 0:
        return None if slowest is None else 1.0 / slowest
    return sum(share / rates.get(revision, slowest) for revision, share in shares.items()) / total


def _wish(service: Service, scale: Scale, seen: Signals, now: float) -> _Wish:
    """What the load asks for, bounds apart."""
    if seen.arrivals is not None and seen.cost is not None:
        found = _by_rate(service, seen, seen.arrivals, seen.cost)
    elif seen.arrivals is not None and seen.busy is not None and seen.ready and _is_asked(seen):
        most = BACKLOG_FACTOR * seen.ready
        found = _Wish(min(most, _ceil(seen.busy.need)), seen.busy.rule, seen.busy.why, min(most, _ceil(SPARE * seen.busy.need)))
    elif seen.held:
        return _Wish(max(1, scale.wanted), "held", f"{seen.held} {_requests(seen.held)} for a replica to be ready")
    elif seen.arrivals == 0 and not seen.backlog:
        return _Wish(0, "rate", f"no requests over {seen.window:.0f} s")
    else:
        return _Wish(scale.wanted, "unmeasured", "too little was measured yet to change anything")
    late = _latency(service, scale, seen, found, now)
    found = late if late and late.number > found.number else found
    return _guarded(service, scale, seen, found) if _is_asked(seen) else found


def _is_asked(seen: Signals) -> bool:
    """Whether anybody asks it: what replicas do for themselves is no reason to have more of them."""
    return bool(seen.arrivals or seen.use.at_once)


def _guarded(service: Service, scale: Scale, seen: Signals, found: _Wish) -> _Wish:
    """What replicas use asks for more, or keeps what there is."""
    tired = strain.guard(service.spec.scaling, seen.use, seen.ready)
    most = USE_FACTOR * max(1, seen.ready)
    if tired:
        found = replace(found, roomy=max(found.roomy, min(most, _ceil(SPARE * tired.need))))
    if tired and min(most, _ceil(tired.need)) > found.number:
        found = _Wish(min(most, _ceil(tired.need)), tired.rule, tired.why, found.roomy)
    short = strain.short_of_memory(service.spec.scaling, seen.use)
    if short and found.number < scale.wanted:
        kept = found.number if found.lasting is None else found.lasting
        return replace(
            found, number=scale.wanted, rule="memory", why=f"{short}; {found.number} would do: {found.why}", lasting=kept
        )
    return found


def _by_rate(service: Service, seen: Signals, arrivals: float, cost: float) -> _Wish:
    """What the rate and the backlog ask for."""
    busy = quantity.percent(service.spec.scaling.utilisation) or 0.01
    by_rate = arrivals * cost / busy
    by_backlog = seen.backlog * cost / DRAIN
    wanted = _ceil(by_rate + by_backlog)
    capped = min(wanted, BACKLOG_FACTOR * max(1, seen.ready, _ceil(by_rate)))
    rate = f"{_number(arrivals)} requests/s over {seen.window:.0f} s"
    each = f"a replica answers {_number(1 / cost)} a busy second and should be busy {busy:.0%} of the time"
    roomy = _ceil(SPARE * by_rate)
    found = _Wish(_ceil(by_rate), "rate", f"{rate}; {each}", roomy)
    if capped > _ceil(by_rate):
        return _Wish(capped, "backlog", f"{seen.backlog} {_requests(seen.backlog)} and {rate}; {each}", roomy, _ceil(by_rate))
    return found


def _latency(service: Service, scale: Scale, seen: Signals, found: _Wish, now: float) -> _Wish | None:
    """The objective is missed: one fifth more where replicas are busy; in any case none goes."""
    objective = service.spec.objective.p95
    if objective is None or seen.p95 is None or seen.p95 <= quantity.seconds(objective):
        return None
    said = f"p95 is {quantity.show_seconds(seen.p95)}, the objective is {objective}"
    busy = quantity.percent(service.spec.scaling.utilisation)
    use = f"replicas are busy {seen.utilisation or 0:.0%}"
    kept = replace(found, number=scale.wanted, rule="latency", why=f"{said}; {use}", lasting=found.lasting or found.number)
    if (seen.utilisation or 0.0) < _AT_WORK * busy and not seen.backlog:
        return replace(kept, why=f"{said}; {use}, so more would not help")
    settled = seen.ready >= scale.wanted and now - scale.changed >= _LATENCY_WINDOW + (_cold_start(service) or 0.0)
    if not settled or found.number > seen.ready:
        return kept
    return replace(kept, number=seen.ready + max(1, _ceil(PACE_PART * seen.ready)), lasting=None)


def _bounded(wish: _Wish, service: Service, scale: Scale, ready: int, now: float) -> _Wish:
    bounds = service.spec.replicas
    if bounds.min == bounds.max:
        return _Wish(bounds.max, "fixed", f"the document asks for {bounds.max}")
    if service.floor and wish.number < min(service.floor, bounds.max):
        return _Wish(min(service.floor, bounds.max), "floor", f"`fairway scale` set {service.floor} at the least")
    if wish.number > bounds.max:
        return _Wish(bounds.max, "max", f"the document allows {bounds.max}; the load asks for {wish.number}: {wish.why}")
    if wish.number < bounds.min:
        return _Wish(bounds.min, "min", f"the document asks for {bounds.min} at the least")
    return _idle(wish, service, scale, ready, now) if bounds.min == 0 else wish


def _idle(wish: _Wish, service: Service, scale: Scale, ready: int, now: float) -> _Wish:
    """The last replica goes when nothing came for long enough, not before."""
    awake = scale.wanted > 0 or wish.number > 0 or ready > 0
    if awake and (scale.quiet_since is None or wish.number > 1):
        return replace(wish, number=max(1, wish.number))
    quiet = now - (now if scale.quiet_since is None else scale.quiet_since)
    idle = quantity.seconds(service.spec.scaling.idle)
    if not awake or quiet >= idle:
        return _Wish(0, "zero", f"no request came for as long as `idle` says ({service.spec.scaling.idle})")
    left = quantity.show_seconds(idle - quiet)
    return _Wish(1, "idle", f"no request for {quantity.show_seconds(quiet)}; the last replica goes in {left}")


def _quiet_since(scale: Scale, measured: Measured, now: float) -> float | None:
    """Since when nothing came. What was seen before a restart of the daemon does not count."""
    if not looks.is_quiet(measured):
        # At zero with nothing measured yet, it stays quiet until a request says otherwise.
        return None
    if scale.quiet_since is None or _restarted(scale, measured):
        return now
    return scale.quiet_since


def _restarted(scale: Scale, measured: Measured) -> bool:
    """Whether the samples begin after what is remembered: the daemon was away in between."""
    return bool(scale.recommendations and measured.samples and measured.samples[0].time > scale.recommendations[-1][0])


def hold_seconds(service: Service) -> float:
    """How long fewer replicas must have been enough before one goes."""
    return max(quantity.seconds(service.spec.scaling.hold), COLD_STARTS * (_cold_start(service) or 0.0))


def _cold_start(service: Service) -> float | None:
    known = (units.finite(revision.cold_start) for revision in service.revisions[-2:])
    return max((seconds for seconds in known if seconds is not None and seconds >= 0.0), default=None)


def _remembered(service: Service, scale: Scale, number: int, measured: Measured, now: float) -> tuple[tuple[float, int], ...]:
    """The needs of the hold window, the largest of each part of it.

    Where the daemon did not look for a while, what there is counts as needed at this moment: nothing goes before the window
    is full again.
    """
    if number <= service.spec.replicas.min and scale.wanted <= service.spec.replicas.min:
        # Nothing could go; the window begins when there is something.
        return ()
    window = hold_seconds(service)
    part = max(1.0, window / _BUCKETS)
    kept = [one for one in scale.recommendations if one[0] > now - window - part]
    blind = not kept or _restarted(scale, measured) or now - kept[-1][0] > 3 * part
    if blind:
        return (*kept, (now, max(number, scale.wanted)))
    if now - kept[-1][0] < part:
        kept[-1] = (kept[-1][0], max(kept[-1][1], number))
        return tuple(kept)
    return (*kept, (now, number))


def _settled(service: Service, scale: Scale, wish: _Wish, now: float, *, may_shrink: bool) -> Scale:
    """Up at once; down to the largest need of the window, a fifth at a time."""
    if wish.number > scale.wanted:
        return replace(scale, wanted=wish.number, rule=wish.rule, why=wish.why, changed=now)
    if wish.number == scale.wanted:
        return replace(scale, rule=wish.rule, why=wish.why)
    if not may_shrink:
        return replace(
            scale, rule="release", why=f"nothing goes while a release is under way; {wish.number} would do: {wish.why}"
        )
    if wish.rule in ("zero", "fixed"):
        return replace(scale, wanted=wish.number, rule=wish.rule, why=wish.why, changed=now)
    window = hold_seconds(service)
    past = (_backlogged(scale, now), *(number for _, number in scale.recommendations))
    target = min(_most(service), max(wish.number, *past))
    if target >= scale.wanted:
        why = f"{wish.number} would do ({wish.why}), and {scale.wanted} were needed within {quantity.show_seconds(window)}"
        return replace(scale, rule="hold", why=why)
    if now - scale.changed < PACE and scale.wanted <= _most(service):
        return replace(scale, rule="pace", why=f"on the way to {target}: {wish.why}")
    fewer = max(target, min(_most(service), scale.wanted - max(1, math.floor(PACE_PART * scale.wanted))))
    return replace(scale, wanted=fewer, rule="pace" if fewer > target else wish.rule, why=wish.why, changed=now)


def _backlogged(scale: Scale, now: float) -> int:
    """What a backlog asked for within the last minute."""
    time, number = scale.backlogged
    return number if now - time < LONG else 0


def _most(service: Service) -> int:
    return service.spec.replicas.max


def would_change(spec: ServiceSpec, scale: Scale) -> str:
    """What would make the number another one, for people."""
    low, high = spec.replicas.min, spec.replicas.max
    return {
        "fixed": "another `replicas`: {min, max} lets the load decide",
        "floor": "`fairway scale` with another number",
        "max": f"a larger `replicas.max` than {high}, or less load",
        "min": f"a smaller `replicas.min` than {low}, or more load",
        "zero": "the first request starts a replica",
        "idle": "a request keeps it; a longer `scaling.idle` keeps it longer",
        "held": "the first answers, which say how fast a replica is",
        "unmeasured": "the first answers, which say how fast a replica is",
        "hold": f"less load for `scaling.hold` ({spec.scaling.hold}), or at once: more load",
        "pace": "time: at most a fifth goes in ten seconds",
        "release": "the end of the release; more load adds replicas at once",
        "latency": f"answers within the objective ({spec.objective.p95}) let it go down again",
        "cpu": "less load; more `resources.cpu` for each replica, or another `scaling.cpu`",
        "gpu": "less load; more `resources.gpu` for each replica, or another `scaling.gpu`",
        "memory": "less memory in use; more `limits.memory` for each replica, or another `scaling.memory`",
        "requests": f"other load, or another `scaling.concurrency` ({spec.scaling.concurrency}): what a replica can do at once",
    }.get(scale.rule, "more load adds replicas at once; less load for `scaling.hold` takes some away")


def _requests(count: int) -> str:
    return "request waits" if count == 1 else "requests wait"


def _number(value: float) -> str:
    return f"{value:.3g}" if value < 1000 else f"{value:.0f}"


def _ceil(value: float) -> int:
    return units.ceiling(value - _ROUNDING, MOST)
