"""A scheduler restored from another's memory decides as that one does, whatever happened before."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from fairway.plan.scheduling import queue_fill, seat_reservation
from fairway.plan.scheduling.gang import GangRole, GangShape, TaskShape
from fairway.plan.scheduling.placement import mix_learner
from fairway.plan.scheduling.preemption import preemption
from fairway.plan.scheduling.reservation import backfill
from fairway.state.queue import Queue
from fairway.testing.fake.fake_cluster import FakeCluster, gang, machine

KINDS = ["T4", "A100"]
PLAIN_GANGS = [gang(1), gang(1), gang(2), gang(4), gang(2, 2), gang(1, kind="A100"), gang(1, 4), gang(4, 2)]
ODD_GANGS = [
    gang(0, cpu=24000),
    gang(0, 3, cpu=16000),
    gang(1, milli=400),
    gang(2, milli=600),
    gang(1, 1, 4),
    gang(1, 2, 5, kind="T4"),
    gang(1, 3, apart=True),
    GangShape(
        (GangRole("worker", TaskShape(cpu=1000, gpus=1), 2, 2), GangRole("server", TaskShape(cpu=8000, memory=2048), 1, 1))
    ),
    GangShape(
        (
            GangRole("worker", TaskShape(cpu=1000, gpus=2), 1, 2),
            GangRole("scorer", TaskShape(cpu=1000, gpus=1, gpu_milli=500), 2, 3),
        )
    ),
]
QUEUES = [
    Queue("plain"),
    Queue("heavy", weight=3),
    Queue("limited", per_user={"gpu": 3000, "runs": 3}),
    Queue("bounded", quota={"gpu": 6000}, borrow=False),
    Queue("lent", quota={"gpu": 4000}),
    Queue("typed", quota={"gpu:T4": 2000, "gpu:A100": 2000}, borrow=False),
]
TURNS = Queue("turns", time_slice=600.0)
STEPS = {"ask": 50, "end": 26, "save": 8, "leave": 5, "node": 6, "queue": 2}
"""How often each kind of event happens, relative to the others."""


class History:
    """A random history, played step by step."""

    def __init__(self, seed: int, *, odd: bool) -> None:
        self.draw = random.Random(seed)
        self.gangs = [*PLAIN_GANGS, *ODD_GANGS] if odd else PLAIN_GANGS
        self.queues = [*QUEUES, TURNS] if odd else QUEUES
        nodes = [machine(f"n{number}", 4, self.draw.choice(KINDS)) for number in range(5)]
        self.floor = FakeCluster(nodes, self.queues, "fairway" if odd else "best-fit")

    def step(self) -> None:
        """Play a random event."""
        draw, floor = self.draw, self.floor
        what = draw.choices(list(STEPS), list(STEPS.values()))[0]
        if what == "ask" or not floor.waiting or not floor.running:
            self._ask()
        elif what == "end":
            floor.end(draw.choice(sorted(floor.running)))
        elif what == "save":
            floor.save(draw.choice(sorted(floor.running)))
        elif what == "leave":
            floor.withdraw(draw.choice(sorted(floor.waiting)))
        elif what == "node":
            self._change_node()
        else:
            changed = draw.choice(self.queues)
            floor.put_queue(replace(changed, weight=draw.choice([1, 2, 3]), per_user=draw.choice([{}, {"runs": 2}])))

    def pass_time(self) -> None:
        """Advance the clock; often not at all between two decisions."""
        self.floor.now += self.draw.choice([0.0, 0.0, 1.0, 20.0, 70.0, 900.0])
        self.floor.happen()

    def _ask(self) -> None:
        draw, floor = self.draw, self.floor
        floor.ask(
            f"r{floor.submitted:03}",
            draw.choice(self.gangs),
            queue=draw.choice(self.queues).name,
            user=draw.choice(["ann", "bob"]),
            name=draw.choice(["", "x"]),
            priority=draw.choice([0, 0, 0, 0, 5]),
            limit=draw.choice([None, 300.0, 7200.0]),
            resumes=draw.random() < 0.3,
        )

    def _change_node(self) -> None:
        """Add or remove a node, or make an idle device unhealthy or healthy again."""
        draw, floor = self.draw, self.floor
        name = f"n{draw.randrange(6)}"
        if name not in floor.nodes:
            floor.put_node(machine(name, 4, draw.choice(KINDS)))
        elif draw.random() < 0.3:
            floor.drop_node(name)
        else:
            node = floor.nodes[name]
            used = {uuid for running in floor.running.values() for seat in running.seats for uuid in seat.devices}
            device = draw.choice(node.devices)
            if device.uuid not in used:
                sick = replace(device, healthy=not device.healthy)
                floor.put_node(replace(node, devices=tuple(sick if each == device else each for each in node.devices)))


def play(seed: int, rounds: int, *, odd: bool) -> None:
    """Before every decision, restore another scheduler; it must decide the same and have the same memory afterwards."""
    history = History(seed, odd=odd)
    floor = history.floor
    for _ in range(24):
        history.step()
    for number in range(rounds):
        for _ in range(history.draw.choice([1, 1, 2])):
            history.step()
        floor.look_on(backwards=number % 2 == 1)
        floor.decide()
        kept = [scheduler.ledger.memory.encode() for scheduler in floor.schedulers]
        assert kept[0] == kept[1]
        floor.check()
        del floor.schedulers[1:]
        history.pass_time()


def narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lower every limit so far that small histories reach it."""
    monkeypatch.setattr(queue_fill, "RESERVED_A_QUEUE", 2)
    monkeypatch.setattr(backfill, "DEPTH", 3)
    monkeypatch.setattr(backfill, "MOST_LOOKS", 4)
    monkeypatch.setattr(preemption, "MOST_PREEMPTORS", 3)
    monkeypatch.setattr(preemption, "MANY", 6)
    monkeypatch.setattr(seat_reservation, "MOST_PLAYED", 6)
    monkeypatch.setattr(mix_learner, "FIRST_LESSON", 10)


@pytest.mark.parametrize("seed", range(7))
def test_one_made_anew_decides_the_same(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    narrow(monkeypatch)
    play(seed, 30, odd=False)


@pytest.mark.parametrize("seed", range(6))
def test_it_does_for_gangs_of_every_kind(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    narrow(monkeypatch)
    play(seed, 30, odd=True)
