"""Releases: every strategy step by step, commands in between, and rollback."""

import itertools
from dataclasses import replace

import pytest

from fairway.errors import ConflictError, RefusedError
from fairway.plan.service import replica_split, rollout, route, service_command
from fairway.plan.service.service_plan import ServiceMeasurements, ServiceSample, advance
from fairway.state.service import ReplicaPhase, RevisionPhase, RolloutPhase
from fairway.testing.builder.service_builder import KEY, a_replica, a_service, apply_version


class Fleet:
    """Carries out plans at once: replicas are ready two seconds after their start."""

    def __init__(self, service, replicas, now=100.0, **behaviour):
        self.service, self.replicas, self.now = service, list(replicas), now
        self.never_ready = behaviour.get("never_ready", ())
        self.crashing = behaviour.get("crashing", ())
        self.plan = None

    def turn(self, seconds=2.0):
        self.now += seconds
        self.replicas = [self._lived(replica) for replica in self.replicas]
        self.plan = advance(self.service, self.replicas, ServiceMeasurements(), self.now)
        first = self.plan.service.replicas_made - len(self.plan.start) + 1
        self.service = self.plan.service
        phases = {**dict.fromkeys(self.plan.drain, ReplicaPhase.DRAINING), **dict.fromkeys(self.plan.stop, ReplicaPhase.GONE)}
        self.replicas = [
            replace(replica, phase=phases[replica.name], since=self.now) if replica.name in phases else replica
            for replica in self.replicas
        ]
        for number, revision in enumerate(self.plan.start, first):
            self.replicas.append(a_replica(number, revision, ReplicaPhase.STARTING, self.now, started=self.now))
        return self.plan

    def _lived(self, one):
        if one.phase is not ReplicaPhase.STARTING or one.revision in self.never_ready:
            return one
        if one.revision in self.crashing:
            return replace(one, phase=ReplicaPhase.GONE, failed=True, since=self.now, message="exit 1: no model")
        return replace(one, phase=ReplicaPhase.READY, since=self.now)

    def turns(self, count, seconds=2.0):
        return [self.turn(seconds) for _ in range(count)]

    @property
    def live(self):
        found = {}
        for replica in self.replicas:
            if replica.phase in (ReplicaPhase.STARTING, ReplicaPhase.READY):
                found[replica.revision] = found.get(replica.revision, 0) + 1
        return found

    @property
    def weights(self):
        return dict(self.plan.routes.weights)


def fleet_of(count=4, **fields):
    policy = {"replicas": {"min": count, "max": count}, **fields}
    service = a_service(count, **policy)
    fleet = Fleet(service, [a_replica(number) for number in range(1, count + 1)], **fields.pop("behaviour", {}))
    fleet.turn()
    fleet.fields = policy
    return fleet


def release(fleet, version=2):
    fleet.service = apply_version(fleet.service, version, fleet.now, **fleet.fields)


def test_the_first_revision_serves_as_soon_as_one_replica_is_ready():
    fleet = Fleet(apply_version(None, replicas={"min": 2, "max": 2}), [])
    assert fleet.turn().start == (1, 1)
    assert fleet.plan.routes.backends == ()
    plan = fleet.turn()
    assert fleet.service.stable == 1
    assert fleet.service.rollout.phase is RolloutPhase.DONE
    assert plan.routes.weights == ((1, 10_000),)
    assert plan.events[0] == ("RolledOut", "r1 serves all of the traffic")


def test_rolling_goes_a_quarter_at_a_time_and_never_below_the_number():
    fleet = fleet_of(4)
    release(fleet)
    seen = []
    for plan in fleet.turns(60):
        assert len(plan.routes.backends) >= 4
        seen.append(dict(plan.routes.weights).get(2, 0))
    assert [part for index, part in enumerate(seen) if not index or seen[index - 1] != part] == [0, 2500, 5000, 7500, 10_000]
    assert fleet.service.rollout.phase is RolloutPhase.DONE
    assert fleet.service.stable == 2
    assert fleet.live == {2: 4}
    assert fleet.service.revision(2).phase is RevisionPhase.GOOD


def test_one_replica_is_replaced_only_when_the_new_one_is_ready():
    fleet = fleet_of(1)
    release(fleet)
    fleet.turn()
    assert fleet.live == {1: 1, 2: 1}
    assert fleet.weights == {1: 10_000}
    fleet.turn()
    assert fleet.weights == {2: 10_000}
    assert fleet.plan.drain == ("r1-1",)


def test_blue_green_has_all_replicas_before_any_traffic_moves_and_keeps_the_old_ones_for_a_minute():
    fleet = fleet_of(3, rollout={"strategy": "blue-green"})
    release(fleet)
    fleet.turn()
    assert fleet.live == {1: 3, 2: 3}
    assert fleet.weights == {1: 10_000}
    fleet.turn()
    assert fleet.weights == {2: 10_000}
    fleet.turns(20)
    assert fleet.live == {1: 3, 2: 3}
    fleet.turns(20)
    assert fleet.service.rollout.phase is RolloutPhase.DONE
    assert fleet.live == {2: 3}


def test_a_canary_stays_at_each_step_for_its_time():
    steps = [{"to": "10%", "for": "30s"}, {"to": "50%", "for": "30s"}]
    fleet = fleet_of(4, rollout={"strategy": "canary", "requests": 0, "steps": steps})
    release(fleet)
    at = {}
    for _ in range(80):
        fleet.turn()
        at.setdefault(fleet.weights.get(2, 0), fleet.now)
    assert list(at) == [0, 1000, 5000, 10_000]
    assert at[5000] - at[1000] >= 30
    assert at[10_000] - at[5000] >= 30
    assert fleet.service.rollout.phase is RolloutPhase.DONE


def test_a_canary_of_five_percent_needs_one_replica_and_takes_none_from_the_old():
    fleet = fleet_of(2, rollout={"strategy": "canary"})
    release(fleet)
    fleet.turns(3)
    assert fleet.weights == {1: 9500, 2: 500}
    assert fleet.live == {1: 2, 2: 1}


def test_headers_choose_the_new_version_during_a_release_only():
    traffic = {"headers": [{"header": "x-beta", "value": "yes"}], "sticky": "user"}
    fleet = fleet_of(2, traffic=traffic, rollout={"strategy": "ab", "requests": 0, "steps": [{"to": "0%", "for": "20s"}]})
    assert fleet.plan.routes.matches == ()
    release(fleet)
    fleet.turns(3)
    (match,) = fleet.plan.routes.matches
    assert (match.header, match.value, match.revision) == ("x-beta", "yes", 2)
    assert fleet.weights == {1: 10_000}
    assert fleet.plan.routes.sticky == "user"
    fleet.turns(80)
    assert fleet.plan.routes.matches == ()


def test_a_shadow_gets_copies_and_then_takes_over():
    fleet = fleet_of(2, rollout={"strategy": "shadow", "requests": 0, "steps": [{"to": "50%", "for": "20s"}]})
    release(fleet)
    fleet.turns(3)
    assert fleet.plan.routes.mirror is not None
    assert (fleet.plan.routes.mirror.revision, fleet.plan.routes.mirror.share) == (2, 5000)
    assert fleet.weights == {1: 10_000}
    fleet.turns(15)
    assert fleet.weights == {2: 10_000}
    assert fleet.plan.routes.mirror is None


def test_a_shadow_of_all_requests_gets_every_copy_until_it_takes_over():
    """Regression: a share of 100 % was counted as part of the traffic; nothing was copied, and the step never ended."""
    steps = [{"to": "50%", "for": "20s"}, {"to": "100%", "for": "20s"}]
    for plan in (steps, steps[1:]):
        fleet = fleet_of(2, rollout={"strategy": "shadow", "requests": 0, "steps": plan})
        release(fleet)
        fleet.turn()
        copied = []
        for _ in range(60):
            fleet.turn()
            if fleet.weights == {2: 10_000}:
                break
            assert fleet.weights == {1: 10_000}
            assert fleet.plan.routes.mirror is not None
            copied.append(fleet.plan.routes.mirror.share)
        assert copied[-1] == 10_000
        assert copied.count(10_000) >= 10
        assert copied == sorted(copied)
        assert fleet.plan.routes.mirror is None
        fleet.turns(40)
        assert (fleet.service.rollout.phase, fleet.service.stable, fleet.live) == (RolloutPhase.DONE, 2, {2: 2})


def test_copies_go_on_while_a_shadow_gets_the_replicas_to_take_over():
    fleet = fleet_of(4, rollout={"strategy": "shadow", "requests": 0, "steps": [{"to": "25%", "for": "20s"}]})
    release(fleet)
    fleet.turns(5)
    assert fleet.live == {1: 4, 2: 1}
    fleet.never_ready = (2,)
    fleet.turns(20)
    assert fleet.live == {1: 4, 2: 4}
    assert fleet.plan.routes.mirror.share == 2500
    assert fleet.weights == {1: 10_000}
    fleet.never_ready = ()
    fleet.turns(2)
    assert fleet.weights == {2: 10_000}
    assert fleet.plan.routes.mirror is None


def test_a_version_that_never_gets_ready_is_sent_back_and_nothing_was_touched():
    fleet = fleet_of(2, rollout={"guard": {"ready": "1m"}})
    fleet.never_ready = (2,)
    release(fleet)
    for plan in fleet.turns(29):
        assert plan.routes.weights == ((1, 10_000),)
        assert not plan.drain
    fleet.turns(3)
    assert fleet.service.rollout.phase is RolloutPhase.ROLLED_BACK
    assert fleet.service.rollout.reason.startswith("ready: no replica of r2 was ready after 1m")
    assert fleet.service.revision(2).phase is RevisionPhase.BAD
    fleet.turn()
    assert fleet.live == {1: 2}


def test_a_version_that_crashes_at_load_is_sent_back_with_its_last_words():
    fleet = fleet_of(2)
    fleet.crashing = (2,)
    release(fleet)
    fleet.turns(10)
    assert fleet.service.rollout.phase is RolloutPhase.ROLLED_BACK
    assert "crash: 3 replicas of r2 ended by themselves before any was ready" in fleet.service.rollout.reason
    assert "exit 1: no model" in fleet.service.rollout.reason
    assert fleet.live == {1: 2}


def crash(fleet, number):
    """Let all ready replicas of a revision crash."""
    fleet.replicas = [
        replace(replica, phase=ReplicaPhase.GONE, failed=True, since=fleet.now, message="exit 1: a bad request")
        if replica.revision == number and replica.phase is ReplicaPhase.READY
        else replica
        for replica in fleet.replicas
    ]


def test_a_canary_whose_replicas_end_by_themselves_gets_no_larger_part():
    """It crashes on occasional requests: the step would end before the third replica has crashed."""
    fleet = fleet_of(2, rollout={"strategy": "canary", "requests": 0, "steps": [{"to": "50%", "for": "20s"}]})
    release(fleet)
    fleet.turns(4)
    assert fleet.weights == {1: 5_000, 2: 5_000}
    for _ in range(2):
        crash(fleet, 2)
        fleet.turns(6)
    assert fleet.now >= fleet.service.rollout.step_since + 20
    assert fleet.service.rollout.step == 0
    assert fleet.weights == {1: 5_000, 2: 5_000}
    assert fleet.service.rollout.reason.startswith("waits: 2 replicas of r2 ended by themselves; its share grows when")
    crash(fleet, 2)
    fleet.turns(4)
    assert fleet.service.rollout.phase is RolloutPhase.ROLLED_BACK
    assert fleet.weights == {1: 10_000}


def test_a_canary_goes_on_when_its_replicas_have_been_ready_for_a_minute_since():
    fleet = fleet_of(2, rollout={"strategy": "canary", "requests": 0, "steps": [{"to": "50%", "for": "20s"}]})
    release(fleet)
    fleet.turns(4)
    crash(fleet, 2)
    fleet.turns(25)
    assert fleet.service.rollout.step == 0
    fleet.turns(15)
    assert fleet.weights == {2: 10_000}


def test_the_first_version_has_nowhere_to_go_back_to_and_is_tried_with_growing_pauses():
    fleet = Fleet(apply_version(None), [], crashing=(1,))
    starts = [fleet.now for _ in range(60) if fleet.turn().start]
    gaps = [after - before for before, after in itertools.pairwise(starts)]
    assert gaps == sorted(gaps)
    assert gaps[-1] >= 16
    assert fleet.service.rollout.phase is RolloutPhase.STARTING
    assert "exit 1: no model" in fleet.service.message


def test_on_the_way_back_what_serves_stays_until_the_old_one_has_enough():
    fleet = fleet_of(4, rollout={"strategy": "canary", "steps": [{"to": "50%", "for": "1m"}]})
    release(fleet)
    fleet.turns(5)
    assert fleet.live == {1: 2, 2: 2}
    fleet.service, _ = rollout.rolled_back(fleet.service, fleet.service.rollout, "errors: 5 %", fleet.now)
    plan = fleet.turn()
    assert plan.start == (1, 1)
    assert fleet.weights[1] > 5000
    assert fleet.live[2] >= 1
    fleet.turn()
    assert fleet.weights == {1: 10_000}
    assert fleet.live == {1: 4}


def test_a_new_document_in_the_middle_takes_the_release_over_without_losing_capacity():
    fleet = fleet_of(4)
    release(fleet, 2)
    fleet.turns(8)
    assert fleet.live.get(2)
    release(fleet, 3)
    for plan in fleet.turns(80):
        assert len(plan.routes.backends) >= 4
    assert fleet.live == {3: 4}
    assert fleet.service.history[-1].reason == "superseded by r3"
    assert fleet.service.stable == 3


def test_the_old_document_in_the_middle_ends_the_release():
    fleet = fleet_of(4)
    release(fleet, 2)
    fleet.turns(8)
    release(fleet, 1)
    fleet.turns(10)
    assert fleet.service.rollout.reason == "the document asks for r1 again"
    assert fleet.live == {1: 4}
    assert len(fleet.service.revisions) == 2


def test_time_stands_still_for_the_guards_while_a_release_is_held():
    fleet = fleet_of(2, rollout={"guard": {"ready": "1m"}})
    fleet.never_ready = (2,)
    release(fleet)
    fleet.turns(5)
    fleet.service = service_command.paused(fleet.service, fleet.now)
    fleet.turns(60)
    assert fleet.service.rollout.phase is RolloutPhase.PAUSED
    fleet.service = service_command.resumed(fleet.service, fleet.now)
    fleet.turns(20)
    assert fleet.service.rollout.phase is RolloutPhase.STARTING
    fleet.turns(10)
    assert fleet.service.rollout.phase is RolloutPhase.ROLLED_BACK


def test_pause_holds_it_and_resume_gives_the_step_its_whole_time():
    fleet = fleet_of(2, rollout={"strategy": "canary", "requests": 0, "steps": [{"to": "50%", "for": "30s"}]})
    release(fleet)
    fleet.turns(5)
    fleet.service = service_command.paused(fleet.service, fleet.now)
    assert service_command.paused(fleet.service, fleet.now) == fleet.service
    fleet.turns(60)
    assert fleet.weights == {1: 5000, 2: 5000}
    fleet.service = service_command.resumed(fleet.service, fleet.now)
    fleet.turns(8)
    assert fleet.weights == {1: 5000, 2: 5000}
    fleet.turns(60)
    assert fleet.service.rollout.phase is RolloutPhase.DONE
    with pytest.raises(ConflictError, match="no release under way to pause"):
        service_command.paused(fleet.service, fleet.now)


def test_undo_in_the_middle_goes_back_and_undo_at_the_end_releases_the_one_before():
    fleet = fleet_of(2)
    release(fleet)
    fleet.turns(6)
    fleet.service = service_command.undone(fleet.service, fleet.now)
    fleet.turns(10)
    assert (fleet.service.rollout.reason, fleet.live) == ("undone by user request", {1: 2})
    assert fleet.service.spec.model == "mnist@1"
    with pytest.raises(RefusedError, match="no release that could be undone"):
        service_command.undone(fleet.service, fleet.now)
    release(fleet, 3)
    fleet.turns(60)
    assert fleet.live == {3: 2}
    fleet.service = service_command.undone(fleet.service, fleet.now)
    fleet.turns(60)
    assert (fleet.service.stable, fleet.live) == (1, {1: 2})


def test_undo_after_a_finished_canary_moves_all_traffic_at_once():
    steps = [{"to": "5%", "for": "10m"}, {"to": "50%", "for": "10m"}]
    fleet = fleet_of(4, rollout={"strategy": "canary", "requests": 0, "steps": steps})
    release(fleet)
    fleet.turns(700)
    assert (fleet.service.rollout.phase, fleet.live) == (RolloutPhase.DONE, {2: 4})
    fleet.service = service_command.undone(fleet.service, fleet.now)
    assert fleet.turn().start == (1, 1, 1, 1)
    assert fleet.weights == {2: 10_000}, "what serves stays until the other is ready"
    plan = fleet.turn()
    assert plan.routes.weights == ((1, 10_000),)
    assert fleet.live == {1: 4}
    last = fleet.service.rollout
    assert (last.source, last.target, last.phase, last.reason) == (2, 1, RolloutPhase.DONE, "undone by user request")
    assert fleet.service.history[-1].target == 2
    assert fleet.service.spec.model == "mnist@1"


def test_undo_after_a_finished_release_keeps_what_serves_while_the_other_does_not_start():
    fleet = fleet_of(2, rollout={"strategy": "blue-green"})
    release(fleet)
    fleet.turns(60)
    assert fleet.live == {2: 2}
    fleet.crashing = (1,)
    fleet.service = service_command.undone(fleet.service, fleet.now)
    for plan in fleet.turns(10):
        assert plan.routes.weights == ((2, 10_000),)
    assert "exit 1: no model" in fleet.service.message
    fleet.service = service_command.undone(fleet.service, fleet.now)
    fleet.turns(2)
    assert (fleet.service.stable, fleet.live) == (2, {2: 2})


def test_only_what_is_served_makes_a_release():
    service = a_service(2)
    assert apply_version(service, 1, replicas={"min": 2, "max": 5}, scaling={"hold": "1m"}).rollout == service.rollout
    changed = apply_version(service, 1, batching={"max": 8})
    assert (changed.rollout.source, changed.rollout.target) == (1, 2)
    assert apply_version(changed, 1, batching={"max": 8}).rollout == changed.rollout
    with pytest.raises(ConflictError, match="is being deleted"):
        apply_version(service_command.deleted(service), 2)


def test_the_floor_keeps_to_what_the_document_allows():
    assert service_command.scaled(a_service(), 4).floor == 4
    with pytest.raises(RefusedError, match="11 replicas are not allowed; the document allows 0 to 10") as caught:
        service_command.scaled(a_service(), 11)
    assert "replicas.max" in caught.value.fix


def test_old_revisions_and_releases_are_forgotten_but_never_those_in_use():
    service = a_service(1)
    for version in range(2, 60):
        service = apply_version(service, version, float(version))
    assert len(service.history) == service_command.HISTORY
    assert len(service.revisions) == service_command.REVISIONS + 1
    assert service.revision(1) is not None
    assert [revision.number for revision in service.revisions[-2:]] == [58, 59]


def test_deleting_drains_everything_and_then_nothing_is_left():
    fleet = fleet_of(2)
    fleet.service = service_command.deleted(fleet.service)
    plan = fleet.turn()
    assert set(plan.drain) == {"r1-1", "r1-2"}
    assert plan.routes.backends == ()
    assert plan.routes.hold_limit == 0
    plans = fleet.turns(20)
    assert plans[-1].routes is None
    assert plans[-1].wake_at is None


def test_deleting_a_service_that_never_listened_waits_for_no_answer_of_a_router():
    service = service_command.deleted(a_service(1))
    draining = a_replica(1, 1, ReplicaPhase.DRAINING, 100.0)
    unseen = ServiceMeasurements((ServiceSample(101.0, None),))
    assert advance(service, [draining], unseen, 101.0).stop == ("r1-1",)
    assert advance(replace(service, port=8000), [draining], unseen, 101.0).stop == ()


def test_a_release_of_a_service_at_zero_tries_one_replica():
    service = a_service(0, replicas={"min": 0, "max": 4})
    fleet = Fleet(service, [])
    fleet.turn()
    assert fleet.live == {}
    fleet.service = apply_version(fleet.service, 2, fleet.now, replicas={"min": 0, "max": 4})
    assert fleet.turn().start == (2,)
    fleet.turns(40)
    assert fleet.service.rollout.phase is RolloutPhase.DONE


def test_a_slower_version_gets_more_replicas_for_its_part():
    service = a_service(8)
    service = replace(service, scale=replace(service.scale, service_rate={1: 10.0, 2: 5.0}))
    parts = replica_split.parts(service, replica_split.TrafficShares({1: 0.5, 2: 0.5}, {1: 0.5, 2: 0.5}))
    assert (parts[1].wanted, parts[2].wanted) == (3, 6)


def test_a_replica_that_died_is_replaced_at_once_and_a_draining_one_ends_when_its_grace_is_over():
    fleet = fleet_of(2, grace="10s")
    fleet.replicas[0] = replace(fleet.replicas[0], phase=ReplicaPhase.GONE, failed=True, since=fleet.now)
    assert fleet.turn().start == (1,)
    fleet.turns(60)
    assert fleet.service.revision(1).failures == 0
    fleet.replicas.append(a_replica(9, 1, ReplicaPhase.DRAINING, fleet.now))
    assert fleet.turn().stop == ()
    fleet.turns(3)
    assert fleet.turn().stop == ("r1-9",)


def test_the_key_and_the_port_are_in_the_routes():
    fleet = fleet_of(1, port=8123)
    assert fleet.plan.routes.service == str(KEY)
    assert fleet.plan.routes.port == 8123
    assert fleet.plan.wake_at == fleet.now + 2.0


def test_a_cold_start_is_measured_once_a_replica():
    fleet = Fleet(apply_version(None), [])
    fleet.turns(3)
    assert fleet.service.revision(1).cold_start == 2.0
    one = fleet.replicas[0]
    fleet.replicas[0] = replace(one, since=fleet.now + 500.0)
    fleet.turn(600.0)
    assert fleet.service.revision(1).cold_start == 2.0


def test_a_replica_that_does_not_answer_any_more_is_replaced():
    fleet = fleet_of(2)
    fleet.replicas[0] = replace(fleet.replicas[0], phase=ReplicaPhase.STARTING, since=fleet.now)
    fleet.never_ready = (1,)
    assert fleet.turn().start == ()
    plan = fleet.turn(600.0)
    assert (plan.start, plan.stop) == ((1,), ("r1-1",))


def test_what_no_revision_can_carry_is_shared_by_all():
    """During a rollback, one good replica beside eight slow ones gets no more than its share of the total capacity."""
    service = a_service(8)
    service = replace(service, scale=replace(service.scale, service_rate={1: 10.0, 2: 3.3}))
    shares = replica_split.TrafficShares({1: 1.0}, {1: 1.0})
    found = dict(route.weights(service, {1: 1, 2: 8}, shares, replica_split.parts(service, shares)))
    assert found[1] == pytest.approx(10_000 * 10.0 / (10.0 + 8 * 3.3), rel=0.01)
