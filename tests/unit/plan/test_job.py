"""The life of a run, as data: how the plan reacts to events."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fairway.plan.action import BindGang, EvictTask, NudgeTask
from fairway.plan.admission import never_fits
from fairway.state.job import RunEviction
from fairway.state.node import ClusterNode, NodeDevice
from fairway.state.phase import JobPhase, TaskPhase
from fairway.state.task import TaskExit
from fairway.testing.planning_simulation import PlanningSimulation


def spec(workers: int = 2, **more: object) -> dict[str, object]:
    return {"roles": {"worker": {"replicas": {"min": workers, "max": workers}, "command": ["x"]}}, **more}


def test_a_gang_starts_whole_and_succeeds_when_every_worker_has() -> None:
    world = PlanningSimulation()
    key = world.submit("mnist-1", spec())
    assert world.job(key).phase is JobPhase.RUNNING
    assert [task.key.task for task in world.tasks(key)] == ["worker-0", "worker-1"]
    world.finish(key, "worker-0")
    assert world.job(key).phase is JobPhase.RUNNING
    world.finish(key, "worker-1")
    assert world.job(key).phase is JobPhase.SUCCEEDED
    assert world.job(key).outcome is not None
    assert world.job(key).outcome.reason == "Completed"


@pytest.mark.parametrize(("leads", "told"), [((True, True), 1), ((True, False), 0)])
def test_tasks_that_formed_separate_worlds_are_told_so_once_at_the_end(leads: tuple[bool, bool], told: int) -> None:
    world = PlanningSimulation()
    key = world.submit("mnist-1", spec())
    for task, leading in zip(world.tasks(key), leads, strict=True):
        world.end(task, TaskPhase.SUCCEEDED, TaskExit(0, world=1, leads=leading))
    world.turn()
    assert world.job(key).phase is JobPhase.SUCCEEDED
    assert [event.reason for event in world.events].count("SeparateWorlds") == told


def test_what_does_not_fit_waits_with_the_reason_and_starts_when_there_is_room() -> None:
    world = PlanningSimulation(ClusterNode("here", cpu=2.0, memory=1 << 30))
    first = world.submit("a-1", spec(2))
    second = world.submit("b-1", spec(1))
    hold = world.job(second).hold
    assert world.job(second).phase is JobPhase.PENDING
    assert hold is not None
    assert hold.reason == "cpu"
    assert "needs 1 CPU" in hold.message
    assert "0 of 2 are free" in hold.message
    for name in ("worker-0", "worker-1"):
        world.finish(first, name)
    assert world.job(second).phase is JobPhase.RUNNING
    assert world.job(second).hold is None


def test_everybody_in_a_line_is_told_when_the_reason_changes() -> None:
    def cores(count: int) -> dict[str, object]:
        return {"roles": {"worker": {"command": ["x"], "resources": {"cpu": str(count)}}}}

    world = PlanningSimulation(ClusterNode("here", cpu=4.0, memory=1 << 30))
    world.submit("large-1", cores(2))
    small = world.submit("small-1", cores(1))
    waiting = [world.submit(f"wide-{number}", cores(3)) for number in (1, 2, 3)]
    assert all("1 of 4" in world.job(key).hold.message for key in waiting)
    world.finish(small, "worker-0")
    assert all("2 of 4" in world.job(key).hold.message for key in waiting)


def test_a_gang_is_never_half_placed() -> None:
    world = PlanningSimulation(ClusterNode("here", cpu=3.0, memory=1 << 30))
    one = {"roles": {"worker": {"command": ["x"], "resources": {"cpu": "2"}}}}
    world.submit("a-1", one)
    gang = {"roles": {"worker": {"replicas": {"min": 2, "max": 2}, "command": ["x"], "resources": {"cpu": "1"}}}}
    second = world.submit("b-1", gang)
    assert world.tasks(second, alive=True) == []


def test_what_is_behind_a_blocked_run_may_start_only_where_it_takes_nothing_from_it() -> None:
    device = NodeDevice("GPU-0", 0, "A100")
    world = PlanningSimulation(ClusterNode("here", cpu=4.0, memory=1 << 30, devices=(device,)))
    gpu = {"roles": {"worker": {"command": ["x"], "resources": {"gpu": "1", "cpu": "1"}}}}
    world.submit("a-1", gpu)
    blocked = world.submit("b-1", gpu)
    small = world.submit("c-1", {"roles": {"worker": {"command": ["x"], "resources": {"cpu": "2"}}}})
    assert world.job(blocked).hold is not None
    assert world.job(blocked).hold.reason == "gpu"
    assert world.job(small).phase is JobPhase.RUNNING
    large = world.submit("d-1", {"roles": {"worker": {"command": ["x"], "resources": {"cpu": "1"}}}})
    assert world.job(large).phase is JobPhase.PENDING, "the last core is kept for the run that waits for the GPU"


def test_tasks_that_share_all_cores_fit_however_many_they_are() -> None:
    world = PlanningSimulation(ClusterNode("here", cpu=2.0, memory=1 << 30))
    key = world.submit("a-1", spec(3))
    assert world.job(key).phase is JobPhase.RUNNING
    assert never_fits(world.job(key), world.snapshot.nodes) == ""


def test_a_higher_priority_goes_first() -> None:
    world = PlanningSimulation(ClusterNode("here", cpu=1.0, memory=1 << 30))
    running = world.submit("a-1", spec(1, priority=5))
    low = world.submit("b-1", spec(1))
    high = world.submit("c-1", spec(1, priority=5))
    world.finish(running, "worker-0")
    assert world.job(high).phase is JobPhase.RUNNING
    assert world.job(low).phase is JobPhase.PENDING


def test_one_failure_restarts_the_gang_from_the_checkpoint() -> None:
    world = PlanningSimulation()
    key = world.submit("mnist-1", spec())
    world.report(key, 4200, loss=0.5)
    world.checkpoint(key, 4200)
    world.now += 90
    world.finish(key, "worker-1", signal=9)
    job = world.job(key)
    assert job.phase is JobPhase.RUNNING
    assert job.attempt == 1
    assert job.restarts == 1
    assert job.resume is not None
    assert (job.resume.step, job.resume.lost_seconds) == (4200, 90)
    assert sorted(str(task.key) for task in world.tasks(key, alive=True)) == [
        "default/mnist-1/worker-0#1",
        "default/mnist-1/worker-1#1",
    ]
    assert world.snapshot.tasks[key][world.started[0]].phase is TaskPhase.STOPPED


def test_without_a_checkpoint_the_restart_says_so() -> None:
    world = PlanningSimulation()
    key = world.submit("mnist-1", spec(1))
    world.finish(key, "worker-0", 1)
    assert world.job(key).resume is not None
    assert world.job(key).resume.step is None


def test_the_budget_ends_and_the_first_failure_is_the_cause() -> None:
    world = PlanningSimulation()
    key = world.submit("mnist-1", spec(2, restart={"max": 1}))
    world.finish(key, "worker-1", 3)
    assert world.job(key).phase is JobPhase.RUNNING
    world.now += 1
    tasks = {task.key.task: task for task in world.tasks(key, alive=True)}
    world.end(tasks["worker-0"], TaskPhase.FAILED, TaskExit(1, tail="RuntimeError: Connection reset by peer"))
    world.now += 1
    world.end(tasks["worker-1"], TaskPhase.FAILED, TaskExit(4, tail="ValueError: bad label"))
    world.turn()
    outcome = world.job(key).outcome
    assert world.job(key).phase is JobPhase.FAILED
    assert outcome is not None
    assert outcome.task == "worker-1", "a survivor of a broken collective is not the cause"
    assert outcome.exit_code == 4
    assert "all 1 restarts are used up" in outcome.message


def test_back_off_doubles_after_the_first_restart() -> None:
    world = PlanningSimulation()
    key = world.submit("mnist-1", spec(1, restart={"max": 5, "backoff": "10s"}))
    world.finish(key, "worker-0", 3)
    assert world.tasks(key, alive=True), "the first restart is at once"
    world.finish(key, "worker-0", 3)
    assert not world.tasks(key, alive=True)
    world.pass_time(9)
    assert not world.tasks(key, alive=True)
    world.pass_time(1.5)
    assert world.tasks(key, alive=True)
    world.finish(key, "worker-0", 3)
    world.pass_time(19)
    assert not world.tasks(key, alive=True)
    world.pass_time(1.5)
    assert world.tasks(key, alive=True)


def test_the_same_traceback_without_progress_is_final() -> None:
    world = PlanningSimulation()
    key = world.submit("mnist-1", spec(1))
    world.report(key, 10)
    world.finish(key, "worker-0", 1, traceback="abc")
    assert world.job(key).phase is JobPhase.RUNNING
    world.finish(key, "worker-0", 1, traceback="abc")
    assert world.job(key).phase is JobPhase.FAILED
    assert world.job(key).outcome is not None
    assert world.job(key).outcome.reason == "SameError"


def test_the_same_traceback_at_another_step_is_forgiven() -> None:
    world = PlanningSimulation()
    key = world.submit("mnist-1", spec(1))
    world.report(key, 10)
    world.finish(key, "worker-0", 1, traceback="abc")
    world.report(key, 20)
    world.finish(key, "worker-0", 1, traceback="abc")
    world.pass_time(5)
    assert world.job(key).phase is JobPhase.RUNNING


@pytest.mark.parametrize("code", [2, 126, 127])
def test_what_cannot_run_is_not_tried_again(code: int) -> None:
    world = PlanningSimulation()
    key = world.submit("mnist-1", spec(1))
    world.finish(key, "worker-0", code)
    assert world.job(key).phase is JobPhase.FAILED


def test_an_interrupted_run_is_stopped_and_not_started_again() -> None:
    world = PlanningSimulation()
    key = world.submit("mnist-1", spec(restart={"max": 3}))
    task = next(task for task in world.tasks(key) if task.key.task == "worker-1")
    world.end(task, TaskPhase.FAILED, TaskExit(1, interrupted=True))
    world.turn()
    job = world.job(key)
    assert job.phase is JobPhase.STOPPED
    assert job.outcome is not None
    assert (job.outcome.reason, job.outcome.task, job.restarts) == ("Interrupted", "worker-1", 0)


def test_exit_75_starts_again_and_costs_nothing() -> None:
    world = PlanningSimulation()
    key = world.submit("mnist-1", spec(1, restart={"max": 0}))
    for step in range(15):
        world.report(key, step)
        world.finish(key, "worker-0", 75)
        assert world.job(key).phase is JobPhase.RUNNING, "one that makes progress starts again at once"
    assert world.job(key).restarts == 0


def test_scope_task_restarts_only_the_one_that_failed() -> None:
    world = PlanningSimulation()
    key = world.submit("mnist-1", spec(2, restart={"scope": "task"}))
    world.finish(key, "worker-1", signal=9)
    assert [str(task.key) for task in world.tasks(key, alive=True)] == [
        "default/mnist-1/worker-0#0",
        "default/mnist-1/worker-1#1",
    ]
    binding = [action for action in world.actions if isinstance(action, BindGang)][-1]
    assert [task.key.task for task in binding.tasks] == ["worker-1"]
    assert [task.key.task for task in binding.peers] == ["worker-0"]
    world.finish(key, "worker-0")
    world.finish(key, "worker-1")
    assert world.job(key).phase is JobPhase.SUCCEEDED


def test_scope_shrink_goes_on_with_fewer_down_to_the_minimum() -> None:
    world = PlanningSimulation()
    elastic = {
        "roles": {"worker": {"replicas": {"min": 1, "max": 3}, "command": ["x"]}},
        "restart": {"scope": "shrink", "max": 9},
    }
    key = world.submit("mnist-1", elastic)
    assert len(world.tasks(key, alive=True)) == 3, "as many as fit"
    for left in (2, 1, 1):
        world.finish(key, "worker-0", signal=9)
        world.pass_time(60)
        assert len(world.tasks(key, alive=True)) == left


def test_scope_shrink_leaves_out_only_those_that_were_the_cause() -> None:
    world = PlanningSimulation()
    elastic = {"roles": {"worker": {"replicas": {"min": 1, "max": 4}, "command": ["x"]}}, "restart": {"scope": "shrink"}}
    key = world.submit("mnist-1", elastic)
    tasks = {task.key.task: task for task in world.tasks(key, alive=True)}
    for name in ("worker-0", "worker-1"):
        world.end(tasks[name], TaskPhase.FAILED, TaskExit(1, tail="Connection reset by peer"))
    world.finish(key, "worker-3", signal=9)
    assert len(world.tasks(key, alive=True)) == 3


def test_the_abort_of_a_watchdog_that_lost_its_peer_is_not_the_cause() -> None:
    world = PlanningSimulation()
    key = world.submit("mnist-1", spec(2, restart={"max": 0}))
    tasks = {task.key.task: task for task in world.tasks(key, alive=True)}
    world.end(tasks["worker-0"], TaskPhase.FAILED, TaskExit(None, 6, tail="[Rank 0] NCCL error: remote process exited"))
    world.finish(key, "worker-1", 4)
    outcome = world.job(key).outcome
    assert outcome is not None
    assert (outcome.task, outcome.exit_code) == ("worker-1", 4)


def test_an_elastic_gang_takes_what_there_is() -> None:
    world = PlanningSimulation(ClusterNode("here", cpu=2.0, memory=1 << 30))
    roles = {"worker": {"replicas": {"min": 1, "max": 8}, "command": ["x"], "resources": {"cpu": "1"}}}
    key = world.submit("mnist-1", {"roles": roles})
    assert len(world.tasks(key, alive=True)) == 2
    assert world.job(key).sizes == {"worker": 2}


def test_parameter_servers_are_stopped_when_the_chief_has_succeeded() -> None:
    world = PlanningSimulation()
    roles = {name: {"command": ["x"]} for name in ("chief", "ps", "worker")}
    key = world.submit("tf-1", {"roles": roles})
    world.finish(key, "chief-0")
    assert world.job(key).phase is JobPhase.SUCCEEDED
    assert {task.key.role: task.phase for task in world.tasks(key)} == {
        "chief": TaskPhase.SUCCEEDED,
        "ps": TaskPhase.STOPPED,
        "worker": TaskPhase.STOPPED,
    }


def test_success_all_waits_for_every_role() -> None:
    world = PlanningSimulation()
    roles = {name: {"command": ["x"]} for name in ("chief", "worker")}
    key = world.submit("tf-1", {"roles": roles, "success": "all"})
    world.finish(key, "chief-0")
    assert world.job(key).phase is JobPhase.RUNNING
    world.finish(key, "worker-0")
    assert world.job(key).phase is JobPhase.SUCCEEDED


def test_stop_at_step_asks_first_and_presses_after_the_grace() -> None:
    world = PlanningSimulation()
    key = world.submit("mnist-1", spec(1, stop={"at_step": 100}, grace="10s"))
    world.report(key, 99)
    assert world.job(key).phase is JobPhase.RUNNING
    world.report(key, 100)
    assert isinstance(world.actions[-1], NudgeTask)
    assert world.job(key).phase is JobPhase.STOPPING
    world.pass_time(9)
    assert world.tasks(key, alive=True)
    world.pass_time(2)
    assert world.job(key).phase is JobPhase.SUCCEEDED
    assert world.job(key).outcome is not None
    assert world.job(key).outcome.reason == "StopCondition"


def test_stop_when_a_metric_is_reached_and_the_program_ends_by_itself() -> None:
    world = PlanningSimulation()
    key = world.submit("mnist-1", spec(1, stop={"when": "accuracy >= 0.98"}))
    world.report(key, 1, accuracy=0.9)
    assert world.job(key).phase is JobPhase.RUNNING
    world.report(key, 2, accuracy=0.985)
    world.finish(key, "worker-0", 1)
    assert world.job(key).phase is JobPhase.SUCCEEDED, "it was told to end; how it did so is its own matter"


def test_a_timeout_fails_the_run() -> None:
    world = PlanningSimulation()
    key = world.submit("mnist-1", spec(1, timeout="60s"))
    world.pass_time(59)
    assert world.job(key).phase is JobPhase.RUNNING
    world.pass_time(2)
    assert world.job(key).phase is JobPhase.FAILED
    assert world.job(key).outcome is not None
    assert world.job(key).outcome.reason == "Timeout"


def test_stop_takes_the_grace_and_then_the_hard_way() -> None:
    world = PlanningSimulation()
    key = world.submit("mnist-1", spec(1, grace="10s"))
    world.stubborn = {"worker-0"}
    world.stop(key)
    assert world.job(key).phase is JobPhase.STOPPING
    world.pass_time(30)
    evictions = [action.grace for action in world.actions if isinstance(action, EvictTask)]
    assert evictions == [10.0, 0.0], "asked once with the grace, and again without when the supervisor did not do it"
    assert world.job(key).phase is JobPhase.STOPPED


def test_a_run_that_waits_is_stopped_at_once() -> None:
    world = PlanningSimulation(ClusterNode("here", cpu=1.0, memory=1 << 30))
    world.submit("a-1", spec(1))
    waiting = world.submit("b-1", spec(1))
    world.stop(waiting)
    assert world.job(waiting).phase is JobPhase.STOPPED


def test_a_binding_that_the_engine_refuses_is_tried_again_later() -> None:
    world = PlanningSimulation()
    world.refusal = "GPU 0 is held by another home"
    key = world.submit("mnist-1", spec(1))
    assert world.job(key).hold is not None
    assert world.job(key).hold.message == "GPU 0 is held by another home"
    world.refusal = ""
    world.pass_time(1.1)
    assert world.job(key).phase is JobPhase.RUNNING


def test_out_of_memory_asks_for_more_next_time() -> None:
    world = PlanningSimulation()
    roles = {"worker": {"command": ["x"], "resources": {"memory": "1Gi"}}}
    key = world.submit("mnist-1", {"roles": roles})
    task = world.tasks(key, alive=True)[0]
    world.end(task, TaskPhase.FAILED, TaskExit(None, out_of_memory=True, signal=9))
    world.turn()
    assert world.tasks(key, alive=True)[0].need.memory == int(1.5 * 2**30)
    assert world.job(key).outcome is not None
    assert world.job(key).outcome.reason == "OutOfMemory"


def test_a_lost_task_counts_as_a_failure() -> None:
    world = PlanningSimulation()
    key = world.submit("mnist-1", spec(1, restart={"max": 0}))
    world.lose(key, "worker-0")
    assert world.job(key).phase is JobPhase.FAILED
    assert world.job(key).outcome is not None
    assert world.job(key).outcome.reason == "Lost"


@pytest.mark.parametrize("how", ["stop", "timeout", "leave"])
def test_who_is_stopped_is_asked_first_and_a_broken_gang_is_not(how: str) -> None:
    world = PlanningSimulation()
    key = world.submit("mnist-1", spec(2, timeout="1h"))
    world.finish(key, "worker-1", signal=9)
    broken = [action for action in world.actions if isinstance(action, EvictTask)]
    assert [(action.key.task, action.ask) for action in broken] == [("worker-0", False)]
    world.actions.clear()
    if how == "stop":
        world.stop(key)
    elif how == "timeout":
        world.pass_time(3601)
    else:
        world.snapshot.put_job(replace(world.job(key), leaving=RunEviction("priority", "makes room", world.now)))
        world.turn()
    asked = [action for action in world.actions if isinstance(action, EvictTask)]
    assert asked
    assert all(action.ask for action in asked)
