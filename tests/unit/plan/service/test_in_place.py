"""Releases without room for one more replica."""

import pytest
from pydantic import ValidationError

from fairway.plan.service import service_command
from fairway.simulation.service import load_shape
from fairway.simulation.service.simulated_service import SimulatedService
from fairway.simulation.service.version_behaviour import VersionBehaviour
from fairway.spec.service import RolloutPolicy, ServiceSpec
from fairway.state.service import ReplicaPhase, RolloutPhase

GOOD = VersionBehaviour(errors=0.001)
STEPS = {"rolling": {}, "canary": {"steps": [{"to": "10%", "for": "20s"}, {"to": "75%", "for": "20s"}]}, "blue-green": {}}


def document(number, count, strategy="rolling", *, in_place=True):
    policy = {"strategy": strategy, **STEPS[strategy], "in_place": in_place, "guard": {"ready": "40s"}}
    given = {"model": f"m@{number}", "replicas": {"min": count, "max": count}, "rollout": policy, "grace": "5s"}
    return ServiceSpec.model_validate(given)


class Machine:
    """A service that fills its machine; records the fewest replicas that received requests."""

    def __init__(self, count, strategy="rolling", *, in_place=True):
        self.count, self.strategy, self.in_place = count, strategy, in_place
        self.world = SimulatedService(load_shape.steady(4.0 * count), seed=1, tick=1.0, room=count)
        self.release(1, GOOD, 60)
        assert self.ready == {1: count}
        self.least = count
        self.world.watch = self.watch

    def watch(self, world, plan):
        del world
        self.least = min(self.least, len(plan.routes.backends))

    def release(self, number, version, seconds):
        self.world.apply(document(number, self.count, self.strategy, in_place=self.in_place), version)
        self.world.run(seconds)
        return self.world.service.rollout

    @property
    def ready(self):
        found = [replica.revision for replica in self.world.replicas if replica.phase is ReplicaPhase.READY]
        return {number: found.count(number) for number in sorted(set(found))}


@pytest.mark.parametrize("strategy", ["rolling", "canary"])
@pytest.mark.parametrize("count", [2, 4, 7])
def test_one_old_replica_makes_way_for_each_new_one(count, strategy):
    machine = Machine(count, strategy)
    assert machine.release(2, GOOD, 240).phase is RolloutPhase.DONE
    assert machine.ready == {2: count}
    assert machine.least == count - 1


def test_requests_to_the_only_replica_wait_until_the_new_one_is_ready():
    machine = Machine(1)
    assert machine.release(2, GOOD, 120).phase is RolloutPhase.DONE
    assert (machine.ready, machine.least) == ({2: 1}, 0)
    moments = machine.world.moments
    assert sum(moment.arrived for moment in moments) == sum(moment.answered for moment in moments) + machine.world.held
    assert machine.world.expired == 0


@pytest.mark.parametrize("fault", ["crashes", "hangs"])
@pytest.mark.parametrize("count", [1, 3])
def test_what_made_way_for_a_version_that_never_gets_ready_is_put_back(count, fault):
    machine = Machine(count)
    assert machine.release(2, VersionBehaviour(**{fault: True}), 150).phase is RolloutPhase.ROLLED_BACK
    assert machine.ready == {1: count}
    assert machine.least >= count - 1


def test_on_the_way_back_a_bad_replica_makes_way_for_each_good_one():
    machine = Machine(4, "canary")
    rollout = machine.release(2, VersionBehaviour(errors=0.3), 240)
    assert rollout.reason.startswith("errors: ")
    assert machine.ready == {1: 4}
    assert machine.least >= 2


@pytest.mark.parametrize("strategy", ["rolling", "blue-green"])
def test_a_release_that_finds_no_room_says_so_with_the_way_out_and_goes_back(strategy):
    machine = Machine(2, strategy, in_place=False)
    rollout = machine.release(2, GOOD, 30)
    waits = "replicas are ready; r2-3 cannot be placed: all places are taken; free some room, or set `rollout.in_place: true`"
    assert waits in rollout.reason
    assert ("and `strategy: rolling`" in rollout.reason) == (strategy == "blue-green")
    assert "r2-3 waits: all places are taken; free some room" in machine.world.service.message
    machine.world.run(30)
    rollout = machine.world.service.rollout
    assert rollout.phase is RolloutPhase.ROLLED_BACK
    assert rollout.reason.startswith("ready: no replica of r2 was ready after 40s; the limit is 40s (r2-3: all places are taken)")
    assert "rollout.in_place" in rollout.reason
    assert (machine.ready, machine.least) == ({1: 2}, 2)


def test_what_was_sent_back_does_not_keep_the_good_revision_out_when_others_took_the_room():
    """There was room for the release, but there is none for the rollback."""
    machine = Machine(4, "canary", in_place=False)
    world = machine.world
    world.room = 8
    machine.release(2, GOOD, 46)
    assert machine.ready[2] == 3
    world.room = 4
    world.change(lambda service: service_command.undone(service, world.now))
    world.run(100)
    assert machine.ready == {1: 4}
    assert machine.least >= 3


@pytest.mark.parametrize("strategy", ["blue-green", "shadow"])
def test_strategies_that_keep_the_old_replicas_refuse_it(strategy):
    with pytest.raises(ValidationError, match="use strategy: rolling or canary"):
        RolloutPolicy(strategy=strategy, in_place=True)
