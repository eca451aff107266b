"""Preemption: for more urgent runs, for the owner of borrowed resources, by shrinking; and restarts afterwards."""

from __future__ import annotations

from fairway.state.node import ClusterNode, NodeDevice
from fairway.state.phase import JobPhase
from fairway.state.queue import Queue
from fairway.testing.planning_simulation import PlanningSimulation


def _world(gpus: int = 4) -> PlanningSimulation:
    devices = tuple(NodeDevice(f"GPU-{index}", index, "A100", 80 << 30) for index in range(gpus))
    return PlanningSimulation(ClusterNode("here", cpu=16.0, memory=1 << 40, devices=devices))


def _spec(gpus: str = "1", replicas: int | dict[str, int] = 1, **more: object) -> dict[str, object]:
    count = {"min": replicas, "max": replicas} if isinstance(replicas, int) else replicas
    role = {"command": ["x"], "replicas": count, "resources": {"cpu": "1", "gpu": gpus}}
    return {"roles": {"worker": role}, "grace": "10s", **more}


def test_the_more_urgent_run_gets_its_place_and_the_other_comes_again() -> None:
    world = _world()
    low = world.submit("low-1", _spec("4"))
    world.pass_time(100)
    world.checkpoint(low, 500)
    high = world.submit("high-1", _spec("2", priority=10))
    assert world.job(high).phase is JobPhase.RUNNING
    job = world.job(low)
    assert (job.phase, job.attempt, job.restarts, job.evictions) == (JobPhase.PENDING, 1, 0, 1)
    assert job.resume is not None
    assert job.resume.step == 500
    assert "2 are free" in job.hold.message or "2 of 4 are free" in job.hold.message
    told = [event.message for event in world.events if event.reason == "MakingRoom"]
    assert told == ["makes room for high-1, which is more urgent"]
    world.finish(high, "worker-0")
    assert world.job(low).phase is JobPhase.RUNNING


def test_of_two_that_could_leave_the_one_that_loses_less_does() -> None:
    world = _world()
    first = world.submit("a-1", _spec("2"))
    second = world.submit("b-1", _spec("2"))
    world.pass_time(1000)
    world.checkpoint(first, 10)
    world.submit("high-1", _spec("2", priority=1))
    assert world.job(first).evictions == 1
    assert world.job(second).evictions == 0


def test_nobody_leaves_when_it_would_not_help() -> None:
    world = _world()
    low = world.submit("low-1", _spec("2"))
    same = world.submit("same-1", _spec("2", priority=5))
    world.submit("high-1", _spec("4", priority=5))
    assert world.job(low).evictions == 0
    assert world.job(same).phase is JobPhase.RUNNING


def test_a_run_that_ends_well_while_it_makes_room_has_succeeded() -> None:
    world = _world()
    world.stubborn = {"worker-0"}
    low = world.submit("low-1", _spec("4"))
    high = world.submit("high-1", _spec("4", priority=1))
    assert world.job(low).leaving is not None
    assert world.job(high).phase is JobPhase.PENDING
    world.finish(low, "worker-0", 0)
    assert world.job(low).phase is JobPhase.SUCCEEDED
    assert world.job(high).phase is JobPhase.RUNNING


def test_saving_and_asking_to_come_again_is_no_failure() -> None:
    world = _world()
    world.stubborn = {"worker-0"}
    low = world.submit("low-1", _spec("4", restart={"max": 0}))
    high = world.submit("high-1", _spec("4", priority=1))
    world.finish(low, "worker-0", 75)
    assert world.job(low).phase is JobPhase.PENDING
    assert world.job(high).phase is JobPhase.RUNNING


def test_stopping_a_run_that_makes_room_stops_it() -> None:
    world = _world()
    world.stubborn = {"worker-0"}
    low = world.submit("low-1", _spec("4"))
    world.submit("high-1", _spec("4", priority=1))
    world.stop(low)
    world.end_stubborn(low, "worker-0")
    assert world.job(low).phase is JobPhase.STOPPED


def test_an_elastic_run_goes_on_smaller_before_anybody_has_to_leave_and_grows_again() -> None:
    world = _world()
    elastic = world.submit("elastic-1", _spec("1", {"min": 1, "max": 4}))
    assert len(world.tasks(elastic, alive=True)) == 4
    world.checkpoint(elastic, 7)
    other = world.submit("other-1", _spec("2"))
    assert world.job(other).phase is JobPhase.RUNNING
    assert len(world.tasks(elastic, alive=True)) == 2
    assert world.job(elastic).evictions == 1
    world.finish(other, "worker-0")
    world.pass_time(600)
    assert len(world.tasks(elastic, alive=True)) == 4
    assert world.job(elastic).restarts == 0


def test_an_elastic_run_whose_first_tasks_are_done_does_not_start_again_to_be_whole() -> None:
    world = _world()
    elastic = world.submit("elastic-1", _spec("1", {"min": 1, "max": 3}))
    world.checkpoint(elastic, 7)
    world.pass_time(600)
    world.finish(elastic, "worker-1")
    world.pass_time(600)
    assert len(world.tasks(elastic, alive=True)) == 2
    world.finish(elastic, "worker-0")
    world.pass_time(600)
    assert (world.job(elastic).attempt, world.job(elastic).evictions) == (0, 0)
    world.finish(elastic, "worker-2")
    assert world.job(elastic).phase is JobPhase.SUCCEEDED


def test_what_a_queue_borrowed_goes_back_to_its_owner() -> None:
    world = _world()
    world.snapshot.queues = {name: Queue(name) for name in ("default", "left", "right")}
    borrowed = [world.submit(f"left-{number}", _spec("1", queue="left")) for number in range(1, 6)]
    assert sum(world.job(key).phase is JobPhase.RUNNING for key in borrowed) == 4
    owned = [world.submit(f"right-{number}", _spec("1", queue="right")) for number in range(1, 6)]
    assert sum(world.job(key).phase is JobPhase.RUNNING for key in borrowed) == 2
    assert sum(world.job(key).phase is JobPhase.RUNNING for key in owned) == 2


def test_a_quota_without_borrowing_is_a_wall() -> None:
    world = _world()
    world.snapshot.queues = {"small": Queue("small", quota={"gpu": 2000}, borrow=False)}
    runs = [world.submit(f"a-{number}", _spec("1", queue="small")) for number in range(1, 4)]
    assert [world.job(key).phase for key in runs] == [JobPhase.RUNNING, JobPhase.RUNNING, JobPhase.PENDING]
    hold = world.job(runs[2]).hold
    assert hold is not None
    assert (hold.reason, hold.message) == ("quota", "queue small may use 2 GPUs and uses 2 GPUs; this needs 1 GPU more")


def test_shares_of_one_gpu_lie_side_by_side() -> None:
    world = _world(1)
    runs = [world.submit(f"a-{number}", _spec("0.4")) for number in range(1, 4)]
    assert [world.job(key).phase for key in runs] == [JobPhase.RUNNING, JobPhase.RUNNING, JobPhase.PENDING]
    assert {task.devices for key in runs[:2] for task in world.tasks(key, alive=True)} == {("GPU-0",)}
    alone = _spec("0.1")
    alone["roles"]["worker"]["placement"] = {"alone": True}  # type: ignore[index]
    refuses = world.submit("alone-1", alone)
    assert world.job(refuses).phase is JobPhase.PENDING, "it wants no neighbours"


def test_one_run_that_borrowed_everything_gives_way_to_the_owner_of_a_quota() -> None:
    world = _world()
    world.snapshot.queues = {"default": Queue("default"), "research": Queue("research", weight=2, quota={"gpu:A100": 2000})}
    big = world.submit("big-1", _spec("4"))
    owner = world.submit("owner-1", _spec("2", queue="research"))
    assert world.job(owner).phase is JobPhase.RUNNING
    assert world.job(big).evictions == 1
