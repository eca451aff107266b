"""Runs placed by another scheduler: they are handed over whole, and its results are processed."""

from __future__ import annotations

from fairway.plan.action import BindGang
from fairway.plan.external_scheduler import CAUSE_WITHIN
from fairway.state.job import JobKey, JobState, RunEviction
from fairway.state.phase import JobPhase, TaskPhase
from fairway.state.task import TaskExit, TaskReport
from fairway.testing.planning_simulation import PlanningSimulation


def spec(least: int = 2, most: int = 2, **more: object) -> dict[str, object]:
    return {"roles": {"worker": {"replicas": {"min": least, "max": most}, "command": ["x"]}}, **more}


def cluster() -> PlanningSimulation:
    return PlanningSimulation(places=False)


def sit(world: PlanningSimulation, key: JobKey, phase: TaskPhase = TaskPhase.RUNNING) -> None:
    reports = [TaskReport(task.key, phase, started=world.now, node=f"n{task.key.index}") for task in world.tasks(key, alive=True)]
    world.see(key, *reports)


def handed_over(world: PlanningSimulation) -> list[BindGang]:
    return [action for action in world.actions if isinstance(action, BindGang)]


def hold(job: JobState) -> str:
    assert job.hold is not None
    return job.hold.message


def test_a_run_is_handed_over_whole_and_once_and_waits() -> None:
    world = cluster()
    key = world.submit("mnist-1", spec())
    (bound,) = handed_over(world)
    assert [task.key.task for task in bound.tasks] == ["worker-0", "worker-1"]
    assert all(task.node == "" for task in bound.tasks)
    assert world.job(key).phase is JobPhase.PENDING
    world.pass_time(60.0)
    assert len(handed_over(world)) == 1


def test_more_than_the_cluster_has_is_handed_over_too_since_others_decide() -> None:
    world = cluster()
    world.submit("wide-1", spec(500, 500))
    (bound,) = handed_over(world)
    assert len(bound.tasks) == 500


def test_the_schedulers_reason_is_repeated_and_goes_with_the_start() -> None:
    world = cluster()
    key = world.submit("mnist-1", spec())
    first = world.tasks(key)[0].key
    world.see(key, TaskReport(first, TaskPhase.PLACED, message="needs 4 GPUs on one node; the most any node has free is 3"))
    assert "the most any node has free is 3" in hold(world.job(key))
    sit(world, key)
    job = world.job(key)
    assert (job.phase, job.hold) == (JobPhase.RUNNING, None)
    assert [task.node for task in world.tasks(key)] == ["n0", "n1"]


def test_who_is_told_to_leave_saves_and_is_handed_over_again_at_the_size_it_was_told() -> None:
    world = cluster()
    key = world.submit("mnist-1", spec(1, 3))
    sit(world, key)
    world.checkpoint(key, 40)
    (task,) = world.tasks(key, alive=True)
    leave = RunEviction("grow", "there is room for 3", 0.0, {"worker": 3})
    world.see(key, TaskReport(task.key, TaskPhase.RUNNING, leave=leave))
    job = world.job(key)
    assert (job.attempt, job.restarts, job.evictions) == (1, 0, 1)
    assert [task.key.task for task in handed_over(world)[-1].tasks] == ["worker-0", "worker-1", "worker-2"]
    assert job.resume is not None
    assert job.resume.step == 40


def test_an_end_from_outside_costs_no_restart() -> None:
    world = cluster()
    key = world.submit("mnist-1", spec(restart={"max": 0}))
    sit(world, key)
    lost = world.tasks(key, alive=True)[0]
    world.end(lost, TaskPhase.FAILED, TaskExit(disrupted="its node n0 was lost"))
    world.turn()
    job = world.job(key)
    assert (job.restarts, job.attempt) == (0, 1)
    assert job.outcome is not None
    assert job.outcome.reason == "Disrupted"
    assert len(handed_over(world)) == 2


def test_a_failure_waits_out_its_back_off_before_it_is_handed_over_again() -> None:
    world = cluster()
    key = world.submit("mnist-1", spec(1, 1, restart={"max": 5, "backoff": "10s"}))
    for _ in range(2):
        sit(world, key)
        world.finish(key, "worker-0", 1)
    assert len(handed_over(world)) == 2
    world.pass_time(9.0)
    assert len(handed_over(world)) == 2
    world.pass_time(2.0)
    assert len(handed_over(world)) == 3


def test_pods_that_never_came_to_be_are_handed_over_again() -> None:
    world = cluster()
    key = world.submit("mnist-1", spec())
    world.see(key, *(TaskReport(task.key, TaskPhase.PENDING) for task in world.tasks(key)))
    assert len(handed_over(world)) == 2
    assert {task.key for task in handed_over(world)[0].tasks} == {task.key for task in handed_over(world)[1].tasks}


def test_a_stop_ends_what_waits_elsewhere() -> None:
    world = cluster()
    key = world.submit("mnist-1", spec())
    world.stop(key)
    assert world.job(key).phase is JobPhase.STOPPED


PEER = "RuntimeError: [1] Connection closed by peer [10.1.0.7]:4711"


def gone(world: PlanningSimulation, key: JobKey, name: str, node: str) -> None:
    """Report a task as lost with its node."""
    world.end(
        next(task for task in world.tasks(key, alive=True) if task.key.task == name), TaskPhase.LOST, TaskExit(disrupted=node)
    )
    world.turn()


def test_who_lost_a_peer_waits_for_the_loss_of_the_peers_node_which_costs_nothing() -> None:
    world = cluster()
    key = world.submit("mnist-1", spec(restart={"max": 0}))
    sit(world, key)
    world.checkpoint(key, 40)
    world.report(key, 55)
    world.finish(key, "worker-0", 1, tail=PEER)
    assert world.job(key).phase is JobPhase.RUNNING
    assert "worker-0 lost a peer" in hold(world.job(key))
    world.pass_time(80.0)
    gone(world, key, "worker-1", "its node n1 was lost")
    job = world.job(key)
    assert (job.attempt, job.restarts) == (1, 0)
    assert job.outcome is not None
    assert job.outcome.reason == "Disrupted"
    assert job.resume is not None
    assert (job.resume.step, job.resume.lost_steps) == (40, 15)


def test_a_cause_that_never_comes_is_waited_for_no_longer_than_a_loss_takes_to_be_seen() -> None:
    world = cluster()
    key = world.submit("mnist-1", spec(restart={"max": 1}))
    sit(world, key)
    world.finish(key, "worker-0", 1, tail=PEER)
    world.pass_time(CAUSE_WITHIN - 1.0)
    assert world.job(key).attempt == 0
    world.pass_time(1.0)
    job = world.job(key)
    assert (job.attempt, job.restarts, job.phase) == (1, 1, JobPhase.PENDING)


def test_a_peer_that_failed_by_itself_is_the_cause_at_once() -> None:
    world = cluster()
    key = world.submit("mnist-1", spec(restart={"max": 0}))
    sit(world, key)
    world.finish(key, "worker-0", 1, tail=PEER)
    world.finish(key, "worker-1", 3, tail="ValueError: no")
    job = world.job(key)
    assert job.phase is JobPhase.FAILED
    assert job.outcome is not None
    assert (job.outcome.task, job.outcome.reason) == ("worker-1", "Error")


def test_when_all_lost_their_peers_there_is_nobody_left_to_wait_for() -> None:
    world = cluster()
    key = world.submit("mnist-1", spec(restart={"max": 1}))
    sit(world, key)
    for name in ("worker-0", "worker-1"):
        world.finish(key, name, 1, tail=PEER)
    assert (world.job(key).attempt, world.job(key).restarts) == (1, 1)


def test_a_stop_does_not_wait_for_a_cause() -> None:
    world = cluster()
    key = world.submit("mnist-1", spec())
    sit(world, key)
    world.finish(key, "worker-0", 1, tail=PEER)
    world.stop(key)
    assert (world.job(key).phase, world.job(key).hold) == (JobPhase.STOPPED, None)
