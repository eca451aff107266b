"""For any sequence of events: no resource is given twice, gangs are whole, nothing starts twice, and nothing is forgotten."""

from __future__ import annotations

from collections import Counter

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from fairway.plan.planning_cycle import plan
from fairway.spec.job import JobSpec
from fairway.state.job import JobKey
from fairway.state.node import ClusterNode, NodeDevice
from fairway.state.phase import JobPhase
from fairway.testing.planning_simulation import PlanningSimulation

SHAPES = st.builds(
    lambda workers, extra, cpu, gpu, scope, restarts: {
        "roles": {
            "worker": {
                "command": ["x"],
                "replicas": {"min": workers, "max": workers + extra},
                "resources": {"cpu": str(cpu), "gpu": str(gpu)} if gpu else {"cpu": str(cpu)},
            }
        },
        "restart": {"scope": scope, "max": restarts, "backoff": "1s"},
        "grace": "5s",
    },
    st.integers(1, 3),
    st.integers(0, 2),
    st.sampled_from([0.5, 1, 2]),
    st.integers(0, 2),
    st.sampled_from(["gang", "task", "shrink"]),
    st.integers(0, 3),
)


class Planning(RuleBasedStateMachine):
    """Random commands of users, and random failures."""

    def __init__(self) -> None:
        super().__init__()
        devices = tuple(NodeDevice(f"GPU-{index}", index, "A100") for index in range(4))
        self.world = PlanningSimulation(ClusterNode("here", cpu=6.0, memory=1 << 40, devices=devices))
        self.keys: list[JobKey] = []

    @rule(shape=SHAPES, priority=st.integers(-1, 1))
    def submit(self, shape: dict[str, object], priority: int) -> None:
        """Submit a run."""
        spec = JobSpec.model_validate({**shape, "priority": priority})
        self.keys.append(self.world.submit(f"job-{len(self.keys) + 1}", spec))

    @rule(pick=st.integers(0, 1000), code=st.sampled_from([0, 0, 0, 1, 75, -9]))
    def a_task_ends(self, pick: int, code: int) -> None:
        """End a running task in some way."""
        running = [(key, task) for key in self.keys for task in self.world.tasks(key, alive=True)]
        if running:
            key, task = running[pick % len(running)]
            self.world.finish(key, task.key.task, max(code, 0), signal=9 if code < 0 else None)

    @rule(pick=st.integers(0, 1000))
    def a_task_is_lost(self, pick: int) -> None:
        """Kill a supervisor."""
        running = [(key, task) for key in self.keys for task in self.world.tasks(key, alive=True)]
        if running:
            key, task = running[pick % len(running)]
            self.world.lose(key, task.key.task)

    @rule(pick=st.integers(0, 1000))
    def somebody_stops_a_run(self, pick: int) -> None:
        """Stop a run as a user does."""
        active = [key for key in self.keys if not self.world.over(key)]
        if active:
            self.world.stop(active[pick % len(active)])

    @rule(pick=st.integers(0, 1000))
    def a_run_saves(self, pick: int) -> None:
        """Write a checkpoint, so that the run can resume."""
        running = [key for key in self.keys if self.world.job(key).phase is JobPhase.RUNNING]
        if running:
            self.world.checkpoint(running[pick % len(running)], step=pick)

    @rule(seconds=st.floats(0.1, 100))
    def time_goes_by(self, seconds: float) -> None:
        """Let time pass without events."""
        self.world.pass_time(seconds)

    @invariant()
    def room_is_never_given_twice(self) -> None:
        """No core and no device has two owners."""
        alive = [task for key in self.keys for task in self.world.tasks(key, alive=True)]
        assert sum(task.need.cpu for task in alive) <= 6.0 + 1e-6
        assert all(count == 1 for count in Counter(device for task in alive for device in task.devices).values())
        assert all(len(task.devices) == int(task.need.gpu) for task in alive)

    @invariant()
    def nothing_is_started_twice(self) -> None:
        """Each attempt of each task is started once."""
        assert all(count == 1 for count in Counter(self.world.started).values())

    @invariant()
    def gangs_are_whole(self) -> None:
        """A running gang has at least its minimum; a smaller one is being ended."""
        for key in self.keys:
            job = self.world.job(key)
            if job.phase is JobPhase.RUNNING and job.spec.restart.scope != "task":
                begun = [task for task in self.world.tasks(key) if task.key.attempt == job.attempt]
                assert len(begun) >= job.spec.roles["worker"].replicas.min

    @invariant()
    def what_is_over_holds_nothing(self) -> None:
        """A run that has ended has no live task, and records how it ended."""
        for key in self.keys:
            job = self.world.job(key)
            if job.phase.over:
                assert not self.world.tasks(key, alive=True)
                assert job.outcome is not None
                assert job.finished is not None

    @invariant()
    def who_waits_knows_why(self) -> None:
        """Every waiting run has a reason, or a time before which it does not start."""
        for key in self.keys:
            job = self.world.job(key)
            if job.phase in (JobPhase.PENDING, JobPhase.RESTARTING):
                assert job.hold is not None or job.not_before is not None

    @invariant()
    def the_same_snapshot_gives_the_same_plan(self) -> None:
        """Planning is a function. (`PlanningSimulation` checks that what it remembers between turns affects only its speed.)"""
        assert plan(self.world.snapshot, self.world.now) == plan(self.world.snapshot, self.world.now)


Planning.TestCase.settings = settings(max_examples=40, stateful_step_count=40, deadline=None)
TestPlanning = Planning.TestCase


def test_what_was_kept_for_one_that_is_stopped_is_free_for_a_planner_that_begins_anew() -> None:
    """Found by the test above: a planner with memory started the third run at once, a new one first reserved its place."""
    state = Planning()
    for workers, most, cpu, gpu, priority in ((1, 2, 0.5, 2, 0), (2, 4, 1, 1, 1), (1, 1, 2, 0, 0)):
        resources = {"cpu": str(cpu), "gpu": str(gpu)} if gpu else {"cpu": str(cpu)}
        role = {"command": ["x"], "replicas": {"min": workers, "max": most}, "resources": resources}
        restart = {"scope": "gang", "max": 0, "backoff": "1s"}
        state.submit({"roles": {"worker": role}, "restart": restart, "grace": "5s"}, priority)
    state.somebody_stops_a_run(0)
    assert state.world.job(state.keys[2]).phase is JobPhase.RUNNING
