"""A service is planned whatever was measured, and whatever is stored of it: no number stops a turn."""

import math
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fairway.plan.service import (
    autoscaler,
    measurement,
    replica_fleet,
    replica_split,
    resource_use,
    rollout,
    route,
    service_command,
)
from fairway.plan.service.guard import rollout_guard, sequential_test
from fairway.plan.service.measurement import ServiceMeasurements, ServiceSample
from fairway.plan.service.service_plan import advance
from fairway.state.service import ReplicaPhase, RolloutPhase, ServiceRecord, ServiceRollout
from fairway.state.serving.load import LATENCY_BOUNDS, BackendLoad, ReplicaLoad, ReplicaUse, RevisionLoad, RouteLoad
from fairway.state.serving.route import WHOLE
from fairway.stores.sqlite import codec
from fairway.testing.builder.service_builder import a_replica, a_service, apply_version, latency_bars

BARS = len(LATENCY_BOUNDS) + 1
STEEP = (math.nan, math.inf, -math.inf, 1.7e308, -1.7e308, 1e308, 1e200, 5e-324, -5e-324, 2.0**63, 0.0, -0.0, 1.0, 1e-6)
FLOATS = st.sampled_from(STEEP) | st.floats() | st.floats(0, 1e4)
COUNTS = (
    st.sampled_from((0, 1, 60, 10**6, 2**53 + 1, 2**62, 2**63 - 1, 2**64, -1, -(2**63)))
    | st.integers(0, 1000)
    | st.integers(-(2**64), 2**64)
)
TIMES = st.floats(0, 700) | FLOATS
REVISIONS = st.integers(1, 3)
OUTCOMES = st.dictionaries(st.just("clicks"), st.tuples(COUNTS, FLOATS, FLOATS))
LATENCIES = (
    st.just(()) | st.lists(COUNTS, min_size=BARS, max_size=BARS).map(tuple) | st.lists(COUNTS, max_size=BARS + 3).map(tuple)
)
REVISION_LOADS = st.builds(
    RevisionLoad, COUNTS, COUNTS, COUNTS, COUNTS, COUNTS, LATENCIES, FLOATS, COUNTS, COUNTS, OUTCOMES, COUNTS
)
NAMES = st.sampled_from(("r1-1", "r1-2", "r2-3"))
BACKENDS = st.dictionaries(NAMES, st.builds(BackendLoad, COUNTS, COUNTS, COUNTS, COUNTS, FLOATS), max_size=3)
ROUTES = st.builds(
    RouteLoad, TIMES, st.sampled_from("ab"), COUNTS, st.none() | TIMES, COUNTS, COUNTS,
    st.dictionaries(REVISIONS, REVISION_LOADS, max_size=2), BACKENDS,
)  # fmt: skip
REPLICA_LOADS = st.builds(ReplicaLoad, TIMES, COUNTS, COUNTS, COUNTS, FLOATS, COUNTS, COUNTS, COUNTS, COUNTS, COUNTS)
USES = st.builds(ReplicaUse, TIMES, st.none() | FLOATS, st.none() | FLOATS, st.none() | FLOATS)
SAMPLES = st.builds(
    ServiceSample,
    TIMES,
    st.none() | ROUTES,
    st.dictionaries(NAMES, REPLICA_LOADS, max_size=3),
    st.dictionaries(NAMES, USES, max_size=3),
)


@st.composite
def looks(draw):
    """Draw measurements of a service, some raw and some as they are stored."""
    samples = draw(st.lists(SAMPLES, max_size=5))
    if draw(st.booleans()):
        return ServiceMeasurements(tuple(samples))
    found = ServiceMeasurements()
    for sample in samples:
        found = found.add(sample)
    return found


MARKS = st.dictionaries(
    st.sampled_from(
        (
            *(
                rollout_guard.LOOKED,
                rollout_guard.PAUSED_AT,
                rollout_guard.HELD,
                rollout.SHARE,
                rollout.SEEN,
                rollout.ACCEPTED,
                rollout.MIRROR,
            ),
            *(f"errors.{name}" for name in ("n", "k", "old.n", "old.k")),
            *(f"{rollout_guard.METRIC}{side}.{name}" for side in ("new", "old") for name in ("n", "sum", "squares")),
            *(f"{name}:{ratio}" for name in ("errors", "allowed", "slower", "p95") for ratio in sequential_test.RATIOS),
            "slower.old",
        )
    ),
    FLOATS,
)
STRATEGIES = ("rolling", "blue-green", "canary", "ab", "shadow")


@st.composite
def services(draw):
    """Draw a service in any state, with extreme measurements in what a daemon may have stored."""
    metric = {"name": "clicks", "better": draw(st.sampled_from(("higher", "lower")))}
    guard = {"metric": metric, "p95": draw(st.sampled_from((None, "50ms")))}
    policy = {"strategy": draw(st.sampled_from(STRATEGIES)), "guard": guard, "requests": 20}
    fields = {"rollout": policy, "objective": {"p95": "100ms"}, "replicas": {"min": draw(st.integers(0, 2)), "max": 10}}
    service = a_service(draw(st.integers(0, 10)), **fields)
    if draw(st.booleans()):
        service = apply_version(service, 2, 100.0, **fields)
        phase = draw(st.sampled_from((RolloutPhase.STARTING, RolloutPhase.STEPPING, RolloutPhase.PAUSED)))
        marks = draw(MARKS)
        marks |= {name: draw(st.floats(0, 1)) for name in (rollout.SHARE, rollout.MIRROR) if name in marks}
        service = replace(service, rollout=replace(service.rollout, phase=phase, step=draw(st.integers(-1, 2)), marks=marks))
    rates = draw(st.dictionaries(REVISIONS, FLOATS, max_size=3))
    recommendations = tuple(draw(st.lists(st.tuples(TIMES, st.integers(0, 10)), max_size=3)))
    scale = replace(
        service.scale, service_rate=rates, recommendations=recommendations, backlogged=(draw(TIMES), 3), changed=draw(TIMES),
        quiet_since=draw(st.none() | TIMES),
    )  # fmt: skip
    revisions = tuple(
        replace(
            revision, cold_start=draw(st.none() | FLOATS), failures=draw(st.sampled_from((0, 2, 5000))), failed_at=draw(TIMES)
        )
        for revision in service.revisions
    )
    return replace(service, scale=scale, revisions=revisions)


@st.composite
def fleets(draw):
    """Draw replicas in any phase."""
    phases = draw(st.lists(st.sampled_from(ReplicaPhase), max_size=4))
    return [
        a_replica(
            place,
            revision=1 + place // 3,
            phase=phase,
            since=draw(TIMES),
            started=draw(st.none() | TIMES),
            failed=draw(st.booleans()),
        )
        for place, phase in enumerate(phases, start=1)
    ]


MANY = settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])


@MANY
@given(services(), fleets(), looks(), st.floats(0, 1000))
def test_a_service_is_planned_whatever_was_measured(service, replicas, seen, now):
    plan = advance(service, replicas, seen, now)
    assert 0 <= plan.service.scale.wanted <= max(service.spec.replicas.max, service.scale.wanted)
    assert all(measurement.is_rate(rate) for rate in plan.service.scale.service_rate.values())
    assert sum(weight for _, weight in plan.routes.weights) in (0, WHOLE)
    assert len(plan.start) < 100
    codec.unpack_service(codec.pack(ServiceRecord(plan.service, tuple(replicas))))
    again = advance(plan.service, replicas, seen, now + 1.0)
    assert 0 <= again.service.scale.wanted <= max(service.spec.replicas.max, service.scale.wanted)


@MANY
@given(services(), looks(), st.floats(0, 1000))
def test_every_question_about_a_service_has_an_answer(service, seen, now):
    ready = {1: frozenset({"r1-1", "r1-2"}), 2: frozenset({"r2-3"})}
    for window in (6.0, 60.0, 600.0):
        rate = measurement.arrival_rate(seen, window)
        assert rate is None or (math.isfinite(rate) and rate >= 0)
        done = measurement.work(seen, frozenset({"r1-1", "r2-3"}), window)
        assert done.rate is None or measurement.is_rate(done.rate)
        assert done.utilisation is None or 0 <= done.utilisation <= 1
        bars = measurement.histogram(seen, None, window)
        assert len(bars) == BARS
        assert measurement.percentile(bars, 0.95) in (None, *LATENCY_BOUNDS)
    assert measurement.backlog(seen) >= 0
    assert measurement.is_quiet(seen) in (True, False)
    learnt = autoscaler.learnt(service, ready, seen)
    assert all(map(measurement.is_rate, learnt.values()))
    for shares in ({}, {1: 1.0}, {1: 0.5, 2: 0.5}, {1: 0.0}):
        signals = autoscaler.signals(service, ready, shares, seen)
        assert signals.cost is None or (math.isfinite(signals.cost) and signals.cost > 0)
        scale = autoscaler.decide(service, ready, shares, seen, now, may_shrink=True)
        assert scale.rule
        assert autoscaler.would_change(service.spec, scale)
    assert autoscaler.hold_seconds(service) >= 0
    use = resource_use.of_replicas(seen, frozenset({"r1-1"}))
    for found in (resource_use.guard(service.spec.scaling, use, 1), resource_use.busy(service.spec.scaling, use, 1)):
        assert found is None or (found.need >= 0 and found.why)
    assert isinstance(resource_use.short_of_memory(service.spec.scaling, use), str)


@MANY
@given(services(), fleets(), looks(), st.floats(0, 1000))
def test_every_part_of_a_release_has_an_answer(service, replicas, seen, now):
    shares = rollout.shares(service, now)
    parts = replica_split.parts(service, shares)
    ready = {number: len(names) for number, names in replica_fleet.ready_names(replicas).items()}
    replica_split.in_place(service, parts, ready, 2)
    weights = route.weights(service, ready, shares, parts)
    assert sum(weight for _, weight in weights) in (0, WHOLE)
    assert measurement.is_rate(replica_split.speed(service, 1))
    replica_fleet.learn(service, replicas, now)
    replica_fleet.orders(service, replicas, parts, seen, now)
    rollout.judged(service, replicas, seen, now)
    rollout.stepped(service, replicas, now)
    rollout.wake_at(service)
    if service.rollout:
        marks, _ = rollout_guard.of_answers(service, service.rollout, seen)
        rollout_guard.of_replicas(service, service.rollout, replicas, now)
        for kept in (marks, service.rollout.marks):
            known = replace(service.rollout, marks=kept)
            assert all(isinstance(sentence, str) for sentence in rollout_guard.findings(service, known))
            rollout_guard.comparison(service, known)
            rollout.unseen(service, known)
            assert rollout_guard.answers(kept) >= 0
        assert all(
            math.isfinite(value)
            for name, value in marks.items()
            if ":" in name or name.startswith((rollout_guard.METRIC, "errors"))
        )
        held = service.rollout.phase is RolloutPhase.PAUSED
        if rollout.is_active(service.rollout):
            service_command.resumed(service, now) if held else service_command.paused(service, now)


EVIDENCE = st.dictionaries(st.sampled_from(sequential_test.RATIOS), FLOATS)
ALPHAS = st.floats(1e-12, 0.5)


@MANY
@given(EVIDENCE, COUNTS, COUNTS, FLOATS, ALPHAS)
def test_evidence_of_one_side_stays_finite(evidence, count, total, usual, alpha):
    found = sequential_test.more_often_than(evidence, count, total, usual, alpha)
    assert all(map(math.isfinite, found.values()))
    assert math.isfinite(sequential_test.strength(found))
    assert not math.isnan(sequential_test.strength(evidence))


@MANY
@given(EVIDENCE, st.tuples(COUNTS, COUNTS), st.tuples(COUNTS, COUNTS), ALPHAS)
def test_evidence_of_both_sides_stays_finite(evidence, mine, other, alpha):
    found = sequential_test.more_often_than_beside(evidence, mine, other, alpha)
    assert all(map(math.isfinite, found.values()))
    assert math.isfinite(sequential_test.strength(found))


REPORTS = st.builds(sequential_test.MetricReports, FLOATS | COUNTS, FLOATS, FLOATS)


@MANY
@given(REPORTS, REPORTS, ALPHAS)
def test_a_difference_is_finite_or_not_known(new, old, alpha):
    assert isinstance(new.mean, float)
    assert new.variance >= 0
    difference = sequential_test.difference(new, old, alpha)
    assert difference is None or (math.isfinite(difference.value) and difference.low <= difference.value <= difference.high)


def test_outcomes_that_are_too_large_are_left_out_and_said():
    fields = {"rollout": {"strategy": "ab", "guard": {"metric": {"name": "clicks", "better": "higher"}}}}
    service = apply_version(a_service(1, **fields), 2, 0.0, **fields)
    seen = ServiceMeasurements()
    for look in range(60):
        total = 1e308 if look else 0.0
        loads = {
            number: RevisionLoad(
                answered=look, latency=latency_bars({0.01: look}), outcomes={"clicks": (look, total, total * total)}
            )
            for number in (1, 2)
        }
        seen = seen.add(ServiceSample(look * 2.0, RouteLoad(look * 2.0, epoch="a", revisions=loads)))
        marks, verdict = rollout_guard.of_answers(service, service.rollout, seen)
        service = replace(service, rollout=replace(service.rollout, marks=marks))
        assert verdict is None
    assert math.isfinite(sum(marks.values()))
    assert any("left out" in sentence for sentence in rollout_guard.findings(service, service.rollout))


def test_a_memory_of_infinite_outcomes_says_nothing_and_stops_nothing():
    fields = {"rollout": {"strategy": "ab", "guard": {"metric": {"name": "clicks", "better": "higher"}}}}
    service = apply_version(a_service(1, **fields), 2, 0.0, **fields)
    marks = {"metric.new.n": 500.0, "metric.new.sum": 1e308, "metric.new.squares": math.inf, "metric.old.n": 500.0}
    rollout = ServiceRollout(1, 2, marks=marks)
    assert rollout_guard.comparison(service, rollout) is None
    assert rollout_guard.of_answers(service, rollout, ServiceMeasurements((ServiceSample(1.0, None),)))[1] is None


def test_a_revision_that_fails_for_days_is_still_tried():
    revision = replace(a_service(1).revisions[0], failures=5000, failed_at=10.0)
    assert replica_fleet.not_before(revision) == 10.0 + replica_fleet.PAUSE_MOST


@pytest.mark.parametrize("rate", [0.0, -1.0, math.nan, math.inf, 5e-324])
def test_a_rate_that_is_none_is_as_if_it_were_not_known(rate):
    assert autoscaler.cost({1: rate}, {1: 1.0}) is None
    assert autoscaler.cost({1: rate, 2: 4.0}, {1: 0.5, 2: 0.5}) == 0.25
    service = replace(a_service(1), scale=replace(a_service(1).scale, service_rate={1: rate}))
    assert replica_split.speed(service, 1) == 1.0
