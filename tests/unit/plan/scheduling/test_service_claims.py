"""Replicas of services preempt runs that lose little by their priority, and runs that lose all their work as a job would."""

from __future__ import annotations

import pytest

from fairway.plan.scheduling.decision import EvictDecision, EvictionCause
from fairway.plan.scheduling.explanation import wait_explanation
from fairway.plan.scheduling.gang_request import HEAD_START
from fairway.plan.scheduling.preemption import preemption
from fairway.state.job import JobKey
from fairway.state.queue import Queue
from fairway.testing.fake.fake_cluster import FakeCluster, gang, machine


def a_floor(*queues: Queue) -> FakeCluster:
    return FakeCluster([machine("n", 4)], queues or [Queue("default")])


def evicted(floor: FakeCluster) -> list[EvictDecision]:
    return [eviction for decision in floor.settle() for eviction in decision.evictions]


def serve(floor: FakeCluster, run: str = "web-r1-1", gpus: int = 2, priority: int = HEAD_START, **more: object) -> JobKey:
    return floor.ask(run, gang(gpus), priority=priority, service="web", **more)


def test_a_run_that_has_saved_nothing_stays_until_it_saves() -> None:
    floor = a_floor()
    run = floor.ask("long", gang(4))
    floor.settle()
    floor.now += 3600
    replica = serve(floor)
    assert evicted(floor) == []
    assert preemption.spared(floor.scheduler.ledger, floor.requests[replica], floor.now) == [run]
    floor.now += 60
    floor.save(run)
    (leaves,) = evicted(floor)
    assert (leaves.key, leaves.cause, leaves.to_whom, leaves.service) == (run, EvictionCause.PRIORITY, replica, "web")
    assert wait_explanation.eviction(leaves) == "makes room for service web, which is more urgent"


def test_and_the_replica_starts_as_soon_as_the_run_ends() -> None:
    floor = a_floor()
    run = floor.ask("long", gang(4))
    floor.settle()
    replica = serve(floor)
    later = floor.ask("later", gang(4))
    floor.settle()
    floor.end(run)
    floor.settle()
    assert replica in floor.running, "it waits before jobs"
    assert later in floor.waiting


@pytest.mark.parametrize(
    ("service", "job", "leaves"),
    [(100, 0, False), (100, -1, True), (101, 0, True), (110, 10, False), (111, 10, True), (50, 0, False), (50, -51, True)],
)
def test_over_a_run_that_has_saved_nothing_a_service_has_the_rights_of_a_job(service: int, job: int, leaves: bool) -> None:
    """A job with the service's priority minus the head start is treated alike."""
    for more in ({"priority": service, "service": "web"}, {"priority": service - HEAD_START}):
        floor = a_floor()
        run = floor.ask("long", gang(4), priority=job)
        floor.settle()
        floor.ask("other", gang(2), **more)
        assert [eviction.key for eviction in evicted(floor)] == ([run] if leaves else [])


def test_of_several_those_leave_that_can_resume() -> None:
    floor = a_floor()
    old = floor.ask("old", gang(2))
    floor.settle()
    floor.now += 3600
    floor.save(old)
    floor.now += 1800
    # The younger run would lose less time, but all of its work.
    floor.ask("young", gang(2))
    floor.settle()
    serve(floor)
    assert [eviction.key for eviction in evicted(floor)] == [old]


def test_a_replica_is_no_run_that_loses_work() -> None:
    floor = a_floor()
    lesser = serve(floor, "web-r1-1", 4)
    floor.settle()
    floor.ask("api-r1-1", gang(4), priority=HEAD_START + 50, service="api")
    assert [eviction.key for eviction in evicted(floor)] == [lesser]


def test_a_job_that_is_more_urgent_takes_places_from_both() -> None:
    floor = a_floor()
    run, replica = floor.ask("long", gang(2)), serve(floor)
    floor.settle()
    floor.ask("urgent", gang(4), priority=HEAD_START + 1)
    assert {eviction.key for eviction in evicted(floor)} == {run, replica}


def test_what_belongs_to_its_queue_is_given_back_to_a_replica_as_to_a_job() -> None:
    for more in ({"priority": HEAD_START, "service": "web"}, {"priority": 0}):
        floor = a_floor(Queue("batch", quota={"gpu": 1000}), Queue("online", quota={"gpu": 3000}))
        run = floor.ask("long", gang(4), queue="batch")
        floor.settle()
        floor.ask("web-r1-1", gang(2), queue="online", **more)
        (leaves,) = evicted(floor)
        assert (leaves.key, leaves.cause) == (run, EvictionCause.RECLAIM)


def test_a_job_of_the_same_shape_and_priority_is_not_held_up_by_a_replica() -> None:
    floor = a_floor()
    run = floor.ask("long", gang(4))
    floor.settle()
    serve(floor)
    urgent = floor.ask("urgent", gang(2), priority=HEAD_START)
    (leaves,) = evicted(floor)
    assert (leaves.key, leaves.to_whom) == (run, urgent)


def test_why_it_waits_names_the_runs_that_stay_and_what_would_help() -> None:
    floor = a_floor()
    floor.ask("long", gang(4))
    floor.settle()
    replica = serve(floor)
    floor.settle()
    ledger, request = floor.scheduler.ledger, floor.requests[replica]
    obstacle = wait_explanation.obstacles(ledger, [request], floor.now)[ledger.line_key(request, floor.now)]
    hold = wait_explanation.hold(request, obstacle, ledger.nodes, preemption.spared(ledger, request, floor.now))
    assert hold.message.endswith("; long has saved nothing and is not evicted")
    assert hold.what_would_help == (
        "wait until it saves or ends, or fairway stop long, or give the service a `priority` of more than 100"
    )
    many = [JobKey("default", f"r{number}") for number in range(6)]
    assert "r0, r1, r2, r3 and others have saved nothing and are" in wait_explanation.hold(request, obstacle, None, many).message


def test_where_others_leave_nobody_is_spared() -> None:
    floor = a_floor()
    run = floor.ask("long", gang(4))
    floor.settle()
    floor.save(run)
    replica = serve(floor)
    assert preemption.spared(floor.scheduler.ledger, floor.requests[replica], floor.now) == []
    job = floor.ask("other", gang(4))
    assert preemption.spared(floor.scheduler.ledger, floor.requests[job], floor.now) == [], "of jobs nothing is said"
