"""Thirty broken versions and two hundred equal ones, released on a virtual clock with recorded traffic.

The traffic, bad requests and slow moments come from `recorded_traffic.json`, which `tests/integration/record_traffic.py`
recorded with a real router and real replicas; a daily wave and bursts are added. The planner is the real one. `make soak`
releases all of them and prints the table; CI releases a sample.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from fairway.simulation.service.simulated_service import SimulatedService
from fairway.simulation.service.traffic_recording import TrafficRecording
from fairway.simulation.service.version_behaviour import VersionBehaviour
from fairway.state.service import RolloutPhase
from fairway.testing.builder.service_builder import a_service_spec

GOOD = VersionBehaviour(rate=40.0, memory=0.3, good=0.95, cold_start=2.0, differs=0.002)
STRATEGIES = {
    "canary": {"steps": [{"to": "5%", "for": "10m"}, {"to": "50%", "for": "5m"}]},
    "ab": {"steps": [{"to": "20%", "for": "15m"}]},
    "shadow": {"steps": [{"to": "20%", "for": "8m"}, {"to": "100%", "for": "2m"}]},
}
GUARD = {"metric": {"name": "accuracy"}}
PAIRED = {"outputs": {"differ": "2%"}}
LONGEST = 3600.0
HALF = 0.5
EQUAL = 200


@cache
def recorded() -> TrafficRecording:
    return TrafficRecording.read((Path(__file__).parent / "recorded_traffic.json").read_text())


@dataclass(frozen=True)
class Broken:
    """A version that must be rolled back."""

    kind: str
    version: VersionBehaviour
    guards: tuple[str, ...]
    """The guards that may name the cause."""
    words: str = ""
    """Text that the reason must contain."""


def broken() -> Iterator[Broken]:
    """Yield thirty broken versions."""
    yield Broken("crash", replace(GOOD, crashes=True), ("crash",), "cannot load the model")
    yield Broken("crash", replace(GOOD, hangs=True), ("ready",), "was ready")
    for fragile in (0.2, 0.05):
        yield Broken("crash", replace(GOOD, fragile=fragile), ("crash",), "SIGSEGV")
    for refused in (0.83, 0.3, 0.1):
        yield Broken("4xx", replace(GOOD, rate=200.0, refused=refused), ("client_errors",), "client errors (4xx)")
    for errors in (1.0, 0.3, 0.05):
        yield Broken("5xx", replace(GOOD, errors=errors), ("errors",), "answers failed")
    for slower in (4.0, 8.0, 3.0):
        yield Broken("slow", replace(GOOD, rate=GOOD.rate / slower), ("slower",), "p95 of r2")
    for part in (1.0, 0.2, 0.05):
        wrong = replace(GOOD, non_finite=part, good=0.95 * (1.0 - part))
        yield Broken("NaN", wrong, ("non_finite",), "NaN or infinity")
    yield Broken("signature", replace(GOOD, refused=1.0, rate=400.0), ("client_errors",), "client errors (4xx)")
    yield Broken("signature", replace(GOOD, refused=0.5, rate=100.0), ("client_errors",), "client errors (4xx)")
    for relaid in (1.0, 0.3):
        # Other names or shapes of outputs: clients that cannot read an answer report it as wrong.
        wrong = replace(GOOD, relaid=relaid, good=0.95 * (1.0 - relaid))
        yield Broken("signature", wrong, ("outputs", "metric"))
    for leak in (0.02, 0.004, 0.001, 0.0005):
        yield Broken("leak", replace(GOOD, leak=leak), ("leak", "crash"), "memory")
    for turned in (1.0, 0.5, 0.25):
        wrong = replace(GOOD, differs=turned, reclassified=turned, good=0.95 * (1.0 - turned) + 0.05 * turned)
        yield Broken("wrong sign", wrong, ("outputs", "metric"))
    for missing in (0.1, 0.2, 0.3):
        wrong = replace(GOOD, differs=0.9, reclassified=missing, good=0.95 * (1.0 - missing))
        yield Broken("missing class", wrong, ("outputs", "metric"))


BROKEN = tuple(broken())
KINDS = tuple(dict.fromkeys(each.kind for each in BROKEN))


def traffic(seed: int) -> tuple[Callable[[float], float], float]:
    """Return the requests per second, and the offset into the recording: half-hour waves and some bursts are added to it."""
    chance = np.random.default_rng((seed, 2))
    usual, phase, begins = chance.uniform(15.0, 45.0), chance.uniform(0.0, 2.0 * math.pi), chance.uniform(0.0, 600.0)
    bursts = [(at, at + chance.uniform(5.0, 40.0), chance.uniform(1.5, 3.0)) for at in chance.uniform(0.0, LONGEST, 6)]

    def at(time: float) -> float:
        wave = 1.0 + 0.4 * math.sin(2.0 * math.pi * time / 1800.0 + phase)
        burst = max((factor for begin, end, factor in bursts if begin <= time < end), default=1.0)
        return usual * wave * burst * recorded().rate(begins + time)

    return at, begins


def released(old: VersionBehaviour, new: VersionBehaviour, strategy: str, seed: int) -> tuple[SimulatedService, float]:
    """Return a world with a completed release, and the largest share of the traffic that the new version received in it."""
    rate, begins = traffic(seed)
    world = SimulatedService(rate, seed=seed, tick=1.0, recording=recorded(), begins=begins)
    guard = {**(PAIRED if strategy == "shadow" else GUARD), "ready": "3m"}
    rollout = {"strategy": strategy, **STRATEGIES[strategy], "guard": guard}
    world.apply(a_service_spec(1, rollout=rollout, replicas={"min": 1, "max": 20}), old)
    world.run(90.0)
    assert world.service is not None
    assert world.service.stable == 1
    world.apply(a_service_spec(2, rollout=rollout, replicas={"min": 1, "max": 20}), new)
    until = world.now + LONGEST
    while world.now < until and (world.service.rollout.phase not in (RolloutPhase.DONE, RolloutPhase.ROLLED_BACK)):
        world.run(10.0)
    parts = [dict(plan.routes.weights).get(2, 0) for _, plan in world.plans if plan.routes]
    return world, max(parts) / 10_000


def missed(case: Broken, strategy: str, seed: int) -> str:
    """Return what is wrong with the verdict on a broken version; empty: nothing."""
    world, part = released(GOOD, case.version, strategy, seed)
    rollout = world.service.rollout
    guard = rollout.reason.partition(":")[0]
    if rollout.phase is not RolloutPhase.ROLLED_BACK:
        return f"{rollout.phase}: {rollout.reason}"
    if part >= HALF:
        return f"caught with {part:.0%} of the traffic: {rollout.reason}"
    if guard not in case.guards or case.words not in rollout.reason:
        return f"another cause is named: {rollout.reason}"
    return ""


def alike(seed: int) -> VersionBehaviour:
    """Return a version that is no worse: a little faster or slower, with its own cache, and differences within tolerance."""
    chance = np.random.default_rng((seed, 3))
    cache = (chance.uniform(0.0, 0.25), chance.uniform(50.0, 2000.0))
    return replace(GOOD, rate=GOOD.rate * chance.uniform(0.9, 1.2), memory=chance.uniform(0.25, 0.35), cache=cache)


def with_old(seed: int) -> VersionBehaviour:
    """Return the serving version, with its own errors, non-finite answers and bad clients, which its successor shares."""
    chance = np.random.default_rng((seed, 4))
    parts = {name: float(chance.choice([0.0, 0.0, 0.002, 0.01, 0.04])) for name in ("errors", "refused", "non_finite")}
    return replace(GOOD, **parts)


def falsely_blamed(strategy: str, seed: int) -> str:
    """Return the reason for which a version that is no worse was rolled back or held; empty: it took over."""
    old = with_old(seed)
    new = replace(alike(seed), errors=old.errors, refused=old.refused, non_finite=old.non_finite, restored=old.non_finite)
    world, _ = released(old, new, strategy, seed)
    return "" if world.service.rollout.phase is RolloutPhase.DONE else world.service.rollout.reason or "it never ended"


def test_there_are_thirty_of_nine_kinds():
    assert (len(BROKEN), len(KINDS)) == (30, 9)


@pytest.mark.parametrize(("kind", "strategy"), list(zip(KINDS, itertools.cycle(STRATEGIES), strict=False)))
def test_a_broken_version_of_each_kind_is_sent_back_and_the_cause_named(kind, strategy):
    case = next(each for each in BROKEN if each.kind == kind)
    assert missed(case, strategy, seed=1) == ""


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("seed", [1, 2])
def test_an_equal_version_takes_over(strategy, seed):
    assert falsely_blamed(strategy, seed) == ""


@pytest.mark.soak
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_the_whole_matrix(strategy):
    """All thirty with each strategy; a third of the two hundred with each."""
    caught, wrong, false = Counter(), [], []
    for number, case in enumerate(BROKEN):
        problem = missed(case, strategy, seed=100 + number)
        caught[case.kind] += not problem
        wrong += [f"{case.kind} {number}: {problem}"] if problem else []
    mine = [seed for seed, each in zip(range(EQUAL), itertools.cycle(STRATEGIES), strict=False) if each == strategy]
    for seed in mine:
        problem = falsely_blamed(strategy, seed)
        false += [f"equal {seed}: {problem}"] if problem else []
    print(f"\n{strategy}: caught before {HALF:.0%} of the traffic, the cause named: {caught.total()} of {len(BROKEN)}")
    for kind in KINDS:
        print(f"  {kind:15}{caught[kind]:>3} of {sum(case.kind == kind for case in BROKEN)}")
    print(f"  equal versions sent back or held: {len(false)} of {len(mine)}")
    print("\n".join([*wrong, *false]))
    assert len(wrong) <= 1
    assert len(false) <= len(mine) * 0.02
