"""Memory that grows with the number of answers, and growth that levels off and is no leak."""

import math
from dataclasses import replace

import numpy as np
import pytest

from fairway.plan.service.guard import rollout_guard
from fairway.plan.service.guard.guard_evidence import GuardVerdict
from fairway.plan.service.guard.memory_leak_guard import verdict
from fairway.plan.service.measurement import ServiceMeasurements, ServiceSample
from fairway.state.service import ReplicaPhase
from fairway.state.serving.load import BackendLoad, ReplicaLoad, ReplicaUse, RouteLoad
from fairway.testing.builder.service_builder import a_replica, a_service, apply_version


def release(**guard):
    service = apply_version(a_service(2), 2, 0.0, rollout={"strategy": "canary", "guard": guard})
    return service, replace(service.rollout, step=0)


def watched(new, old=lambda answers: 0.3, *, seconds=300, rate=4.0, noise=0.001, seed=0, own=True, limit=True):
    """Return measurements of one replica per revision; `new` and `old` return its memory after so many answers."""
    chance = np.random.default_rng(seed)
    measured, use = ServiceMeasurements(), {}
    for step in range(int(seconds / 2)):
        now = 2.0 * step
        answers = {"r1-1": rate * 10 * now, "r2-2": rate * now}
        if step % 3 == 0:
            held = {"r1-1": old(answers["r1-1"] + 10_000), "r2-2": new(answers["r2-2"])}
            held = {name: value + float(chance.normal(0.0, noise)) for name, value in held.items()}
            use = {name: ReplicaUse(now, memory=value if limit else None, held=value * 1e9) for name, value in held.items()}
        loads = {name: ReplicaLoad(now, served=round(count)) for name, count in answers.items()} if own else {}
        backends = {name: BackendLoad(answered=round(count)) for name, count in answers.items()}
        measured = measured.add(ServiceSample(now, RouteLoad(now, epoch="a", backends=backends), loads, dict(use)))
    return measured


def leaking(rate=0.0004, start=0.25):
    return lambda answers: start + rate * answers


@pytest.mark.parametrize("own", [True, False])
@pytest.mark.parametrize("rate", [0.0002, 0.0005, 0.003])
def test_memory_that_grows_with_each_answer_speaks_with_both_numbers(rate, own):
    found = verdict(*release(), watched(leaking(rate), own=own))
    assert found is not None
    assert found.guard == "leak"
    assert "r2-2 went from" in found.reason
    assert "of its memory within" in found.reason
    assert "does not level off" in found.reason
    assert "r1-1 from 30% to 30%" in found.reason
    assert "allowed is 10% more" in found.reason


def test_it_speaks_before_the_limit_is_reached():
    for seconds in range(40, 600, 10):
        measured = watched(leaking(0.0005, 0.25), seconds=seconds)
        if verdict(*release(), measured):
            assert 0.25 + 0.0005 * 4.0 * seconds < 0.8
            return
    pytest.fail("it never spoke")


CACHES = {
    "a cache that fills": lambda answers: 0.25 + 0.3 * (1.0 - math.exp(-answers / 300.0)),
    "a small cache": lambda answers: 0.25 + min(0.09, 0.0005 * answers),
    "a warm-up": lambda answers: 0.25 + (0.2 if answers > 40 else 0.0),
    "a late large batch": lambda answers: 0.25 + (0.3 if answers > 900 else 0.0),
    "several larger batches": lambda answers: 0.25 + 0.1 * sum(answers > at for at in (10, 60, 400)),
    "keys that come again": lambda answers: 0.25 + 0.02 * answers**0.4,
    "nothing": lambda answers: 0.35,
}


@pytest.mark.parametrize("name", CACHES)
def test_what_levels_off_is_no_leak(name):
    for seconds in range(60, 600, 30):
        for seed in range(3):
            found = verdict(*release(), watched(CACHES[name], seconds=seconds, seed=seed, noise=0.002))
            assert found is None, f"{seconds}s: {found}"


def test_a_cache_that_the_old_version_has_full_is_none_either():
    assert verdict(*release(), watched(lambda answers: 0.2 + min(0.4, 0.0005 * answers), lambda _: 0.62)) is None


def test_growth_that_the_old_version_has_as_well_is_not_the_new_ones():
    both = leaking(0.0005)
    assert (
        verdict(*release(), watched(both, lambda answers: 0.1 + 0.00001 * answers + 0.0004 * (answers - 10_000) / 10)) is not None
    )
    assert verdict(*release(), watched(both, lambda answers: 0.05 + 0.0004 * (answers - 10_000))) is None


def test_what_the_document_allows_and_what_it_does_not_look_at():
    assert verdict(*release(leak="0%"), watched(leaking())) is None
    assert verdict(*release(leak="90%"), watched(leaking())) is None


def test_without_a_limit_it_is_measured_by_what_the_old_version_holds():
    assert verdict(*release(), watched(leaking(0.0008), limit=False)) is not None
    assert verdict(*release(), watched(leaking(0.0001), limit=False)) is None
    assert "of what a replica of r1 uses" in verdict(*release(), watched(leaking(0.0008), limit=False)).reason


def test_few_answers_and_few_looks_say_nothing():
    assert verdict(*release(), watched(leaking(0.05), rate=0.05, seconds=100)) is None
    assert verdict(*release(), watched(leaking(0.01), seconds=30)) is None
    assert verdict(*release(), ServiceMeasurements()) is None


def ended(number, revision=2, since=1.0, *, for_memory=False):
    gone = a_replica(number, revision, ReplicaPhase.GONE, since, failed=True, message="it ended")
    return replace(gone, out_of_memory=for_memory)


def test_kills_for_memory_are_named_as_the_cause():
    service, rollout = release()
    rollout = rollout_guard.with_ends(rollout, [ended(3, for_memory=True)])
    assert rollout_guard.of_replicas(service, rollout, [], 2.0) is None
    gone = [ended(3, for_memory=True), ended(4, since=90.0, for_memory=True)]
    rollout = rollout_guard.with_ends(rollout, gone)
    assert rollout_guard.with_ends(rollout, gone) is rollout
    found = rollout_guard.of_replicas(service, rollout, gone, 91.0)
    assert found == GuardVerdict(
        "crash", "2 replicas of r2 were killed for using too much memory; 0 of r1; 2 cause a rollback (r2-4: it ended)"
    )
    beside = rollout_guard.with_ends(rollout, [ended(1, 1, 95.0, for_memory=True)])
    assert rollout_guard.of_replicas(service, beside, gone, 96.0) is None


def test_replicas_that_end_now_and_then_are_counted_though_each_was_ready_for_long():
    service, rollout = release()
    for number in (3, 4):
        rollout = rollout_guard.with_ends(rollout, [ended(number, since=100.0 * number)])
        assert rollout_guard.of_replicas(service, rollout, [], 100.0 * number) is None
    rollout = rollout_guard.with_ends(rollout, [ended(5, since=500.0)])
    assert (
        "3 replicas of r2 ended by themselves during the release; 0 of r1"
        in rollout_guard.of_replicas(service, rollout, [], 501.0).reason
    )
    unlucky = rollout_guard.with_ends(rollout, [ended(1, 1, 510.0)])
    assert rollout_guard.of_replicas(service, unlucky, [], 511.0) is None
