"""Remembering the first runs of each queue never changes a decision."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from fairway.plan.scheduling import queue_fill
from fairway.plan.scheduling.delta import RunPlaced
from fairway.plan.scheduling.gang import TaskSeat
from fairway.plan.scheduling.gang_request import GangRequest, RunningGang
from fairway.plan.scheduling.queue_front import QueueFrontCache
from fairway.state.job import JobKey
from fairway.state.queue import Queue
from fairway.testing.fake.fake_cluster import FakeCluster, gang, machine

GANGS = [gang(1), gang(1), gang(2), gang(4), gang(2, 2), gang(1, kind="A100"), gang(1, 4), gang(4, 2)]
QUEUES = [
    Queue("plain"),
    Queue("heavy", weight=3),
    Queue("limited", per_user={"gpu": 3000, "runs": 3}),
    Queue("bounded", quota={"gpu": 6000}, borrow=False),
    Queue("lent", quota={"gpu": 4000}),
    Queue("typed", quota={"gpu:T4": 2000, "gpu:A100": 2000}, borrow=False),
]


def a_step(floor: FakeCluster, draw: random.Random) -> None:
    what = draw.choices(["ask", "end", "leave", "node", "queue"], [50, 30, 5, 6, 2])[0]
    if what == "ask" or not floor.waiting or not floor.running:
        queue, user = draw.choice(QUEUES).name, draw.choice(["ann", "bob"])
        priority, limit = draw.choice([0, 0, 0, 0, 5]), draw.choice([None, 300.0, 7200.0])
        floor.ask(f"r{floor.submitted:03}", draw.choice(GANGS), queue=queue, user=user, priority=priority, limit=limit)
    elif what == "end":
        floor.end(draw.choice(sorted(floor.running)))
    elif what == "leave":
        floor.withdraw(draw.choice(sorted(floor.waiting)))
    elif what == "node":
        change_node(floor, draw)
    else:
        changed = draw.choice(QUEUES)
        floor.put_queue(replace(changed, weight=draw.choice([1, 2, 3]), per_user=draw.choice([{}, {"runs": 2}])))


def change_node(floor: FakeCluster, draw: random.Random) -> None:
    """Add or remove a node, or make an idle device unhealthy or healthy again."""
    name = f"n{draw.randrange(6)}"
    if name not in floor.nodes:
        floor.put_node(machine(name, 4, draw.choice(["T4", "A100"])))
    elif draw.random() < 0.3:
        floor.drop_node(name)
    else:
        node = floor.nodes[name]
        used = {uuid for running in floor.running.values() for seat in running.seats for uuid in seat.devices}
        device = draw.choice(node.devices)
        if device.uuid not in used:
            sick = replace(device, healthy=not device.healthy)
            floor.put_node(replace(node, devices=tuple(sick if each == device else each for each in node.devices)))


class Forgetful(QueueFrontCache):
    """Examines every run again each time."""

    def keep(self, *_found: object, **_more: object) -> None:
        """Remember nothing."""


@pytest.mark.parametrize("seed", range(8))
def test_one_that_remembers_nothing_decides_the_same(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queue_fill, "RESERVED_A_QUEUE", 2 + seed % 2)
    draw = random.Random(seed)
    floor = FakeCluster([machine(f"n{number}", 4, draw.choice(["T4", "A100"])) for number in range(5)], QUEUES)
    floor.look_on()
    forgetful = floor.schedulers[1]
    forgetful._findings.fronts = Forgetful()
    for _ in range(24):
        a_step(floor, draw)
    for _ in range(50):
        for _ in range(draw.choice([1, 1, 2])):
            a_step(floor, draw)
        # Treat every node as one on which something was freed.
        forgetful.ledger.freed_nodes.update(floor.nodes)
        floor.decide()
        assert forgetful.ledger.memory.encode() == floor.scheduler.ledger.memory.encode()
        floor.now += draw.choice([0.0, 0.0, 1.0, 20.0, 70.0, 900.0])
        floor.happen()


def test_nobody_walks_past_those_for_whom_nothing_has_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    floor = FakeCluster([machine("n0", 4)], [Queue("a"), Queue("b")])
    # It has a higher priority, so that no other run can claim its place.
    floor.ask("busy", gang(4), queue="a", limit=7200.0, priority=5)
    floor.settle()
    for number in range(6):
        floor.ask(f"w{number}", gang(4), queue="ab"[number % 2])
    floor.settle()
    floor.decide()
    shown: list[str] = []
    monkeypatch.setattr(QueueFrontCache, "keep", lambda _self, _ledger, name, *_found, full: shown.append(name))
    floor.decide()
    assert shown == []
    floor.ask("last", gang(2), queue="b")
    floor.decide()
    assert shown == ["b"]


def test_a_queue_whose_account_has_changed_is_looked_at_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that waited for room may now wait for a quota: it gets no reservation any more, and other runs may take the place."""
    floor = FakeCluster([machine("n0", 4), machine("n1", 4)], [Queue("a", quota={"gpu": 4000}, borrow=False)])
    floor.ask("busy", gang(3), queue="other", priority=5, limit=7200.0)
    floor.ask("also-busy", gang(3), queue="other", priority=5, limit=7200.0)
    floor.settle()
    # No node has four free devices: the run waits for room, and later, as its queue holds more, for its quota.
    large = floor.ask("large", gang(4), queue="a")
    floor.settle()
    floor.decide()
    assert str(large) in floor.scheduler.ledger.memory.reservations
    shown: list[str] = []
    monkeypatch.setattr(QueueFrontCache, "keep", lambda _self, _ledger, name, *_found, full: shown.append(name))
    floor.decide()
    assert shown == []
    request = GangRequest(JobKey("default", "found"), gang(1), floor.now, queue="a")
    used = {uuid for running in floor.running.values() for seat in running.seats for uuid in seat.devices}
    (idle,) = {device.uuid for device in floor.nodes["n0"].devices} - used
    floor.tell(RunPlaced(RunningGang(request, (TaskSeat("worker", 0, request.gang.parts[0].shape, "n0", (idle,)),), floor.now)))
    floor.decide()
    assert shown[:1] == ["a"]
    assert str(large) not in floor.scheduler.ledger.memory.reservations
