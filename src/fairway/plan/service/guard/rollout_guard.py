"""Guards that roll back a release; each verdict names the guard and both numbers.

Guards compare the new revision with the old one over the same time, with tests that are valid at any time (`sequential`).
Their counts are stored in the rollout's marks, so that a restart of the daemon neither restarts a test nor counts twice.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise

from fairway.plan.service import measurement as looks
from fairway.plan.service.guard import guard_evidence, memory_leak_guard, output_guard, sequential_test
from fairway.plan.service.guard.guard_evidence import ALPHA, ALPHA_ALLOWED, GuardVerdict, Marks
from fairway.plan.service.guard.sequential_test import MetricReports
from fairway.plan.service.measurement import ServiceMeasurements, ServiceSample
from fairway.spec.service import RolloutGuard, RolloutStrategy
from fairway.state.service import ReplicaPhase, RevisionPhase, ServiceReplica, ServiceRevision, ServiceRollout, ServiceState
from fairway.state.serving.load import RevisionLoad
from fairway.units import number, quantity

CRASHES = 3
"""Replicas of a new revision that must end by themselves for a rollback."""
MEMORY_KILLS = 2
"""The same for replicas killed for using too much memory, while none of the old revision was."""
_ENDED = "ended"
"""Prefix of the marks for replicas that ended by themselves during the release."""
SLOW = 0.05
"""The fraction of answers that may be slower than the 95th percentile."""
MOSTLY = 0.5
"""Accepted fraction of client errors without the old revision on the same traffic: the clients may have changed."""
LESS = 0.05
"""The old revision's latency is not used for comparison if its success rate is lower by more than this."""
_WINDOW = 60.0
_FEW = 50
"""Minimum number of the old revision's answers within the window for a comparison."""
_MOST_A_LOOK = 25
"""Maximum number of answers counted per sample: answers that waited for each other are not independent."""
_HELD_FOR = 15.0
"""Seconds after a hold until the backlog is answered."""
LOOKED = "looked"
"""Mark: the time up to which the counters were read."""
PAUSED_AT = "paused_at"
"""Mark: when a release was paused; its clock stops then."""
HELD = "held"
"""Mark: when requests last waited in the router for a replica."""
TIMES = (LOOKED, PAUSED_AT, HELD, f"{_ENDED}.at")
"""The marks that hold a time."""
METRIC = "metric."
"""Prefix of the metric's marks, which are reset when traffic shares change: shares that follow the time of day would mislead."""
LEFT_OUT = f"{METRIC}left_out"
"""Mark: the number of reports whose values are too large to be summed."""
_SUMS = ("n", "sum", "squares")


def of_replicas(
    service: ServiceState, rollout: ServiceRollout, replicas: Sequence[ServiceReplica], now: float
) -> GuardVerdict | None:
    """Return a verdict if the new revision's replicas crash or do not become ready in time."""
    target = service.revision(rollout.target)
    if target is None:
        return None
    last = max(
        (replica for replica in replicas if replica.revision == target.number and replica.message),
        key=lambda replica: (replica.phase is ReplicaPhase.GONE, replica.since),
        default=None,
    )
    details = f" ({last.name}: {last.message})" if last else ""
    crashed = _crashed(rollout, target)
    if crashed:
        return GuardVerdict("crash", f"{crashed}{details}")
    limit = service.spec.rollout.guard.ready
    waited = rollout.marks.get(PAUSED_AT, now) - rollout.started
    if target.phase is RevisionPhase.NEW and waited >= quantity.seconds(limit):
        spent = quantity.show_seconds(waited)
        return GuardVerdict("ready", f"no replica of r{target.number} was ready after {spent}; the limit is {limit}{details}")
    return None


def with_ends(rollout: ServiceRollout, replicas: Sequence[ServiceReplica]) -> ServiceRollout:
    """Count the replicas that have ended by themselves since the release began, consecutive or not; return the release."""
    marks = dict(rollout.marks)
    counted_until = (
        max(rollout.started, guard_evidence.mark(marks, f"{_ENDED}.at")),
        guard_evidence.mark(marks, f"{_ENDED}.number"),
    )
    ended = [
        replica
        for replica in replicas
        if replica.phase is ReplicaPhase.GONE and replica.failed and (replica.since, replica.number) > counted_until
    ]
    for replica in sorted(ended, key=lambda replica: (replica.since, replica.number)):
        side = {rollout.target: "new", rollout.source: "old"}.get(replica.revision)
        if side:
            guard_evidence.add(marks, f"{_ENDED}.{side}", 1)
            guard_evidence.add(marks, f"{_ENDED}.{side}.memory", replica.out_of_memory)
        marks[f"{_ENDED}.at"], marks[f"{_ENDED}.number"] = replica.since, float(replica.number)
    return replace(rollout, marks=marks) if ended else rollout


def _crashed(rollout: ServiceRollout, target: ServiceRevision) -> str:
    """Return why the new revision's replicas end too often; empty while they do not.

    Three in a row are sufficient, or three more than of the old revision during the release, or two that were killed for
    using too much memory while none of the old revision was.
    """
    new, old = (int(guard_evidence.mark(rollout.marks, f"{_ENDED}.{side}")) for side in ("new", "old"))
    memory, other = (int(guard_evidence.mark(rollout.marks, f"{_ENDED}.{side}.memory")) for side in ("new", "old"))
    why = f", {memory} of them killed for using too much memory" if memory else ""
    if target.failures >= CRASHES:
        when = "before any was ready" if target.phase is RevisionPhase.NEW else "after it had been ready"
        return f"{target.failures} replicas of r{target.number} ended by themselves {when}{why}; {CRASHES} cause a rollback"
    old_text = f"; {old} of r{rollout.source}"
    if memory >= MEMORY_KILLS and not other:
        return (
            f"{memory} replicas of r{target.number} were killed for using too much memory{old_text}; "
            f"{MEMORY_KILLS} cause a rollback"
        )
    if new >= old + CRASHES:
        return (
            f"{new} replicas of r{target.number} ended by themselves during the release{why}{old_text}; "
            f"a difference of {CRASHES} causes a rollback"
        )
    return ""


def of_answers(
    service: ServiceState, rollout: ServiceRollout, measured: ServiceMeasurements
) -> tuple[Marks, GuardVerdict | None]:
    """Count the answers since the last call; return the updated marks, and a verdict if a guard decides to roll back."""
    # Marks written by an older version may be infinite after extreme reports; these cannot be added to.
    marks = {name: value for name, value in rollout.marks.items() if number.finite(value) is not None}
    last = measured.last
    if last is None:
        return marks, None
    samples = [sample for sample in measured.samples if sample.route and sample.time >= marks.get(LOOKED, last.time)]
    for before, after in pairwise(samples):
        if before.route and after.route:
            same_epoch = before.route.epoch == after.route.epoch
            mine, old = (
                looks.difference(
                    before.route.revisions.get(number, RevisionLoad()) if same_epoch else RevisionLoad(),
                    after.route.revisions.get(number, RevisionLoad()),
                )
                for number in (rollout.target, rollout.source)
            )
            _count_errors(marks, service.spec.rollout.guard, mine, old)
            _count_client_errors(marks, service, mine, old)
            if not _were_held(marks, before, after):
                _count_slow(marks, service, rollout, mine, measured)
            _count_reports(marks, service.spec.rollout.guard, mine, old)
            output_guard.count(marks, service, rollout, (before, after), mine.outputs)
    marks[LOOKED] = last.time
    verdicts = (
        _errors(service, rollout, marks),
        _client_errors(service, rollout, marks),
        output_guard.verdict(service, rollout, marks),
        memory_leak_guard.verdict(service, rollout, measured),
        _slow(service, rollout, marks, measured),
        _metric(service, rollout, marks),
    )
    verdict = next((verdict for verdict in verdicts if verdict), None)
    return marks, _caused(service, rollout, marks, verdict) if verdict and verdict.guard == "metric" else verdict


def _caused(service: ServiceState, rollout: ServiceRollout, marks: Marks, metric: GuardVerdict) -> GuardVerdict:
    """Return the metric's verdict under its likely cause: failed or non-finite answers also worsen the metric."""
    causes = (_errors, _client_errors, output_guard.without_number)
    cause_verdict = next((cause for find in causes if (cause := find(service, rollout, marks, guard_evidence.LIKELY))), None)
    return GuardVerdict(cause_verdict.guard, f"{cause_verdict.reason}; {metric.reason}") if cause_verdict else metric


def _were_held(marks: Marks, before: ServiceSample, after: ServiceSample) -> bool:
    """Return whether answers may be late because requests waited for the first replica, independent of the revision."""
    if any(sample.route and sample.route.held for sample in (before, after)):
        marks[HELD] = after.time
    return after.time < marks.get(HELD, float("-inf")) + _HELD_FOR


def findings(service: ServiceState, rollout: ServiceRollout) -> tuple[str, ...]:
    """Return the guards' current findings, one sentence each, for users who watch a release."""
    marks, guard = rollout.marks, service.spec.rollout.guard
    sentences: list[str] = []
    if marks.get("errors.n"):
        sentences.append(
            f"errors: {_errors_in_words(rollout, marks)}; allowed is {guard.errors}{guard_evidence.sureness(marks, 'errors')}"
        )
    if marks.get("client_errors.k"):
        text = f"{_client_errors_in_words(rollout, marks)}; allowed is {guard.client_errors}"
        sentences.append(f"client errors: {text}{guard_evidence.sureness(marks, 'client_errors')}")
    if "slower.old" in marks and marks.get("errors.n"):
        allowed = f"{guard.slower} times as much" if quantity.number(guard.slower) else "anything"
        usual = f"p95 of r{rollout.source} is {quantity.show_seconds(marks['slower.old'])}"
        sentences.append(f"slower: {usual}; r{rollout.target} is allowed {allowed}{guard_evidence.sureness(marks, 'slower')}")
    sentences.extend(output_guard.findings(service, rollout))
    compared = comparison(service, rollout)
    if guard.metric and compared:
        change = (
            f"{guard.metric.name} changed by {compared.value:+.3g}, "
            f"confidence interval {compared.low:+.3g} to {compared.high:+.3g}"
        )
        sentences.append(f"metric: {change}; {guard.metric.better} is better")
    elif guard.metric:
        least = f"at least {sequential_test.FEW} of each revision are needed"
        counts = f"{reports(marks, 'new').count:.0f} and {reports(marks, 'old').count:.0f}"
        sentences.append(f"metric: {counts} reports of {guard.metric.name}; {least}")
    if guard.metric and guard_evidence.mark(marks, LEFT_OUT):
        left_out = f"{guard_evidence.mark(marks, LEFT_OUT):.0f} reports of {guard.metric.name} were left out"
        sentences.append(f"metric: {left_out}: too large to be summed up")
    return tuple(sentences)


def answers(marks: Mapping[str, float]) -> float:
    """Return the number of the new revision's answers that the guards have counted, including answers to copies."""
    return guard_evidence.mark(marks, "errors.n")


def without_metric(marks: Mapping[str, float]) -> Marks:
    """Return the marks to keep when the traffic shares change: all except those of the metric."""
    return {name: value for name, value in marks.items() if not name.startswith(METRIC)}


def _count_errors(marks: Marks, guard: RolloutGuard, mine: RevisionLoad, old: RevisionLoad) -> None:
    failed = mine.failed + mine.mirror_failed
    total = mine.answered + mine.failed + mine.mirrored
    other = old.answered + old.failed
    for name, value in (("n", total), ("k", failed), ("old.n", other), ("old.k", old.failed)):
        marks[f"errors.{name}"] = guard_evidence.mark(marks, f"errors.{name}") + max(0, value)
    if total <= 0:
        return
    previous = guard_evidence.known(marks, "errors")
    allowed = quantity.percent(guard.errors)
    if other > 0:
        updated = sequential_test.more_often_than_beside(previous, (failed, total), (old.failed, other), ALPHA)
    else:
        updated = sequential_test.more_often_than(
            previous, failed, total, max(allowed, guard_evidence.part(marks, "errors.old")), ALPHA
        )
    guard_evidence.keep(marks, "errors", updated)
    beyond = sequential_test.more_often_than(guard_evidence.known(marks, "allowed"), failed, total, allowed, ALPHA_ALLOWED)
    guard_evidence.keep(marks, "allowed", beyond)


def _errors(service: ServiceState, rollout: ServiceRollout, marks: Marks, sure: float = 1.0) -> GuardVerdict | None:
    allowed = service.spec.rollout.guard.errors
    if not guard_evidence.is_too_often(marks, "errors", "allowed", allowed, sure):
        return None
    return GuardVerdict("errors", f"{_errors_in_words(rollout, marks)}; allowed is {allowed}")


def _errors_in_words(rollout: ServiceRollout, marks: Mapping[str, float]) -> str:
    mine, old = guard_evidence.said(marks, "errors"), guard_evidence.said(marks, "errors.old")
    new = f"{guard_evidence.part(marks, 'errors'):.1%} of r{rollout.target}'s answers failed ({mine})"
    return f"{new}, {guard_evidence.part(marks, 'errors.old'):.1%} of r{rollout.source}'s ({old})"


def _count_client_errors(marks: Marks, service: ServiceState, mine: RevisionLoad, old: RevisionLoad) -> None:
    """Count client errors against those of the old revision on the same traffic.

    A failure of the old revision counts as a client error: the new one may refuse such a request. Without answers of the old
    one, or if clients stay with one revision, only a majority of client errors is evidence.
    """
    refused, total = mine.client_errors + mine.mirror_client_errors, mine.answered + mine.failed + mine.mirrored
    old_counts = (old.client_errors + old.failed, old.answered + old.failed)
    allowed = quantity.percent(service.spec.rollout.guard.client_errors)
    same = sees_same_traffic(service)
    guard_evidence.count_beside(marks, "client_errors", (refused, total), old_counts, allowed, same=same, alone=MOSTLY)


def sees_same_traffic(service: ServiceState) -> bool:
    """Return whether both revisions get requests of all clients. Copies are taken of all requests."""
    traffic, policy = service.spec.traffic, service.spec.rollout
    return policy.strategy is RolloutStrategy.SHADOW or not (traffic.sticky or traffic.headers)


def _client_errors(service: ServiceState, rollout: ServiceRollout, marks: Marks, sure: float = 1.0) -> GuardVerdict | None:
    allowed = service.spec.rollout.guard.client_errors
    if not guard_evidence.is_too_often(marks, "client_errors", "client_errors_allowed", allowed, sure):
        return None
    return GuardVerdict("client_errors", f"{_client_errors_in_words(rollout, marks)}; allowed is {allowed}")


def _client_errors_in_words(rollout: ServiceRollout, marks: Mapping[str, float]) -> str:
    names = ("client_errors", "client_errors.old")
    mine, old = (guard_evidence.said(marks, name) for name in names)
    new = f"{guard_evidence.part(marks, 'client_errors'):.1%} of r{rollout.target}'s answers were client errors (4xx) ({mine})"
    share = guard_evidence.part(marks, "client_errors.old")
    return f"{new}, {share:.1%} of r{rollout.source}'s were client errors or failures ({old})"


def _count_slow(
    marks: Marks, service: ServiceState, rollout: ServiceRollout, mine: RevisionLoad, measured: ServiceMeasurements
) -> None:
    """Count answers slower than the bound from the old revision's 95th percentile, and than the bound of the document."""
    guard = service.spec.rollout.guard
    latency_histogram = looks.histogram(measured, rollout.source, _WINDOW)
    if sum(latency_histogram) < _FEW and "slower.old" not in marks:
        # With few requests, older measurements are used.
        latency_histogram = looks.histogram(measured, rollout.source, looks.KEPT)
    is_measure = _is_measure(rollout, measured)
    usual = looks.quantile(latency_histogram, 1.0 - SLOW) if sum(latency_histogram) >= _FEW and is_measure else None
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
        # Fractions of answers are carried over to the next sample: few answers arrive between two samples.
        counted = {}
        for side, value in (("k", slow), ("n", total)):
            value = value * part + guard_evidence.mark(marks, f"{name}.rest.{side}")
            counted[side] = int(value)
            marks[f"{name}.rest.{side}"] = value - counted[side]
        updated = sequential_test.more_often_than(guard_evidence.known(marks, name), counted["k"], counted["n"], SLOW, ALPHA)
        guard_evidence.keep(marks, name, updated)


def _is_measure(rollout: ServiceRollout, measured: ServiceMeasurements) -> bool:
    """Return whether the old revision's latency is comparable: requests that it refuses or fails are answered fast."""
    old = looks.unsuccessful(measured, rollout.source, _WINDOW)
    new = looks.unsuccessful(measured, rollout.target, _WINDOW)
    return old is None or old <= (new or 0.0) + LESS


def _slower_bound(guard: RolloutGuard, marks: Marks) -> float | None:
    usual = marks.get("slower.old")
    factor = quantity.number(guard.slower)
    return usual * factor if factor and usual is not None else None


def _p95_bound(guard: RolloutGuard, usual: float | None) -> float | None:
    """Return the bound of the document; None while the old revision exceeds it, too: then the load is the cause."""
    if guard.p95 is None:
        return None
    bound = quantity.seconds(guard.p95)
    return None if usual is not None and usual > bound else bound


def _slow(service: ServiceState, rollout: ServiceRollout, marks: Marks, measured: ServiceMeasurements) -> GuardVerdict | None:
    guard = service.spec.rollout.guard
    percentile = looks.quantile(looks.histogram(measured, rollout.target, _WINDOW), 1.0 - SLOW)
    mine = f"p95 of r{rollout.target} is {'unknown' if percentile is None else quantity.show_seconds(percentile)}"
    old = f"that of r{rollout.source} {quantity.show_seconds(marks['slower.old'])}" if "slower.old" in marks else ""
    if guard.p95 and guard_evidence.speaks(marks, "p95"):
        return GuardVerdict("p95", f"{mine}{', ' + old if old else ''}; the limit is {guard.p95}")
    if quantity.number(guard.slower) and guard_evidence.speaks(marks, "slower"):
        return GuardVerdict("slower", f"{mine}, {old}; allowed is {guard.slower} times as much")
    return None


def _count_reports(marks: Marks, guard: RolloutGuard, mine: RevisionLoad, old: RevisionLoad) -> None:
    if guard.metric is None:
        return
    for side, load in (("new", mine), ("old", old)):
        count, total, squares = load.outcomes.get(guard.metric.name, (0, 0.0, 0.0))
        if count <= 0:
            continue
        previous = reports(marks, side)
        added = (previous.count + count, previous.total + total, previous.squares + squares)
        if all(number.finite(value) is not None for value in added):
            marks.update(zip((f"{METRIC}{side}.{name}" for name in _SUMS), added, strict=True))
        else:
            marks[LEFT_OUT] = guard_evidence.mark(marks, LEFT_OUT) + count


def reports(marks: Mapping[str, float], side: str) -> MetricReports:
    """Return the metric's sums for the `new` or `old` revision since the shares last changed; empty where they are not finite."""
    sums = [number.finite(marks.get(f"{METRIC}{side}.{name}", 0.0)) for name in _SUMS]
    finite_sums = [value for value in sums if value is not None]
    return MetricReports(*finite_sums) if len(finite_sums) == len(_SUMS) and finite_sums[0] >= 0 else MetricReports()


def comparison(service: ServiceState, rollout: ServiceRollout) -> sequential_test.MeanDifference | None:
    """Return the difference of the metric, new minus old, with its confidence interval."""
    metric = service.spec.rollout.guard.metric
    if metric is None:
        return None
    # Every step is a separate test, so alpha is divided to keep the promised confidence overall.
    test_count = max(1, len(service.spec.rollout.steps)) + 1
    alpha = max(1e-9, 1.0 - quantity.percent(metric.confidence)) / test_count
    return sequential_test.difference(reports(rollout.marks, "new"), reports(rollout.marks, "old"), alpha)


def _metric(service: ServiceState, rollout: ServiceRollout, marks: Marks) -> GuardVerdict | None:
    metric = service.spec.rollout.guard.metric
    difference_found = comparison(service, ServiceRollout(rollout.source, rollout.target, marks=marks))
    if metric is None or difference_found is None:
        return None
    is_worse = difference_found.high < 0 if metric.better == "higher" else difference_found.low > 0
    if not is_worse:
        return None
    new, old = reports(marks, "new"), reports(marks, "old")
    mine = f"{metric.name} of r{rollout.target} is {new.mean:.4g} ({new.count:.0f} reports)"
    other = f"that of r{rollout.source} {old.mean:.4g} ({old.count:.0f})"
    return GuardVerdict(
        "metric",
        f"{mine}, {other}; {metric.better} is better; the new revision is worse with {metric.confidence} confidence",
    )
