"""Whole releases on a virtual clock: which versions are rolled back, when, and by which guard."""

import pytest

from fairway.plan.service import service_command
from fairway.simulation.service import load_shape
from fairway.simulation.service.simulated_service import SimulatedService
from fairway.simulation.service.version_behaviour import VersionBehaviour
from fairway.state.service import RolloutPhase
from fairway.testing.builder.service_builder import a_service_spec

GOOD = VersionBehaviour(rate=20.0)
RENAMED_INPUT = VersionBehaviour(rate=200.0, refused=0.83)
"""Most requests name an input that this version lacks; they are refused at once."""
STEPS = [{"to": "5%", "for": "1m"}, {"to": "50%", "for": "1m"}]


def released(old, new, strategy="canary", seed=0, **policy):
    """Return a world in which the new version was released after the old one, and the largest share of the new one."""
    world = SimulatedService(load_shape.steady(20.0), seed=seed)
    rollout = {"strategy": strategy, "steps": STEPS, **policy}
    world.apply(a_service_spec(1, rollout=rollout), old)
    world.run(120.0)
    assert world.service.stable == 1
    world.apply(a_service_spec(2, rollout=rollout), new)
    world.run(600.0)
    parts = [dict(plan.routes.weights).get(2, 0) for _, plan in world.plans]
    return world, max(parts) / 10_000


@pytest.mark.parametrize("strategy", ["canary", "ab", "shadow"])
@pytest.mark.parametrize("refused", [0.8, 0.1])
def test_a_version_that_refuses_requests_is_sent_back_before_half_of_the_traffic(strategy, refused):
    world, part = released(GOOD, VersionBehaviour(rate=200.0, refused=refused), strategy)
    assert world.service.rollout.phase is RolloutPhase.ROLLED_BACK
    assert world.service.rollout.reason.startswith("client_errors: ")
    assert "of r2's answers were client errors (4xx)" in world.service.rollout.reason
    assert part == (0.0 if strategy == "shadow" else 0.05)


@pytest.mark.parametrize("strategy", ["canary", "shadow"])
def test_client_errors_that_both_versions_have_stop_no_release(strategy):
    bad_clients = VersionBehaviour(rate=20.0, refused=0.3)
    for seed in range(3):
        world, part = released(bad_clients, bad_clients, strategy, seed)
        assert (world.service.rollout.phase, part) == (RolloutPhase.DONE, 1.0)


def test_a_good_successor_of_a_broken_fast_version_is_not_slower():
    world, part = released(RENAMED_INPUT, GOOD)
    assert (world.service.rollout.phase, part) == (RolloutPhase.DONE, 1.0), world.service.rollout.reason


def test_a_slower_version_is_still_sent_back():
    world, _ = released(GOOD, VersionBehaviour(rate=5.0))
    assert world.service.rollout.reason.startswith("slower: ")


def test_a_shadow_of_all_requests_is_judged_and_takes_over():
    world, part = released(GOOD, GOOD, "shadow", steps=[{"to": "100%", "for": "1m"}], requests=500)
    assert (world.service.rollout.phase, part) == (RolloutPhase.DONE, 1.0)
    assert max(plan.routes.mirror.share for _, plan in world.plans if plan.routes.mirror) == 10_000
    bad, none = released(GOOD, RENAMED_INPUT, "shadow", steps=[{"to": "100%", "for": "1m"}])
    assert (bad.service.rollout.phase, none) == (RolloutPhase.ROLLED_BACK, 0.0)


def test_undo_of_a_finished_canary_is_done_within_a_start_of_the_replicas():
    world, _ = released(GOOD, GOOD)
    assert world.service.rollout.phase is RolloutPhase.DONE
    began = len(world.plans)
    world.change(lambda service: service_command.undone(service, world.now))
    world.run(10.0)
    assert world.plans[-1][1].routes.weights == ((1, 10_000),)
    assert all(plan.routes.weights for _, plan in world.plans[began:])
