"""What sends a release back: each guard by its name, with both numbers.

Guards compare the new revision with the old one at the same time, by tests that may be read at any time (`sequential`). What
they have seen is kept in the rollout's marks, so that a restart of the daemon begins nothing anew and counts nothing twice.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise

from fairway.plan.service import evidence, leak, outputs, sequential
from fairway.plan.service import measured as looks
from fairway.plan.service.evidence import ALPHA, ALPHA_ALLOWED, Marks, Verdict
from fairway.plan.service.measured import Measured, Sample
from fairway.plan.service.sequential import Reports
from fairway.spec.service import Guard, RolloutStrategy
from fairway.state.load import RevisionLoad
from fairway.state.service import Replica, ReplicaPhase, Revision, RevisionPhase, Rollout, Service
from fairway.units import number, quantity

CRASHES = 3
"""Replicas of a new revision that end by themselves before it is sent back."""
MEMORY_KILLS = 2
"""The same of those that were killed for using too much memory, while none of the old revision was."""
_ENDED = "ended"
"""Marks of the replicas that ended by themselves during the release."""
SLOW = 0.05
"""The part of the answers that may be slower than the 95th percentile."""
MOSTLY = 0.5
"""The part of client errors that is no alarm without the old revision on the same traffic: the clients may have changed."""
LESS = 0.05
"""An old revision that succeeds less often than the new one by more than this is no measure of latency."""
_WINDOW = 60.0
_FEW = 50
"""Answers of the old revision within the window, without which it is no measure."""
_MOST_A_LOOK = 25
"""Answers of one look that count at the most: those that waited for each other are not independent."""
_HELD_FOR = 15.0
"""Seconds after that until what had piled up is answered."""
LOOKED = "looked"
"""The mark that says up to when the counters were read."""
PAUSED_AT = "paused_at"
"""The mark that says when a release was held: its time stands still."""
HELD = "held"
"""The mark that says when requests waited in the router for a replica, last."""
TIMES = (LOOKED, PAUSED_AT, HELD, f"{_ENDED}.at")
"""The marks that hold a moment."""
METRIC = "metric."
"""Marks of the metric, forgotten when the parts change: shares that move with the time of day would mislead."""
LEFT_OUT = f"{METRIC}left_out"
"""The mark that counts reports whose values are too large to be summed up."""
_SUMS = ("n", "sum", "squares")


def of_replicas(service: Service, rollout: Rollout, replicas: Sequence[Replica], now: float) -> Verdict | None:
    """Whether the new revision's replicas crash, or never get ready."""
    target = service.revision(rollout.target)
    if target is None:
        return None
    last = max(
        (replica for replica in replicas if replica.revision == target.number and replica.message),
        key=lambda replica: (replica.phase is ReplicaPhase.GONE, replica.since),
        default=None,
    )
    said = f" ({last.name}: {last.message})" if last else ""
    crashed = _crashed(rollout, target)
    if crashed:
        return Verdict("crash", f"{crashed}{said}")
    limit = service.spec.rollout.guard.ready
    waited = rollout.marks.get(PAUSED_AT, now) - rollout.started
    if target.phase is RevisionPhase.NEW and waited >= quantity.seconds(limit):
        spent = quantity.show_seconds(waited)
        return Verdict("ready", f"no replica of r{target.number} was ready after {spent}; allowed are {limit}{said}")
    return None


def with_ends(rollout: Rollout, replicas: Sequence[Replica]) -> Rollout:
    """The release with the replicas counted that ended by themselves since it began: not only those in a row."""
    marks = dict(rollout.marks)
    seen = (max(rollout.started, evidence.mark(marks, f"{_ENDED}.at")), evidence.mark(marks, f"{_ENDED}.number"))
    ended = [one for one in replicas if one.phase is ReplicaPhase.GONE and one.failed and (one.since, one.number) > seen]
    for one in sorted(ended, key=lambda one: (one.since, one.number)):
        side = {rollout.target: "new", rollout.source: "old"}.get(one.revision)
        if side:
            evidence.add(marks, f"{_ENDED}.{side}", 1)
            evidence.add(marks, f"{_ENDED}.{side}.memory", one.out_of_memory)
        marks[f"{_ENDED}.at"], marks[f"{_ENDED}.number"] = one.since, float(one.number)
    return replace(rollout, marks=marks) if ended else rollout


def _crashed(rollout: Rollout, target: Revision) -> str:
    """Why the new revision's replicas end too often, in words; empty while they do not.

    Three in a row are enough, or three more than of the old revision while the release goes on, or two that were killed for
    using too much memory where none of the old one was.
    """
    new, old = (int(evidence.mark(rollout.marks, f"{_ENDED}.{side}")) for side in ("new", "old"))
    memory, other = (int(evidence.mark(rollout.marks, f"{_ENDED}.{side}.memory")) for side in ("new", "old"))
    why = f", {memory} of them killed for using too much memory" if memory else ""
    if target.failures >= CRASHES:
        when = "before any was ready" if target.phase is RevisionPhase.NEW else "after it had been ready"
        return f"{target.failures} replicas of r{target.number} ended by themselves {when}{why}; {CRASHES} are enough"
    beside = f"; {old} of r{rollout.source}"
    if memory >= MEMORY_KILLS and not other:
        return f"{memory} replicas of r{target.number} were killed for using too much memory{beside}; {MEMORY_KILLS} are enough"
    if new >= old + CRASHES:
        return (
            f"{new} replicas of r{target.number} ended by themselves during the release{why}{beside}; {CRASHES} more are enough"
        )
    return ""


def of_answers(service: Service, rollout: Rollout, measured: Measured) -> tuple[Marks, Verdict | None]:
    """What the answers since the last look say: the marks with it, and a verdict when a guard speaks."""
    # What an older version remembered of extreme reports may be infinite; nothing can be added to that.
    marks = {name: value for name, value in rollout.marks.items() if number.finite(value) is not None}
    last = measured.last
    if last is None:
        return marks, None
    seen = [sample for sample in measured.samples if sample.route and sample.time >= marks.get(LOOKED, last.time)]
    for before, after in pairwise(seen):
        if before.route and after.route:
            same = before.route.epoch == after.route.epoch
            mine, old = (
                looks.difference(
                    before.route.revisions.get(number, RevisionLoad()) if same else RevisionLoad(),
                    after.route.revisions.get(number, RevisionLoad()),
                )
                for number in (rollout.target, rollout.source)
            )
            _count_errors(marks, service.spec.rollout.guard, mine, old)
            _count_client_errors(marks, service, mine, old)
            if not _were_held(marks, before, after):
                _count_slow(marks, service, rollout, mine, measured)
            _count_reports(marks, service.spec.rollout.guard, mine, old)
            outputs.count(marks, service, rollout, (before, after), mine.outputs)
    marks[LOOKED] = last.time
    verdicts = (
        _errors(service, rollout, marks),
        _client_errors(service, rollout, marks),
        outputs.verdict(service, rollout, marks),
        leak.verdict(service, rollout, measured),
        _slow(service, rollout, marks, measured),
        _metric(service, rollout, marks),
    )
    verdict = next((verdict for verdict in verdicts if verdict), None)
    return marks, _caused(service, rollout, marks, verdict) if verdict and verdict.guard == "metric" else verdict


def _caused(service: Service, rollout: Rollout, marks: Marks, metric: Verdict) -> Verdict:
    """The verdict of the metric by its cause: answers that fail or hold no number are worth less, and each may be seen first."""
    causes = (_errors, _client_errors, outputs.without_number)
    found = next((cause for find in causes if (cause := find(service, rollout, marks, evidence.LIKELY))), None)
    return Verdict(found.guard, f"{found.reason}; {metric.reason}") if found else metric


def _were_held(marks: Marks, before: Sample, after: Sample) -> bool:
    """Whether answers may be late because their requests waited for the first replica, which says nothing of the revision."""
    if any(sample.route and sample.route.held for sample in (before, after)):
        marks[HELD] = after.time
    return after.time < marks.get(HELD, float("-inf")) + _HELD_FOR


def findings(service: Service, rollout: Rollout) -> tuple[str, ...]:
    """What the guards have seen so far, a sentence each: for people who watch a release."""
    marks, guard = rollout.marks, service.spec.rollout.guard
    found: list[str] = []
    if marks.get("errors.n"):
        found.append(f"errors: {_errors_in_words(rollout, marks)}; allowed is {guard.errors}{evidence.sureness(marks, 'errors')}")
    if marks.get("client_errors.k"):
        said = f"{_client_errors_in_words(rollout, marks)}; allowed is {guard.client_errors}"
        found.append(f"client errors: {said}{evidence.sureness(marks, 'client_errors')}")
    if "slower.old" in marks and marks.get("errors.n"):
        allowed = f"{guard.slower} times as much" if quantity.number(guard.slower) else "anything"
        usual = f"p95 of r{rollout.source} is {quantity.show_seconds(marks['slower.old'])}"
        found.append(f"slower: {usual}; r{rollout.target} is allowed {allowed}{evidence.sureness(marks, 'slower')}")
    found.extend(outputs.findings(service, rollout))
    compared = comparison(service, rollout)
    if guard.metric and compared:
        way = f"{guard.metric.name} changed by {compared.value:+.3g}, surely between {compared.low:+.3g} and {compared.high:+.3g}"
        found.append(f"metric: {way}; {guard.metric.better} is better")
    elif guard.metric:
        least = f"fewer than {sequential.FEW} of either revision say nothing"
        counts = f"{reports(marks, 'new').count:.0f} and {reports(marks, 'old').count:.0f}"
        found.append(f"metric: {counts} reports of {guard.metric.name}; {least}")
    if guard.metric and evidence.mark(marks, LEFT_OUT):
        left = f"{evidence.mark(marks, LEFT_OUT):.0f} reports of {guard.metric.name} were left out"
        found.append(f"metric: {left}: too large to be summed up")
    return tuple(found)


def answers(marks: Mapping[str, float]) -> float:
    """How many answers of the new revision the guards have seen, copies included."""
    return evidence.mark(marks, "errors.n")


def without_metric(marks: Mapping[str, float]) -> Marks:
    """The marks when the parts of the traffic change."""
    return {name: value for name, value in marks.items() if not name.startswith(METRIC)}


def _count_errors(marks: Marks, guard: Guard, mine: RevisionLoad, old: RevisionLoad) -> None:
    failed = mine.failed + mine.mirror_failed
    total = mine.answered + mine.failed + mine.mirrored
    other = old.answered + old.failed
    for name, value in (("n", total), ("k", failed), ("old.n", other), ("old.k", old.failed)):
        marks[f"errors.{name}"] = evidence.mark(marks, f"errors.{name}") + max(0, value)
    if total <= 0:
        return
    known = evidence.known(marks, "errors")
    allowed = quantity.percent(guard.errors)
    if other > 0:
        found = sequential.more_often_than_beside(known, (failed, total), (old.failed, other), ALPHA)
    else:
        found = sequential.more_often_than(known, failed, total, max(allowed, evidence.part(marks, "errors.old")), ALPHA)
    evidence.keep(marks, "errors", found)
    beyond = sequential.more_often_than(evidence.known(marks, "allowed"), failed, total, allowed, ALPHA_ALLOWED)
    evidence.keep(marks, "allowed", beyond)


def _errors(service: Service, rollout: Rollout, marks: Marks, sure: float = 1.0) -> Verdict | None:
    allowed = service.spec.rollout.guard.errors
    if not evidence.is_too_often(marks, "errors", "allowed", allowed, sure):
        return None
    return Verdict("errors", f"{_errors_in_words(rollout, marks)}; allowed is {allowed}")


def _errors_in_words(rollout: Rollout, marks: Mapping[str, float]) -> str:
    mine, old = evidence.said(marks, "errors"), evidence.said(marks, "errors.old")
    new = f"{evidence.part(marks, 'errors'):.1%} of r{rollout.target}'s answers failed ({mine})"
    return f"{new}, {evidence.part(marks, 'errors.old'):.1%} of r{rollout.source}'s ({old})"


def _count_client_errors(marks: Marks, service: Service, mine: RevisionLoad, old: RevisionLoad) -> None:
    """Counts client errors beside those of the old revision on the same traffic.

    A failure of the old revision counts as one: a request that it failed on may be refused. Where there is none of the old, or
    clients stay with a version, only a majority is evidence.
    """
    refused, total = mine.client_errors + mine.mirror_client_errors, mine.answered + mine.failed + mine.mirrored
    beside = (old.client_errors + old.failed, old.answered + old.failed)
    allowed = quantity.percent(service.spec.rollout.guard.client_errors)
    same = sees_same_traffic(service)
    evidence.count_beside(marks, "client_errors", (refused, total), beside, allowed, same=same, alone=MOSTLY)


def sees_same_traffic(service: Service) -> bool:
    """Whether both revisions get requests of all clients. Copies are taken of all requests."""
    traffic, policy = service.spec.traffic, service.spec.rollout
    return policy.strategy is RolloutStrategy.SHADOW or not (traffic.sticky or traffic.headers)


def _client_errors(service: Service, rollout: Rollout, marks: Marks, sure: float = 1.0) -> Verdict | None:
    allowed = service.spec.rollout.guard.client_errors
    if not evidence.is_too_often(marks, "client_errors", "client_errors_allowed", allowed, sure):
        return None
    return Verdict("client_errors", f"{_client_errors_in_words(rollout, marks)}; allowed is {allowed}")


def _client_errors_in_words(rollout: Rollout, marks: Mapping[str, float]) -> str:
    names = ("client_errors", "client_errors.old")
    mine, old = (evidence.said(marks, name) for name in names)
    new = f"{evidence.part(marks, 'client_errors'):.1%} of r{rollout.target}'s answers were client errors (4xx) ({mine})"
    return f"{new}, {evidence.part(marks, 'client_errors.old'):.1%} of r{rollout.source}'s were client errors or failures ({old})"


def _count_slow(marks: Marks, service: Service, rollout: Rollout, mine: RevisionLoad, measured: Measured) -> None:
    """Counts answers that are slower than the old revision's 95th percentile allows, and than the document does."""
    guard = service.spec.rollout.guard
    bars = looks.histogram(measured, rollout.source, _WINDOW)
    if sum(bars) < _FEW and "slower.old" not in marks:
        # Few ask: what was measured longer ago is better than nothing.
        bars = looks.histogram(measured, rollout.source, looks.KEPT)
    is_measure = _is_measure(rollout, measured)
    usual = looks.quantile(bars, 1.0 - SLOW) if sum(bars) >= _FEW and is_measure else None
    if usual is not None:
        marks["slower.old"] = usual
    elif not is_measure:
        marks.pop("slower.old", None)
    total = sum(mine.latency)
    for name, bound in (("slower", _slower_bound(guard, marks)), ("p95", _p95_bound(guard, usual))):
        if bound is None or not total:
            continue
        slow = looks.longer_than(mine.latency, bound)
        part = min(1.0, _MOST_A_LOOK / total)
        # What is not a whole answer is counted with the next look's: few answers come between two looks.
        counted = {}
        for side, value in (("k", slow), ("n", total)):
            value = value * part + evidence.mark(marks, f"{name}.rest.{side}")
            counted[side] = int(value)
            marks[f"{name}.rest.{side}"] = value - counted[side]
        found = sequential.more_often_than(evidence.known(marks, name), counted["k"], counted["n"], SLOW, ALPHA)
        evidence.keep(marks, name, found)


def _is_measure(rollout: Rollout, measured: Measured) -> bool:
    """Whether the old revision's latency can be compared: one that refuses or fails on requests is fast on those."""
    old = looks.unsuccessful(measured, rollout.source, _WINDOW)
    new = looks.unsuccessful(measured, rollout.target, _WINDOW)
    return old is None or old <= (new or 0.0) + LESS


def _slower_bound(guard: Guard, marks: Marks) -> float | None:
    usual = marks.get("slower.old")
    factor = quantity.number(guard.slower)
    return usual * factor if factor and usual is not None else None


def _p95_bound(guard: Guard, usual: float | None) -> float | None:
    """The bound of the document; none while the old revision does not keep it either: then it is the load."""
    if guard.p95 is None:
        return None
    bound = quantity.seconds(guard.p95)
    return None if usual is not None and usual > bound else bound


def _slow(service: Service, rollout: Rollout, marks: Marks, measured: Measured) -> Verdict | None:
    guard = service.spec.rollout.guard
    found = looks.quantile(looks.histogram(measured, rollout.target, _WINDOW), 1.0 - SLOW)
    mine = f"p95 of r{rollout.target} is {'unknown' if found is None else quantity.show_seconds(found)}"
    old = f"that of r{rollout.source} {quantity.show_seconds(marks['slower.old'])}" if "slower.old" in marks else ""
    if guard.p95 and evidence.speaks(marks, "p95"):
        return Verdict("p95", f"{mine}{', ' + old if old else ''}; allowed are {guard.p95}")
    if quantity.number(guard.slower) and evidence.speaks(marks, "slower"):
        return Verdict("slower", f"{mine}, {old}; allowed is {guard.slower} times as much")
    return None


def _count_reports(marks: Marks, guard: Guard, mine: RevisionLoad, old: RevisionLoad) -> None:
    if guard.metric is None:
        return
    for side, load in (("new", mine), ("old", old)):
        count, total, squares = load.outcomes.get(guard.metric.name, (0, 0.0, 0.0))
        if count <= 0:
            continue
        known = reports(marks, side)
        added = (known.count + count, known.total + total, known.squares + squares)
        if all(number.finite(value) is not None for value in added):
            marks.update(zip((f"{METRIC}{side}.{name}" for name in _SUMS), added, strict=True))
        else:
            marks[LEFT_OUT] = evidence.mark(marks, LEFT_OUT) + count


def reports(marks: Mapping[str, float], side: str) -> Reports:
    """What was reported of the `new` or the `old` revision since the parts changed last; nothing where that is not finite."""
    sums = [number.finite(marks.get(f"{METRIC}{side}.{name}", 0.0)) for name in _SUMS]
    known = [value for value in sums if value is not None]
    return Reports(*known) if len(known) == len(_SUMS) and known[0] >= 0 else Reports()


def comparison(service: Service, rollout: Rollout) -> sequential.Difference | None:
    """New minus old by the metric, with the interval in which it lies."""
    metric = service.spec.rollout.guard.metric
    if metric is None:
        return None
    # Every step is a test of its own, and all of them together keep what was promised.
    tests = max(1, len(service.spec.rollout.steps)) + 1
    alpha = max(1e-9, 1.0 - quantity.percent(metric.confidence)) / tests
    return sequential.difference(reports(rollout.marks, "new"), reports(rollout.marks, "old"), alpha)


def _metric(service: Service, rollout: Rollout, marks: Marks) -> Verdict | None:
    metric = service.spec.rollout.guard.metric
    found = comparison(service, Rollout(rollout.source, rollout.target, marks=marks))
    if metric is None or found is None:
        return None
    is_worse = found.high < 0 if metric.better == "higher" else found.low > 0
    if not is_worse:
        return None
    new, old = reports(marks, "new"), reports(marks, "old")
    mine = f"{metric.name} of r{rollout.target} is {new.mean:.4g} ({new.count:.0f} reports)"
    other = f"that of r{rollout.source} {old.mean:.4g} ({old.count:.0f})"
    return Verdict("metric", f"{mine}, {other}; {metric.better} is better, and it is so with {metric.confidence} confidence")
