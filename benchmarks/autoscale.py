"""The autoscaler on a virtual clock, compared with the rules of Kubernetes and Knative; releases of bad and of equal versions.

All rules get the same simulated service, load, seeds and measurements. A replica answers ten
requests a second, one at a time. HPA: CPU at 75 %, 15 s sync, 300 s window. KPA: its defaults, on concurrency of one; with
requests a second as its metric for information.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Callable
from dataclasses import replace

from bench import tell

from fairway.plan.service import autoscaler, service_command
from fairway.plan.service.service_plan import ScalingRule
from fairway.simulation.service import load_shape
from fairway.simulation.service.autoscaler_rule import HpaRule, KpaRule
from fairway.simulation.service.service_result import ServiceResult, outcome, recovery
from fairway.simulation.service.simulated_service import SimulatedService
from fairway.simulation.service.version_behaviour import VersionBehaviour
from fairway.spec.service import ServiceSpec
from fairway.state.service import ReplicaPhase, RolloutPhase

SEEDS = (1, 2, 3)
OBJECTIVE = 1.0
RULES: dict[str, Callable[[], ScalingRule]] = {
    "fairway": lambda: autoscaler.decide,
    "hpa": HpaRule,
    "kpa": KpaRule,
    "kpa-rps": lambda: KpaRule(rate=10.0),
}
GOOD = VersionBehaviour(errors=0.01)
BAD = {
    "crash": replace(GOOD, crashes=True),
    "errors": replace(GOOD, errors=0.03 + GOOD.errors),
    "slower": replace(GOOD, rate=GOOD.rate / 3),
    "metric": replace(GOOD, good=GOOD.good - 0.1),
}
RELEASES = 200


def document(number: int = 1, **rollout: object) -> ServiceSpec:
    """Return a service with one to a hundred replicas and an objective."""
    given = {"model": f"m@{number}", "replicas": {"min": 1, "max": 100}, "objective": {"p95": f"{OBJECTIVE:g}s"}}
    return ServiceSpec.model_validate({**given, "rollout": rollout})


def burst(rule: ScalingRule, cold_start: float, seed: int) -> float:
    """Return the seconds until the 95th percentile is back within the objective, after a fivefold load."""
    world = SimulatedService(load_shape.burst(20.0, 5.0, 900.0, 1500.0), seed=seed, rule=rule)
    world.apply(document(), VersionBehaviour(cold_start=cold_start))
    world.run(1500.0)
    return recovery(world.moments, 900.0, 1500.0, OBJECTIVE)


def day(rule: ScalingRule, seed: int) -> ServiceResult:
    """Simulate two hours with bursts, ten minutes on and off, and a release."""
    world = SimulatedService(load_shape.day(), seed=seed, rule=rule)
    world.apply(document(1), VersionBehaviour(cold_start=30.0))
    world.run(105 * load_shape.MINUTE)
    world.apply(document(2), VersionBehaviour(cold_start=30.0))
    world.run(15 * load_shape.MINUTE)
    return outcome(world, OBJECTIVE)


def bursts() -> None:
    """Print how soon a burst is over."""
    for cold_start, must in ((2.0, 0.25), (30.0, None)):
        took = {name: statistics.median(burst(rule(), cold_start, seed) for seed in SEEDS) for name, rule in RULES.items()}
        ratio = took["fairway"] / took["hpa"]
        wanted = f"<= {must}" if must else "for information"
        what = f"burst of 5x, cold start {cold_start:g} s: time until p95 is back / HPA's rule"
        tell(what, ratio, wanted, met=must is None or ratio <= must, seconds=took)


def days() -> None:
    """Print how steady the number of replicas is, and what it costs."""
    runs = {name: [day(rule(), seed) for seed in SEEDS] for name, rule in RULES.items()}
    turns = {name: statistics.median(one.reversals for one in found) for name, found in runs.items()}
    hours = {name: round(statistics.median(one.replica_hours for one in found), 1) for name, found in runs.items()}
    late = {name: round(statistics.median(one.late for one in found), 3) for name, found in runs.items()}
    for name, most in (("kpa", 0.2), ("hpa", 1.5)):
        ratio = turns["fairway"] / turns[name]
        tell(f"two hours of load: reversals / {name.upper()}'s rule", ratio, f"<= {most}", met=ratio <= most, reversals=turns)
    ratio = hours["fairway"] / hours["kpa"]
    tell("two hours of load: replica-hours / KPA's rule", ratio, "<= 1.2", met=ratio <= 1.2, hours=hours, late=late)


def released(number: int, version: VersionBehaviour, world: SimulatedService) -> str:
    """Return the guard that rolled the version back; empty if none did."""
    steps = [{"to": "10%", "for": "1m"}, {"to": "50%", "for": "1m"}]
    world.apply(document(number, strategy="canary", steps=steps, guard={"metric": {"name": "accuracy"}}), version)
    while world.service and world.service.rollout and world.service.rollout.finished is None:
        world.run(10.0)
        world.moments.clear()
        world.plans.clear()
    rollout = world.service.rollout if world.service else None
    return rollout.reason.partition(":")[0] if rollout and rollout.phase is RolloutPhase.ROLLED_BACK else ""


def releases() -> None:
    """Print how often a guard is right."""
    world = SimulatedService(load_shape.steady(40.0), seed=1, tick=2.0)
    world.apply(document(), GOOD)
    world.run(200.0)
    found = {guard: released(number, version, world) for number, (guard, version) in enumerate(BAD.items(), 2)}
    right = sum(guard == spoke for guard, spoke in found.items()) / len(found)
    tell("bad versions sent back by the right guard", right, "1", met=right == 1.0, guards=found)
    back = [spoke for number in range(RELEASES) if (spoke := released(100 + number, GOOD, world))]
    part = len(back) / RELEASES
    tell(f"{RELEASES} releases of the same version: sent back", part, "<= 0.05", met=part <= 0.05, guards=back)


def trouble(seed: int) -> tuple[int, int]:
    """Simulate thirty minutes of load with all kinds of faults; return the numbers of requests and of unanswered ones."""
    world = SimulatedService(load_shape.burst(30.0, 4.0, 600.0, 900.0), seed=seed)
    strategies = ("rolling", "blue-green", "canary", "shadow", "rolling", "canary")
    steps = [{"to": "20%", "for": "1m"}]
    world.apply(document(1), VersionBehaviour())
    for turn in range(36):
        if turn % 6 == 3:
            strategy = strategies[turn // 6]
            more = {"steps": steps} if strategy in ("canary", "shadow") else {}
            world.apply(document(turn + 2, strategy=strategy, **more), VersionBehaviour())
        if turn % 3 == 1:
            world.restart_daemon()
        if turn % 5 == 2:
            world.restart_router()
        if turn % 4 == 3:
            # Never the last one: its requests in flight would be lost with it.
            ready = [one.name for one in world.replicas if one.phase is ReplicaPhase.READY]
            world.kill(ready[turn % len(ready)] if len(ready) > 1 else "")
        world.change(lambda service, least=turn % 5: service_command.scaled(service, least))
        world.run(50.0)
    world.run(60.0)
    asked = sum(moment.arrived for moment in world.moments)
    return asked, asked - sum(moment.answered for moment in world.moments) - world.held


def troubles() -> None:
    """Print how many requests are lost under many faults at once."""
    found = [trouble(seed) for seed in SEEDS]
    lost = sum(one for _, one in found)
    what = "30 virtual minutes with releases, scaling, restarts and kills: requests without an answer"
    tell(what, float(lost), "0", met=lost == 0, requests=sum(asked for asked, _ in found))


def main() -> int:
    """Run all rows."""
    troubles()
    bursts()
    days()
    releases()
    return 0


if __name__ == "__main__":
    sys.exit(main())
