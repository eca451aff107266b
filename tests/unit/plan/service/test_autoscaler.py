"""Every rule for the number of replicas, one by one."""

from dataclasses import replace
from itertools import pairwise

import pytest

from fairway.plan.service import autoscaler
from fairway.plan.service.service_plan import ServiceMeasurements, ServiceSample
from fairway.state.service import ScaleDecision
from fairway.state.serving.load import ReplicaLoad, RevisionLoad, RouteLoad
from fairway.testing.builder.service_builder import a_service as serving
from fairway.testing.builder.service_builder import a_service_spec as spec_of
from fairway.testing.builder.service_builder import latency_bars
from fairway.testing.builder.service_builder import service_looks as looks

READY = {1: frozenset({"r1-1"})}


def decide(service, measured, now, ready=READY, *, may_shrink=True):
    return autoscaler.decide(service, ready, {1: 1.0}, measured, now, may_shrink=may_shrink)


def with_scale(service, **fields):
    return replace(service, scale=replace(service.scale, **fields))


def test_the_rate_sets_the_number_with_its_sentence():
    scale = decide(serving(), looks(60, 30.0), 60.0)
    assert (scale.wanted, scale.rule) == (4, "rate")
    assert scale.why == "30 requests/s over 60 s; a replica answers 10 per busy second and should be busy 75% of the time"


def test_six_seconds_count_when_they_are_more_than_chance():
    service = with_scale(serving(), service_rate={1: 10.0})
    measured = looks(60, 7.0, replicas=())
    loud = looks(6, 40.0, start=62, measured=measured, epoch="b", replicas=())
    assert decide(service, loud, 68.0).wanted == 6
    little_more = looks(6, 9.0, start=62, measured=measured, epoch="b", replicas=())
    assert decide(service, little_more, 68.0).wanted == 1


def test_a_backlog_adds_replicas_and_at_most_triples_them():
    def waiting(count):
        measured = looks(60, 7.0)
        last = measured.samples[-1]
        loads = {name: replace(load, queue=count) for name, load in last.replicas.items()}
        return ServiceMeasurements((*measured.samples[:-1], replace(last, replicas=loads)))

    scale = decide(serving(), waiting(200), 60.0)
    assert (scale.wanted, scale.rule) == (2, "backlog")
    assert decide(serving(), waiting(5000), 60.0).wanted == 3


def test_a_fallen_rate_counts_only_when_it_was_measured_at_work():
    service = with_scale(serving(), service_rate={1: 20.0})
    idle = looks(60, 2.0, served=10.0, busy=0.2)
    assert decide(service, idle, 60.0).service_rate == {1: 20.0}
    at_work = looks(60, 8.0, served=10.0, busy=0.8)
    assert decide(service, at_work, 60.0).service_rate == {1: pytest.approx(10.0, rel=0.01)}
    faster = looks(60, 8.0, served=40.0, busy=0.2)
    assert decide(service, faster, 60.0).service_rate == {1: pytest.approx(40.0, rel=0.01)}


def test_replicas_that_are_not_ready_never_enter_the_measure():
    measured = looks(60, 30.0, replicas=("r1-1", "r1-2"))
    loads = {
        sample.time: {**sample.replicas, "r1-9": ReplicaLoad(sample.time, busy_seconds=sample.time)}
        for sample in measured.samples
    }
    warming = ServiceMeasurements(tuple(replace(sample, replicas=loads[sample.time]) for sample in measured.samples))
    ready = {1: frozenset({"r1-1", "r1-2"})}
    assert decide(serving(), warming, 60.0, ready) == decide(serving(), measured, 60.0, ready)


def test_the_service_rate_is_weighed_by_the_parts_of_the_traffic():
    assert autoscaler.cost({1: 10.0, 2: 5.0}, {1: 0.5, 2: 0.5}) == pytest.approx(0.15)
    assert autoscaler.cost({1: 10.0}, {1: 0.5, 2: 0.5}) == pytest.approx(0.1)
    assert autoscaler.cost({}, {1: 1.0}) is None


def run(service, rate, begin, seconds, ready=READY, measured=None, **options):
    """Return the decided numbers of replicas, one per measurement."""
    measured = measured or ServiceMeasurements()
    numbers = []
    for step in range(int(seconds / 2) + 1):
        now = begin + 2.0 * step
        measured = measured.add(
            looks(0, 0.0).samples[0].__class__(now, RouteLoad(now, epoch=str(begin), arrived=round(rate * 2 * step)))
        )
        service = replace(service, scale=decide(service, measured, now, ready, **options))
        numbers.append(service.scale.wanted)
    return service, numbers, measured


def test_it_goes_down_after_the_window_a_fifth_at_a_time():
    begun = with_scale(serving(10), service_rate={1: 10.0})
    service, numbers, _ = run(begun, 7.0, 1000.0, 298)
    assert set(numbers) == {10}
    assert service.scale.rule == "hold"
    assert "were needed within the last 5m" in service.scale.why
    service, numbers, _ = run(begun, 7.0, 1000.0, 400)
    steps = [before - after for before, after in pairwise(numbers) if after != before]
    assert steps[0] == 2
    assert max(steps) == 2
    assert numbers[-1] == 2


def test_a_boundary_is_not_crossed_to_and_fro():
    """At 7.4 requests per second, a second replica is barely needed; scaling down requires a margin of a tenth."""
    service = with_scale(serving(2), service_rate={1: 10.0})
    _, numbers, _ = run(service, 7.4, 1000.0, 500)
    assert set(numbers) == {2}
    _, numbers, _ = run(service, 6.5, 1000.0, 500)
    assert numbers[-1] == 1


def test_after_a_restart_nothing_goes_before_the_window_is_full_again():
    service = with_scale(serving(10), service_rate={1: 10.0})
    service, _, _ = run(service, 7.0, 1000.0, 280)
    _, numbers, _ = run(service, 7.0, 1285.0, 290)
    assert set(numbers) == {10}
    _, numbers, _ = run(service, 7.0, 1285.0, 400)
    assert numbers[-1] == 2


def test_the_window_is_at_least_ten_cold_starts():
    service = serving()
    slow = replace(service, revisions=(replace(service.revisions[0], cold_start=60.0),))
    assert autoscaler.hold_seconds(service) == 300.0
    assert autoscaler.hold_seconds(slow) == 600.0


def test_bounds_and_the_floor_have_the_last_word():
    busy = looks(60, 500.0)
    scale = decide(serving(), busy, 60.0)
    assert (scale.wanted, scale.rule) == (10, "max")
    assert "the load asks for 67" in scale.why
    quiet = looks(60, 1.0, busy=0.1)
    assert decide(serving(2, replicas={"min": 2, "max": 9}), quiet, 60.0).rule == "min"
    floored = replace(serving(), floor=5)
    assert (decide(floored, quiet, 60.0).wanted, decide(floored, quiet, 60.0).rule) == (5, "floor")
    assert decide(serving(replicas={"min": 3, "max": 3}), busy, 60.0).rule == "fixed"


def test_a_release_lets_it_grow_but_not_shrink():
    service = with_scale(serving(6), service_rate={1: 10.0})
    service, numbers, _ = run(service, 7.0, 1000.0, 500, may_shrink=False)
    assert set(numbers) == {6}
    assert service.scale.rule == "release"
    _, numbers, _ = run(service, 60.0, 2000.0, 60, may_shrink=False)
    assert numbers[-1] == 8


def late(seconds, rate, p95, busy=0.8):
    """Return measurements of a service with this latency."""
    measured = looks(seconds, rate, busy=busy)
    samples = []
    for sample in measured.samples:
        load = RevisionLoad(latency=latency_bars({p95: round(rate * sample.time)}))
        samples.append(replace(sample, route=replace(sample.route, revisions={1: load})))
    return ServiceMeasurements(tuple(samples))


def test_a_missed_objective_adds_a_fifth_where_replicas_are_busy():
    service = serving(objective={"p95": "50ms"})
    scale = decide(service, late(60, 7.0, 0.4), 60.0)
    assert (scale.wanted, scale.rule) == (2, "latency")
    assert "the objective is 50ms; replicas are busy 80%" in scale.why
    assert decide(service, late(60, 7.0, 0.01), 60.0).wanted == 1
    idle = decide(service, late(60, 2.0, 0.4, busy=0.2), 60.0)
    assert (idle.wanted, idle.rule) == (1, "rate")
    just_grown = with_scale(service, changed=55.0)
    assert decide(just_grown, late(60, 7.0, 0.4), 60.0).wanted == 1


def test_an_idle_service_goes_to_zero_and_the_first_request_wakes_it():
    service = with_scale(serving(1, replicas={"min": 0, "max": 4}), service_rate={1: 10.0})
    service, numbers, measured = run(service, 0.0, 1000.0, 298)
    assert numbers[-1] == 1
    assert service.scale.rule == "idle"
    service, numbers, measured = run(service, 0.0, 1000.0, 320)
    assert numbers[-1] == 0
    assert service.scale.rule == "zero"
    held = measured.add(ServiceSample(1400.0, RouteLoad(1400.0, epoch="1000.0", held=40, arrived=40)))
    scale = decide(service, held, 1400.0, {})
    assert scale.wanted == 1


def test_the_first_request_of_all_wakes_it_though_nothing_was_measured():
    service = serving(0, replicas={"min": 0, "max": 4})
    asleep = decide(service, ServiceMeasurements(), 0.0, {})
    assert (asleep.wanted, asleep.rule) == (0, "zero")
    measured = ServiceMeasurements((ServiceSample(5.0, RouteLoad(5.0, held=2, arrived=2)),))
    scale = decide(service, measured, 5.0, {})
    assert (scale.wanted, scale.rule) == (1, "held")
    assert "2 requests wait" in scale.why


def test_quiet_before_a_restart_does_not_count():
    service = with_scale(serving(1, replicas={"min": 0, "max": 4}), service_rate={1: 10.0})
    service, _, _ = run(service, 0.0, 1000.0, 290)
    service, numbers, _ = run(service, 0.0, 1295.0, 200)
    assert numbers[-1] == 1


def test_a_larger_number_than_the_document_now_allows_goes_at_once():
    service = replace(with_scale(serving(9), service_rate={1: 10.0}), spec=spec_of(replicas={"min": 1, "max": 4}))
    scale = decide(service, looks(60, 60.0), 60.0)
    assert scale.wanted == 4


@pytest.mark.parametrize(
    "rule", ["rate", "backlog", "latency", "hold", "pace", "min", "max", "fixed", "floor", "zero", "release"]
)
def test_every_rule_says_what_would_change_the_number(rule):
    assert autoscaler.would_change(spec_of(), ScaleDecision(rule=rule))


def test_what_is_remembered_does_not_change_with_every_look():
    service = with_scale(serving(4), service_rate={1: 10.0}, recommendations=((0.0, 4),))
    service, _, measured = run(service, 28.0, 1000.0, 60)
    values = set()
    for step in range(1, 5):
        now = 1060.0 + 2 * step
        measured = measured.add(
            ServiceSample(now, RouteLoad(now, epoch="1000.0", arrived=round(28.0 * (60 + 2 * step)) + step % 2))
        )
        service = replace(service, scale=decide(service, measured, now))
        values.add(service.scale.why)
    assert len(values) == 1
