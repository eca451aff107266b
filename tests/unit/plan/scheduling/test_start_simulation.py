"""Forecasting the start of a waiting run by playing the scheduler forward."""

from __future__ import annotations

import pytest

from fairway.plan.scheduling import start_simulation
from fairway.plan.scheduling.forecast import duration_estimate, start_forecast
from fairway.plan.scheduling.forecast.start_forecast import ForecastCalibration
from fairway.plan.scheduling.gang import GangRole, GangShape, TaskShape
from fairway.plan.scheduling.gang_request import GangRequest
from fairway.plan.scheduling.scheduler import Scheduler
from fairway.plan.scheduling.scheduler_memory import SchedulerMemory
from fairway.plan.scheduling.start_simulation import StartProspect, StartSimulation
from fairway.state.job import JobKey
from fairway.state.node import ClusterNode, NodeDevice
from fairway.state.queue import Queue
from fairway.testing.builder.scheduler_builder import asked_in_turn

NOW = 1000.0
EXACT = ForecastCalibration(stretch=0.0)


def never() -> bool:
    return False


def ask(name: str, gpus: int = 1, limit: float | None = None, **more: object) -> GangRequest:
    part = GangRole("worker", TaskShape(cpu=1000, gpus=gpus))
    return GangRequest(JobKey("default", name), GangShape((part,)), 0.0, name=name, limit=limit, **more)  # type: ignore[arg-type]


def scheduler(gpus: int, *requests: GangRequest, memory: SchedulerMemory | None = None, queue: Queue | None = None) -> Scheduler:
    node = ClusterNode("a", 64.0, 1 << 40, tuple(NodeDevice(f"GPU-{each}", each) for each in range(gpus)))
    made = asked_in_turn([node], requests, [] if queue is None else [queue], memory)
    made.decide(NOW)
    return made


def of(made: Scheduler, name: str) -> start_simulation.SimulationState:
    return start_simulation.situation(made.ledger, JobKey("default", name), NOW)


def wait(made: Scheduler, name: str, part: float) -> float | None:
    return StartSimulation(of(made, name), lambda _: part).wait(start_simulation.HORIZON, never)


def test_it_starts_when_the_one_before_it_ends() -> None:
    core = scheduler(1, ask("x-1", limit=9000.0), ask("y-1"))
    assert wait(core, "y-1", 0.5) == pytest.approx((9000 - NOW) / 2, abs=60)
    assert wait(core, "y-1", 1.0) == pytest.approx(9000 - NOW, abs=60)


def test_those_before_it_in_line_take_their_turn_first() -> None:
    core = scheduler(1, ask("x-1", limit=3000.0), ask("y-1", limit=4000.0), ask("z-1"))
    assert wait(core, "z-1", 1.0) == pytest.approx(3000 - NOW + 4000, rel=0.06)


def test_durations_come_from_the_history_of_the_like() -> None:
    history = duration_estimate.DurationHistory()
    for lasted in (3000.0, 4000.0, 5000.0, 6000.0, 7000.0):
        history = duration_estimate.record(history, "", "x-1", 1, lasted)
    core = scheduler(1, ask("x-1"), ask("y-1"), memory=SchedulerMemory(history=history))
    prospect = start_simulation.prospect(of(core, "y-1"), EXACT, never)
    assert prospect.forecast is not None
    assert prospect.plays == start_forecast.SCENARIOS
    assert prospect.forecast.low + 60 >= 3000 - NOW
    assert prospect.forecast.high <= 7000 - NOW + 60
    assert prospect.forecast.low < prospect.forecast.median < prospect.forecast.high


def test_a_large_gang_is_not_overtaken_for_ever() -> None:
    small = [ask(f"s-{number}", 1, limit=4000.0) for number in range(4)]
    core = scheduler(4, *small, ask("wide-1", 4), *(ask(f"t-{number}", 1, limit=4000.0) for number in range(4)))
    assert wait(core, "wide-1", 1.0) == pytest.approx(4000 - NOW, abs=120)


def test_beyond_the_horizon_is_said() -> None:
    core = scheduler(1, ask("x-1", limit=10 * 86400.0), ask("y-1"))
    assert wait(core, "y-1", 1.0) is None
    far = scheduler(1, ask("x-1", limit=100 * 86400.0), ask("y-1"))
    prospect = start_simulation.prospect(of(far, "y-1"), EXACT, never)
    assert (prospect.forecast, prospect.beyond, prospect.horizon) == (None, True, start_simulation.HORIZON)


def test_when_patience_is_spent_what_was_seen_so_far_is_told() -> None:
    core = scheduler(1, *(ask(f"x-{number}", limit=5000.0) for number in range(30)))
    looks = iter([False] * 7 + [True] * 100)
    prospect = start_simulation.prospect(of(core, "x-29"), EXACT, lambda: next(looks))
    assert prospect.forecast is None
    assert not prospect.beyond
    assert prospect.plays < start_simulation.LEAST_PLAYS
    assert prospect.at_least > 0


def test_few_plays_are_better_than_none() -> None:
    core = scheduler(1, ask("x-1", limit=9000.0), ask("y-1"))
    count = 0

    def spent() -> bool:
        nonlocal count
        count += 1
        return count > 6

    prospect = start_simulation.prospect(of(core, "y-1"), EXACT, spent)
    assert start_simulation.LEAST_PLAYS <= prospect.plays < start_forecast.SCENARIOS
    assert prospect.forecast is not None


def test_runs_that_take_turns_and_are_evicted_come_again() -> None:
    queue = Queue("default", time_slice=600.0)
    core = scheduler(1, ask("x-1", limit=400_000.0, resumes=True), ask("y-1"), queue=queue)
    waited = wait(core, "y-1", 1.0)
    assert waited is not None
    assert waited < 30_000, "it need not wait until the other has ended"


def test_the_real_scheduler_is_left_as_it_is() -> None:
    core = scheduler(1, ask("x-1", limit=9000.0), ask("y-1"))
    before = core.ledger.memory.encode()
    first, second = (start_simulation.prospect(of(core, "y-1"), EXACT, never) for _ in range(2))
    assert first == second, "the same question, the same answer"
    assert isinstance(first, StartProspect)
    assert core.ledger.memory.encode() == before


def test_of_very_many_before_it_only_some_play_a_part() -> None:
    requests = [ask(f"x-{number}", limit=5000.0) for number in range(start_simulation.MOST_WAITING + 20)]
    core = scheduler(1, *requests)
    start = of(core, f"x-{len(requests) - 1}")
    assert len(start.waiting) == start_simulation.MOST_WAITING + 1
    assert start.left_out == len(requests) - 2 - start_simulation.MOST_WAITING


def test_without_a_history_it_is_a_guess() -> None:
    core = scheduler(1, ask("x-1"), ask("y-1"))
    prospect = start_simulation.prospect(of(core, "y-1"), EXACT, never)
    assert prospect.forecast is not None
    assert prospect.guess
    limited = scheduler(1, ask("x-1", limit=9000.0), ask("y-1"))
    assert not start_simulation.prospect(of(limited, "y-1"), EXACT, never).guess
    history = duration_estimate.record(duration_estimate.DurationHistory(), "", "x-1", 1, 3000.0)
    known = scheduler(1, ask("x-1"), ask("y-1"), memory=SchedulerMemory(history=history))
    assert not start_simulation.prospect(of(known, "y-1"), EXACT, never).guess


def test_a_run_that_does_not_matter_makes_no_guess_of_it() -> None:
    # A run of unknown length occupies other places; the run that blocks this one has a time limit.
    core = scheduler(2, ask("x-1", limit=2000.0), ask("u-1"), ask("y-1"))
    play = StartSimulation(of(core, "y-1"), lambda key: 0.1 if key.name == "x-1" else 0.9)
    assert play.wait(start_simulation.HORIZON, never) is not None
    assert not play.guessed


def test_there_is_no_estimate_behind_a_service() -> None:
    history = duration_estimate.DurationHistory()
    for _ in range(9):
        # Replaced replicas say nothing about when a service ends.
        history = duration_estimate.record(history, "", "web-r1-1", 1, 600.0)
    served = ask("web-r1-1", priority=100, service="web")
    core = scheduler(1, served, ask("y-1"), memory=SchedulerMemory(history=history))
    prospect = start_simulation.prospect(of(core, "y-1"), EXACT, never)
    assert prospect.forecast is None
    assert (prospect.beyond, prospect.endless) == (True, ("web",))


def test_a_service_elsewhere_does_not_matter() -> None:
    core = scheduler(2, ask("web-r1-1", priority=100, service="web"), ask("x-1", limit=3000.0), ask("y-1"))
    prospect = start_simulation.prospect(of(core, "y-1"), EXACT, never)
    assert prospect.forecast is not None
    assert prospect.endless == ()
