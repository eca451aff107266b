"""Services on a virtual clock: bad versions, load and the rules of other autoscalers."""

import itertools
import re
from dataclasses import replace

import pytest

from fairway.plan.service import autoscaler, service_command
from fairway.simulation.service import load_shape
from fairway.simulation.service.autoscaler_rule import HpaRule, KpaRule
from fairway.simulation.service.service_result import outcome, recovery
from fairway.simulation.service.simulated_service import SimulatedService
from fairway.simulation.service.version_behaviour import VersionBehaviour
from fairway.spec.service import ServiceSpec
from fairway.state.service import ReplicaPhase, RolloutPhase

GOOD = VersionBehaviour(errors=0.001)
BAD = {
    "crash": replace(GOOD, crashes=True),
    "errors": replace(GOOD, errors=0.03),
    "slower": replace(GOOD, rate=GOOD.rate / 3),
    "metric": replace(GOOD, good=0.8),
}


def document(number=1, strategy="canary", **fields):
    policy = {"strategy": strategy, "guard": {"metric": {"name": "accuracy"}}}
    given = {"model": f"m@{number}", "replicas": {"min": 1, "max": 20}, "objective": {"p95": "1s"}, "rollout": policy}
    return ServiceSpec.model_validate({**given, **fields})


def released(version, strategy, seconds, rate=30.0, seed=3):
    world = SimulatedService(load_shape.steady(rate), seed=seed, tick=1.0)
    world.apply(document(1, strategy), GOOD)
    world.run(120)
    world.moments.clear()
    world.apply(document(2, strategy), version)
    world.run(seconds)
    return world


@pytest.mark.parametrize("guard", sorted(BAD))
@pytest.mark.parametrize("strategy", ["canary", "rolling"])
def test_a_bad_version_is_sent_back_by_the_right_guard(guard, strategy):
    world = released(BAD[guard], strategy, 400)
    release = world.service.rollout
    assert release.phase is RolloutPhase.ROLLED_BACK
    assert release.reason.startswith(f"{guard}: ")
    assert {replica.revision for replica in world.replicas if replica.phase is ReplicaPhase.READY} == {1}
    assert world.service.stable == 1


@pytest.mark.parametrize("guard", ["crash", "errors", "slower"])
def test_a_shadow_is_judged_by_its_copies(guard):
    """Its answers reach no client."""
    world = released(BAD[guard], "shadow", 400)
    assert world.service.rollout.reason.startswith(f"{guard}: ")
    assert world.service.rollout.marks.get("share", 0.0) == 0.0
    assert outcome(world, 1.0).late < 0.001


class Quiet:
    """A canary of two steps with little traffic: one request in two seconds."""

    def __init__(self, version, rate=0.5, **policy):
        self.world = SimulatedService(load_shape.steady(rate), seed=4, tick=1.0)
        steps = [{"to": "20%", "for": "1m"}, {"to": "50%", "for": "1m"}]
        self.policy = {"strategy": "canary", "steps": steps, **policy}
        self.world.apply(document(1, rollout=self.policy), GOOD)
        self.world.run(600)
        self.world.apply(document(2, rollout=self.policy), version)

    @property
    def release(self):
        return self.world.service.rollout


def test_a_step_waits_for_enough_answers_and_says_how_many_it_has():
    quiet = Quiet(GOOD)
    quiet.world.run(200)
    assert quiet.release.step == 0
    assert re.fullmatch(r"waits for 50 answers of r2, has \d+", quiet.release.reason)
    quiet.world.run(1200)
    assert quiet.release.phase is RolloutPhase.DONE
    events = {what: time for time, _, what in quiet.world.events if what.startswith("r2")}
    assert events["r2 gets 50% of the traffic"] - events["r2 gets 20% of the traffic"] > 300


@pytest.mark.parametrize("guard", ["errors", "slower"])
def test_a_bad_version_is_found_out_though_hardly_anybody_asks(guard):
    bad = {"errors": replace(GOOD, errors=0.3), "slower": replace(GOOD, rate=GOOD.rate / 4)}
    timed = Quiet(bad[guard], rate=0.15, requests=0)
    timed.world.run(140)
    assert timed.release.marks["share"] == 1.0, "time alone would have let it in"
    quiet = Quiet(bad[guard], rate=0.15)
    quiet.world.run(1800)
    assert quiet.release.phase is RolloutPhase.ROLLED_BACK
    assert quiet.release.reason.startswith(f"{guard}: ")
    assert quiet.release.marks["share"] < 1.0


def test_a_step_that_nobody_asks_is_held_after_its_patience_and_a_person_lets_it_go_on():
    quiet = Quiet(GOOD, rate=0.0, patience="5m")
    quiet.world.run(380)
    assert quiet.release.phase is RolloutPhase.PAUSED
    assert quiet.release.reason.startswith("waited 5m longer than its step for 50 answers of r2, has 0; `fairway rollout resume`")
    assert ("RolloutPaused", "r2 waited 5m longer than its step for 50 answers of r2, has 0") in [
        event[1:] for event in quiet.world.events
    ]
    quiet.world.change(lambda service: service_command.resumed(service, quiet.world.now))
    quiet.world.run(20)
    assert (quiet.release.step, quiet.release.reason) == (1, "")
    quiet.world.run(400)
    assert quiet.release.phase is RolloutPhase.PAUSED


def test_a_step_that_nobody_asks_goes_on_where_the_document_says_so():
    quiet = Quiet(GOOD, rate=0.0, patience="2m", unjudged="continue")
    quiet.world.run(500)
    assert quiet.release.phase is RolloutPhase.DONE


def test_a_metric_that_nobody_tells_is_waited_for_too():
    quiet = Quiet(GOOD, rate=5.0, guard={"metric": {"name": "clicks"}}, patience="2m")
    quiet.world.run(120)
    assert quiet.release.reason == "waits for 50 reports of clicks of both revisions, has 0"
    quiet.world.run(120)
    assert quiet.release.phase is RolloutPhase.PAUSED


@pytest.mark.parametrize("strategy", ["rolling", "blue-green"])
def test_a_good_version_comes_in_without_a_late_answer(strategy):
    world = released(GOOD, strategy, 300)
    assert world.service.rollout.phase is RolloutPhase.DONE
    assert outcome(world, 1.0).late < 0.001
    assert world.held == 0


def test_nothing_is_lost_while_daemon_router_and_replicas_are_killed_during_a_release():
    world = SimulatedService(load_shape.steady(30.0), seed=5, tick=1.0)
    world.apply(document(1, "rolling"), GOOD)
    world.run(120)
    world.apply(document(2, "rolling"), GOOD)
    for kill in (world.restart_daemon, world.restart_router, lambda: world.kill(world.replicas[-1].name)):
        world.run(14)
        kill()
    world.run(300)
    assert world.service.rollout.phase is RolloutPhase.DONE
    assert world.expired == 0
    answered = sum(moment.answered for moment in world.moments)
    waiting = sum(pool.queue for pool in world._pools.values()) + world.held
    assert sum(moment.arrived for moment in world.moments) == answered + waiting


def test_from_zero_and_back():
    """The first version proves that it works, waits for `idle`, and is stopped; a request starts it again."""
    world = SimulatedService(lambda time: 5.0 if 130 <= time < 160 else 0.0, seed=1)
    world.apply(document(replicas={"min": 0, "max": 4}, scaling={"idle": "1m"}), GOOD)
    world.run(20)
    assert (world.service.scale.wanted, world.service.scale.rule) == (1, "idle")
    world.run(100)
    assert (world.service.scale.wanted, world.service.scale.rule) == (0, "zero")
    assert [replica for replica in world.replicas if replica.phase is not ReplicaPhase.GONE] == []
    world.run(60)
    assert sum(moment.answered for moment in world.moments) == sum(moment.arrived for moment in world.moments)
    world.run(120)
    assert [replica for replica in world.replicas if replica.phase is not ReplicaPhase.GONE] == []
    assert world.service.scale.rule == "zero"


def burst(rule, cold_start=2.0):
    world = SimulatedService(load_shape.burst(20.0, 5.0, 400.0, 800.0), seed=1, rule=rule)
    world.apply(document(replicas={"min": 1, "max": 100}), VersionBehaviour(cold_start=cold_start))
    world.run(800)
    return recovery(world.moments, 400.0, 800.0, 1.0)


def test_a_burst_is_over_four_times_sooner_than_with_the_rule_of_kubernetes():
    assert burst(autoscaler.decide) <= burst(HpaRule()) / 4


def swings(rule):
    world = SimulatedService(lambda time: 60.0 if time % 60 < 30 else 8.0, seed=1, rule=rule)
    world.apply(document(replicas={"min": 1, "max": 100}), VersionBehaviour(cold_start=10.0))
    world.run(600)
    return outcome(world, 1.0)


def test_load_that_goes_on_and_off_does_not_make_the_number_swing():
    ours, knative = swings(autoscaler.decide), swings(KpaRule())
    assert ours.reversals <= knative.reversals / 5
    assert ours.replica_hours <= 1.2 * knative.replica_hours


def test_the_rules_of_others_keep_their_own_steps():
    """HPA: at most doubles, or adds four, in 15 s, and scales down only after five minutes. KPA: 1 of 0.7."""
    world = SimulatedService(load_shape.burst(5.0, 20.0, 100.0, 130.0), seed=1, rule=HpaRule())
    world.apply(document(replicas={"min": 1, "max": 100}), VersionBehaviour())
    world.run(400)
    numbers = [moment.wanted for moment in world.moments]
    grown = [(before, after) for before, after in itertools.pairwise(numbers) if after > before]
    assert grown
    assert all(after <= max(2 * before, before + 4) for before, after in grown[1:])
    assert numbers[-1] == max(numbers[: len(numbers) * 2 // 5 + 60])
    steady = SimulatedService(load_shape.steady(21.0), seed=1, rule=KpaRule())
    steady.apply(document(replicas={"min": 1, "max": 100}), VersionBehaviour())
    steady.run(400)
    assert steady.service.scale.wanted in (3, 4)


def test_a_slower_version_for_which_the_limit_is_too_few_does_not_take_over():
    """No guard fails here; the old replicas stay, and the release reports why it does not end."""
    policy = {"strategy": "blue-green", "guard": {"slower": "0"}}
    world = SimulatedService(load_shape.steady(20.0), seed=2, tick=1.0)
    world.apply(document(1, replicas={"min": 1, "max": 4}, rollout=policy), GOOD)
    world.run(60)
    world.apply(document(2, replicas={"min": 1, "max": 4}, rollout=policy), replace(GOOD, rate=GOOD.rate / 3))
    world.run(200)
    assert world.service.rollout.phase is RolloutPhase.STEPPING
    assert world.service.rollout.reason.endswith("4 replicas, the maximum of the document, would not be enough")
    assert sum(replica.revision == 1 and replica.phase is ReplicaPhase.READY for replica in world.replicas) >= 3
