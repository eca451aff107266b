"""For any sequence of events, capacity is never given up, and in the end everything is as specified."""

import contextlib
from dataclasses import replace

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fairway.errors import FairwayError
from fairway.plan.service import autoscaler, replica_fleet, rollout, service_command
from fairway.plan.service.service_plan import advance
from fairway.simulation.service.simulated_service import SimulatedService
from fairway.simulation.service.version_behaviour import VersionBehaviour
from fairway.spec.service import ServiceSpec
from fairway.state.service import ReplicaPhase, RolloutPhase
from fairway.state.serving.route import WHOLE

RATE = 10.0
GOOD = VersionBehaviour(rate=RATE, errors=0.001)
VERSIONS = {
    "good": GOOD,
    "slow start": replace(GOOD, cold_start=12.0),
    "crash": replace(GOOD, crashes=True),
    "hang": replace(GOOD, hangs=True),
    "errors": replace(GOOD, errors=0.2),
    "slow": replace(GOOD, rate=RATE / 3),
}
STRATEGIES = {
    "rolling": {},
    "blue-green": {},
    "canary": {"steps": [{"to": "10%", "for": "20s"}, {"to": "50%", "for": "20s"}]},
    "ab": {"steps": [{"to": "50%", "for": "30s"}]},
    "shadow": {"steps": [{"to": "50%", "for": "20s"}]},
}


def document(number, strategy="rolling", least=1, most=12, *, in_place=False):
    judged = {"requests": 20, "patience": "30s", "unjudged": "continue"}
    policy = {"strategy": strategy, **STRATEGIES[strategy], **judged, "guard": {"ready": "60s"}}
    policy["in_place"] = in_place and strategy not in ("blue-green", "shadow")
    given = {"model": f"m@{number}", "replicas": {"min": least, "max": most}, "rollout": policy, "grace": "5s"}
    return ServiceSpec.model_validate({**given, "scaling": {"hold": "30s", "idle": "40s"}})


_KNOWN = 8.0
"""Seconds after which a load can be known: the short window, and a measurement."""
ROOM = 1.2
"""The remaining capacity is at least this many times the load: replicas should be busy for three quarters of the time."""
_FEW = 30
"""Answers after which the speed of a revision is known."""


class Judge:
    """Checks every plan before it is carried out."""

    def __init__(self):
        self.loads = []
        self.begun = {}

    def __call__(self, world, plan):
        before, after = world.service, plan.service
        ready = {one.name: one for one in world.replicas if one.phase is ReplicaPhase.READY}
        backends = {one.name for one in plan.routes.backends}
        self.routes_are_sound(world, plan, ready, backends)
        self.capacity_stays(world, plan, ready, backends)
        if rollout.is_active(after.rollout) and before.rollout is not None and before.rollout.target == after.rollout.target:
            most = after.spec.replicas.max
            assert after.scale.wanted >= min(before.scale.wanted, most), "a release and the number fought"
        assert after.scale.wanted <= after.spec.replicas.max
        assert after.scale.rule
        assert after.scale.why
        live = [one for one in world.replicas if one.phase in (ReplicaPhase.WAITING, ReplicaPhase.STARTING, ReplicaPhase.READY)]
        assert len(live) + len(plan.start) <= max(len(live), 6 * after.scale.wanted + 2)

    @staticmethod
    def routes_are_sound(world, plan, ready, backends):
        assert backends <= set(ready)
        assert not backends & set(plan.drain)
        assert {one.name for one in world.replicas if one.phase is ReplicaPhase.READY} - set(plan.drain) == backends
        has = {one.revision for one in plan.routes.backends}
        mirrored = {plan.routes.mirror.revision} if plan.routes.mirror else set()
        if has - mirrored - ({plan.service.rollout.target} if rollout.is_active(plan.service.rollout) else set()):
            assert sum(weight for _, weight in plan.routes.weights) == WHOLE
        assert {number for number, _ in plan.routes.weights} <= has
        assert all(weight > 0 for _, weight in plan.routes.weights)

    def capacity_stays(self, world, plan, ready, backends):
        """Check that the capacity suffices for the traffic, or is no less than before."""
        known = {one.name for one in world.route.backends} if world.route else set()
        speed = {one.name: world.version(one.revision).rate for one in ready.values()}
        there = sum(speed[name] for name in known & set(ready))
        now = sum(speed[name] for name in backends)
        load = self.lasting(world)
        wanted = plan.service.scale.wanted
        if plan.service.spec.rollout.in_place:
            # One replica makes way for its successor.
            assert len(backends) >= min(len(known & set(ready)), wanted - 1), "more than one made way"
            return
        assert now >= min(there, load) - 1e-6, "capacity was given away"
        if not any(replica_fleet.is_bad(plan.service, one.revision) for one in ready.values()):
            # Beside a version that was rolled back, the good replicas may be busier for a moment.
            assert now >= min(there, ROOM * load) - 1e-6, "what was running went before something else was ready"
        self.parts_fit(world, plan, speed, load)

    def parts_fit(self, world, plan, speed, load):
        """Check that the ready replicas of each revision can answer its share, if all together could."""
        serving = {number for number, _ in plan.routes.weights}
        self.begun = {number: self.begun.get(number, world.now) for number in serving}
        if sum(speed[backend.name] for backend in plan.routes.backends) < 1.4 * load or plan.service.scale.rule == "max":
            # At the document's maximum a slower version keeps its share until a guard fails; the old version stays beside it.
            return
        # The plan does not consider more load than it can tell apart from chance yet.
        arrivals = autoscaler.signals(plan.service, {}, {}, world.measured).arrivals
        load = load if arrivals is None else min(load, arrivals)
        for number, weight in plan.routes.weights:
            names = [backend.name for backend in plan.routes.backends if backend.revision == number]
            answers = sum(world.served(name) for name in names)
            is_new = answers < _FEW or world.now < self.begun[number] + _KNOWN
            if number not in plan.service.scale.service_rate and is_new:
                # Its speed is known only after its first answers.
                continue
            able = sum(speed[name] for name in names)
            assert load * weight / WHOLE <= 1.05 * able, f"r{number} gets more than it can do"

    def lasting(self, world):
        """Return the load that has lasted long enough to be known."""
        self.loads.append((world.now, world.traffic(world.now)))
        begun = world.now - _KNOWN
        since = [index for index, (time, _) in enumerate(self.loads) if time <= begun]
        return min(load for _, load in self.loads[max(since, default=0) :])


def settle(world):
    """Let the release end without further events; check that the final state is the specified one."""
    for _ in range(40):
        world.plans.clear()
        world.run(20)
        service = world.service
        live = [one for one in world.replicas if one.phase is not ReplicaPhase.GONE]
        is_quiet = not any(plan.start or plan.drain or plan.stop for _, plan in world.plans)
        if is_quiet and not rollout.is_active(service.rollout):
            assert {one.phase for one in live} == {ReplicaPhase.READY}
            assert {one.revision for one in live} == {service.stable}
            assert len(live) == service.scale.wanted
            assert service.scale.wanted * RATE >= world.traffic(world.now)
            return
    raise AssertionError(f"it does not come to rest: {service.rollout}, {service.scale}, {live}")


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("run"), st.integers(2, 40)),
        st.tuples(st.just("apply"), st.sampled_from(sorted(VERSIONS)), st.sampled_from(sorted(STRATEGIES))),
        st.tuples(st.just("kill"), st.integers(0, 5)),
        st.tuples(st.just("scale"), st.integers(0, 12)),
        st.tuples(st.just("load"), st.sampled_from([0.0, 5.0, 20.0, 60.0])),
        st.tuples(st.sampled_from(["daemon", "router", "pause", "resume", "undo"])),
    ),
    min_size=3,
    max_size=12,
)


class Story:
    """Carries out the steps on a world."""

    def __init__(self, seed, least, *, in_place=False):
        self.rate, self.number, self.least, self.in_place = 20.0, 1, least, in_place
        self.world = SimulatedService(lambda _: self.rate, seed=seed, tick=1.0, watch=Judge())
        self.world.apply(document(1, least=least), GOOD)
        self.world.run(30)

    def step(self, what, *more):
        world = self.world
        if what == "apply":
            self.number += 1
            world.apply(document(self.number, more[1], self.least, in_place=self.in_place), VERSIONS[more[0]])
        elif what == "kill":
            alive = [replica.name for replica in world.replicas if replica.phase is not ReplicaPhase.GONE]
            if alive:
                world.kill(alive[more[0] % len(alive)])
        elif what == "load":
            self.rate = more[0]
        elif what in ("daemon", "router"):
            getattr(world, f"restart_{what}")()
        elif what != "run":
            self.verb(what, *more)
        world.run(more[0] if what == "run" else 4)

    def verb(self, what, *more):
        verbs = {
            "scale": lambda service: service_command.scaled(service, more[0]),
            "pause": lambda service: service_command.paused(service, self.world.now),
            "resume": lambda service: service_command.resumed(service, self.world.now),
            "undo": lambda service: service_command.undone(service, self.world.now),
        }
        with contextlib.suppress(FairwayError):
            self.world.change(verbs[what])


@settings(max_examples=42, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(seed=st.integers(0, 1000), least=st.sampled_from([0, 1, 3]), in_place=st.sampled_from([False, False, True]), steps=STEPS)
def test_capacity_is_never_given_away_and_it_comes_to_rest(seed, least, in_place, steps):
    story = Story(seed, least, in_place=in_place)
    for step in steps:
        story.step(*step)
    rollout_now = story.world.service.rollout
    if rollout_now.phase is RolloutPhase.PAUSED:
        story.verb("resume")
    story.rate = 18.0
    settle(story.world)


@settings(max_examples=40, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(seed=st.integers(0, 1000), steps=STEPS)
def test_asked_again_about_the_same_world_it_asks_for_nothing_twice(seed, steps):
    story = Story(seed, 1)
    world = story.world

    def again():
        plan = advance(world.service, world.replicas, world.measured, world.now)
        assert (plan.start, plan.drain) == ((), ())
        once_more = advance(plan.service, world.replicas, world.measured, world.now)
        assert once_more.service == plan.service
        assert once_more.routes == plan.routes

    for step in steps:
        story.step(*step)
        world.plan()
        if not world.plans[-1][1].drain:
            # After a drain, the rate per remaining replica differs, and so may the plan.
            again()
