"""A failure of the scheduling core is contained: an exception in any call leaves other pods alone and its cause is reported."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import msgspec
import pytest
from scheduling_world import bound, gang_pod, node, pod

from fairway.engines.kubernetes.client.watch import UndecodableObject
from fairway.engines.kubernetes.objects import (
    CsiNode,
    CustomObject,
    GpuNode,
    KubernetesObject,
    PersistentVolume,
    PersistentVolumeClaim,
    Pod,
    StorageClass,
    key_of,
)
from fairway.engines.kubernetes.scheduler import core_sync, gang, memory_store, queue
from fairway.engines.kubernetes.scheduler.cluster_node import ClusterNodes
from fairway.engines.kubernetes.scheduler.containment import cluster_snapshot
from fairway.engines.kubernetes.scheduler.containment.contained_core import ContainedCore
from fairway.engines.kubernetes.scheduler.equal_pod_group import EqualPodGroups
from fairway.engines.kubernetes.scheduler.faulty_unit import KINDS, POD, FaultUnit
from fairway.engines.kubernetes.scheduler.filter.placed_pod import PlacedPods
from fairway.engines.kubernetes.scheduler.filter.request_restriction import RequestRestriction
from fairway.engines.kubernetes.scheduler.filter.volume_filter import VolumeTopology
from fairway.engines.kubernetes.scheduler.half_bound_gang import HalfBoundGangs
from fairway.plan.scheduling.delta import NodeChanged, QueueDefined
from fairway.plan.scheduling.explanation import wait_explanation
from fairway.plan.scheduling.preemption import preemption
from fairway.plan.scheduling.scheduler import Scheduler
from fairway.state.fault import LAPSE, LONGEST_RETRY
from fairway.state.job import JobKey

BOOM = "boom 4711"
VICTIM = JobKey("team", "mnist-1")
GANG = f"gang:{VICTIM}"
VICTIM_POD = "mnist-1-worker-0-r0"
LATER = {"metadata": {"name": "later"}, "provisioner": "x", "volumeBindingMode": "WaitForFirstConsumer"}


class ManualClock:
    """A clock that the test advances."""

    time = 1_700_000_000.0

    def now(self) -> float:
        return self.time


def victim(**more: Any) -> Pod:
    """Return a gang of one pod, whose placement depends on a volume."""
    volumes = [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]
    return gang_pod(0, 1, more.pop("cpu", "1"), volumes=volumes, **more)


def named(kind: type[Any], name: str, **more: Any) -> Any:
    data = {"metadata": {"name": name, **more.pop("metadata", {})}, **more}
    return msgspec.json.decode(msgspec.json.encode(data), type=kind)


class House:
    """A guarded core with a small cluster."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.guarded = ContainedCore(self.clock)
        self.pods: dict[str, Pod] = {}

    def furnish(self) -> None:
        """Add everything but pods of Fairway."""
        hear = self.guarded.hear
        hear("namespace", "team", None, named(KubernetesObject, "team"))
        hear("class", "later", None, msgspec.convert(LATER, StorageClass))
        hear("driver", "a", None, named(CsiNode, "a", spec={"drivers": []}))
        spec = {"storageClassName": "later", "resources": {"requests": {"storage": "1Gi"}}, "accessModes": ["ReadWriteOnce"]}
        hear("claim", "team/data", None, named(PersistentVolumeClaim, "data", metadata={"namespace": "team"}, spec=spec))
        for name in ("a", "b"):
            hear("node", name, None, node(name))
        hear("gpunode", "a", None, named(GpuNode, "a"))
        hear("queue", "red", None, named(CustomObject, "red", spec={"quota": {"cpu": "2"}}))
        self.put(pod("stranger", scheduler="default-scheduler", nodeName="a"))

    def put(self, one: Pod) -> None:
        self.guarded.hear(POD, key_of(one), self.pods.get(key_of(one)), one)
        self.pods[key_of(one)] = one

    def gone(self, one: Pod) -> None:
        self.guarded.hear(POD, key_of(one), self.pods.pop(key_of(one)), None)

    async def decide(self, turns: int = 3, step: float = 0.3) -> dict[str, str]:
        """Take some decisions and report their bindings to the core; return the node of each bound pod."""
        found: dict[str, str] = {}
        for _ in range(turns):
            for name, where in bound(await self.guarded.decide(self.clock.now())).items():
                found[name] = where
                one = self.pods[f"team/{name}"]
                self.put(msgspec.structs.replace(one, spec=msgspec.structs.replace(one.spec, node_name=where)))
            self.clock.time += step
        return found

    def causes(self) -> list[str]:
        return [f"{fault.subject}: {fault.text}" for fault in self.guarded.faults.all()]


def names_victim(*values: object) -> bool:
    """Return whether an argument contains the victim's name."""
    return any(_names(value) for value in values)


def _names(value: object) -> bool:
    if isinstance(value, str):
        return value in (f"team/{VICTIM_POD}", f"uid-{VICTIM_POD}")
    if isinstance(value, list | tuple):
        return any(_names(each) for each in value)
    if isinstance(value, Pod):
        return value.metadata.name == VICTIM_POD
    inner = [getattr(value, name, None) for name in ("key", "request", "running", "pod")]
    return value == VICTIM or any(each is not None and _names(each) for each in inner)


def of_victim(*args: Any) -> bool:
    return names_victim(*args)


def waits(ledger: Any, *_: Any) -> bool:
    return VICTIM in ledger.room


def name_is(name: str, at: int = 1) -> Callable[..., bool]:
    return lambda *args: args[at] == name


def always(*_: Any) -> bool:
    return True


BOUND, WAITING, GONE, GIVEN_UP, FORGETTING = "bound", "waiting", "gone", "given up", "forgetting"


@dataclass(frozen=True)
class Place:
    """A call in which an exception is raised."""

    owner: Any
    """A module or a class."""
    name: str
    only: Callable[..., bool] = of_victim
    subject: str = GANG
    """The object that must report the cause."""
    when: str = BOUND
    """What must happen so that the call is made."""
    label: str = ""

    def __str__(self) -> str:
        return f"{self.owner.__name__.rpartition('.')[2]}.{self.name}{f'-{self.label}' if self.label else ''}"


def is_node(_scheduler: Any, delta: Any, _now: float) -> bool:
    return isinstance(delta, NodeChanged) and delta.node.name == "a"


def is_queue(_scheduler: Any, delta: Any, _now: float) -> bool:
    return isinstance(delta, QueueDefined) and delta.queue.name == "red"


POD_SUBJECT = f"pod:team/{VICTIM_POD}"
PLACES = [
    Place(gang, "key_of_gang", subject=POD_SUBJECT),
    Place(gang, "member_of"),
    Place(gang, "problem"),
    Place(gang, "request_of"),
    Place(gang, "running_of"),
    Place(gang, "startable"),
    Place(gang, "place_of", only=lambda seat, _nodes: seat.role == "worker"),
    Place(memory_store, "drop_stale", only=waits),
    Place(memory_store, "forget", only=always, subject="scheduler", when=FORGETTING),
    Place(wait_explanation, "obstacles", only=lambda _ledger, heads, _now: names_victim(list(heads)), when=WAITING),
    Place(wait_explanation, "hold", when=WAITING),
    Place(preemption, "sparing", only=lambda _ledger, heads, _now: names_victim(list(heads)), when=WAITING),
    Place(ClusterNodes, "with_plugins", only=always, when=WAITING),
    Place(ClusterNodes, "node", only=lambda ground, name: name == "a" and "a" in ground._objects, subject="node:a"),
    Place(ClusterNodes, "see", only=name_is("a"), subject="node:a"),
    Place(ClusterNodes, "see_gpus", only=name_is("a"), subject="gpunode:a"),
    Place(ClusterNodes, "see_stranger", only=name_is("team/stranger"), subject="pod:team/stranger"),
    Place(RequestRestriction, "concerns"),
    Place(RequestRestriction, "narrowed"),
    Place(RequestRestriction, "put"),
    Place(RequestRestriction, "seat"),
    Place(RequestRestriction, "drop", subject=POD_SUBJECT, when=GIVEN_UP),
    Place(PlacedPods, "node", only=name_is("a"), subject="node:a"),
    Place(PlacedPods, "space", only=name_is("team"), subject="namespace:team"),
    Place(VolumeTopology, "to_bind"),
    Place(VolumeTopology, "see", only=name_is("team/data", 2), subject="claim:team/data", label="claim"),
    Place(VolumeTopology, "see", only=name_is("later", 2), subject="class:later", label="class"),
    Place(VolumeTopology, "see", only=name_is("a", 2), subject="driver:a", label="driver"),
    Place(EqualPodGroups, "join"),
    Place(EqualPodGroups, "leave"),
    Place(EqualPodGroups, "leads"),
    Place(HalfBoundGangs, "look"),
    Place(gang.PodShapeCache, "forget", subject=POD_SUBJECT, when=GONE),
    Place(Scheduler, "apply"),
    Place(Scheduler, "apply", only=is_node, subject="node:a", label="node"),
    Place(Scheduler, "apply", only=is_queue, subject="queue:red", label="queue"),
    Place(Scheduler, "decide", only=lambda scheduler, _now: VICTIM in scheduler.ledger.room),
    Place(queue, "described", only=name_is("red", 0), subject="queue:red"),
]
ELSEWHERE = {
    "HalfBoundGangs.overdue": "asks about no object; a gang in it fails in `look`",
    "HalfBoundGangs.next": "asks about no object; a gang in it fails in `look`",
    "EqualPodGroups.followers": "asks about no object; a gang in it fails in `join`",
    "gang.PodShapeCache": "makes an empty table",
}
"""Calls that no case breaks, with the reason."""


@contextmanager
def broken(place: Place) -> Iterator[list[int]]:
    """Raise an exception at the place within the block; yields a list with one entry per exception."""
    real = getattr(place.owner, place.name)
    hits: list[int] = []

    def call(*args: Any, **kwargs: Any) -> Any:
        if place.only(*args):
            hits.append(1)
            raise RuntimeError(BOOM)
        return real(*args, **kwargs)

    setattr(place.owner, place.name, call)
    try:
        yield hits
    finally:
        setattr(place.owner, place.name, real)


async def provoke(house: House, place: Place) -> None:
    """Make the failing call happen."""
    if place.when == WAITING:
        house.put(victim(cpu="100"))
    else:
        house.put(victim())
    await house.decide()
    if place.when == GONE:
        house.gone(house.pods[f"team/{VICTIM_POD}"])
    elif place.when == FORGETTING:
        house.guarded.forget(house.clock.now())
    house.guarded.holds(house.clock.now())


@pytest.mark.parametrize("place", PLACES, ids=str)
async def test_another_pod_is_placed_and_the_broken_object_names_the_cause(place: Place) -> None:
    house = House()
    with broken(place) as hits:
        house.furnish()
        if place.when == GIVEN_UP:
            house.put(victim())
            assert VICTIM_POD in bound(await house.guarded.decide(house.clock.now()))
            house.guarded.not_bound([victim()], None)
        else:
            await provoke(house, place)
        house.put(pod("other"))
        assert "other" in await house.decide()
        assert hits, "the failure was never reached"
        told = [event for event in house.guarded.faults.take_events() if event.reason == "Fault"]
        assert {event.subject for event in told} == {place.subject}
        assert all(BOOM in event.message for event in told)
        if place.subject == GANG and place.owner is not memory_store:
            assert BOOM in house.guarded.holds(house.clock.now())[FaultUnit("gang", str(VICTIM))].message
    await recovers(house, place)


async def recovers(house: House, place: Place) -> None:
    """Check that within the longest back-off everything is placed again, without a restart."""
    house.clock.time += LONGEST_RETRY
    await house.decide(12, 1.0)
    house.guarded.holds(house.clock.now())
    house.clock.time += LAPSE + LONGEST_RETRY
    assert house.causes() == []
    found = house.pods.get(f"team/{VICTIM_POD}")
    if place.when in (BOUND, GIVEN_UP, FORGETTING):
        assert found is not None
        assert found.spec.node_name
    elif place.when == WAITING:
        assert found is not None
        assert not found.spec.node_name
        assert "CPUs" in house.guarded.holds(house.clock.now())[FaultUnit("gang", str(VICTIM))].message


async def test_what_a_pod_that_is_left_out_holds_is_not_given_away() -> None:
    house = House()
    house.guarded.hear("node", "a", None, node("a", cpu="2"))
    house.put(gang_pod(0, 1))
    assert await house.decide() == {VICTIM_POD: "a"}
    with broken(Place(gang, "running_of")):
        house.put(pod("more", cpu="2"))
        house.put(pod("fits", cpu="1"))
        house.put(gang_pod(0, 1, nodeName="a", phase="Running"))
        assert await house.decide() == {"fits": "a"}
        assert GANG in {fault.subject for fault in house.guarded.faults.all()}


async def test_a_node_with_a_pod_whose_needs_are_unknown_gets_no_other_pod() -> None:
    house = House()
    for name in ("a", "b"):
        house.guarded.hear("node", name, None, node(name))
    raw = b'{"metadata": {"name": "odd", "namespace": "team"}, "spec": {"nodeName": "a", "containers": 4}}'
    head = msgspec.json.decode(raw, type=KubernetesObject)
    odd = UndecodableObject(head, "containers is no list", raw)
    mirrored = {"team/odd": odd}
    house.guarded.undecoded[POD] = mirrored
    house.guarded.unreadable(POD, odd)
    house.put(pod("x"))
    assert await house.decide() == {"x": "b"}
    assert house.causes() == ["pod:team/odd: read failed: ValueError: containers is no list"]
    house.clock.time += LONGEST_RETRY + LAPSE / 2
    await house.decide()
    assert house.causes(), "it cannot be read still"
    mirrored.clear()
    house.put(pod("y", nodeSelector={"kubernetes.io/hostname": "a"}))
    assert await house.decide() == {"y": "a"}
    assert house.causes() == []


async def test_places_that_were_decided_are_taken_over_by_the_next_core() -> None:
    """While a pod is being bound, another gang breaks the core: its place goes to no other pod, and it is not bound twice."""
    house = House()
    house.guarded.hear("node", "a", None, node("a", cpu="1"))
    house.put(pod("x"))
    assert bound(await house.guarded.decide(house.clock.now())) == {"x": "a"}
    with broken(Place(gang, "problem")) as hits:
        house.put(gang_pod(0, 1))
        house.put(pod("y"))
        assert await house.decide() == {}
        assert hits
    house.guarded.not_bound([pod("x")], None)
    assert await house.decide(1) == {"x": "a"}


async def test_a_decision_that_broke_half_way_was_never_made() -> None:
    """The second of two starts fails: the first is decided again, and bound once."""
    house = House()
    house.guarded.hear("node", "a", None, node("a", cpu="2"))
    for one in (pod("a-first"), gang_pod(0, 1)):
        house.put(one)
    with broken(Place(gang, "place_of", only=lambda seat, _nodes: seat.role == "worker")):
        outcome = await house.guarded.decide(house.clock.now())
        assert bound(outcome) == {"a-first": "a"}
        assert bound(await house.guarded.decide(house.clock.now())) == {}


async def test_gangs_of_a_queue_that_fails_wait_and_say_so(monkeypatch: pytest.MonkeyPatch) -> None:
    house = House()
    real = queue.described

    def fail(name: str, found: CustomObject) -> Any:
        if name == "red":
            raise RuntimeError(BOOM)
        return real(name, found)

    monkeypatch.setattr(queue, "described", fail)
    house.furnish()
    mark = {"fairway.dev/queue": "red"}
    one = gang_pod(0, 1)
    noted = {**one.metadata.annotations, **mark}
    house.put(msgspec.structs.replace(one, metadata=msgspec.structs.replace(one.metadata, annotations=noted)))
    house.put(pod("other"))
    assert await house.decide() == {"other": "a"}
    hold = house.guarded.holds(house.clock.now())[FaultUnit("gang", str(VICTIM))]
    assert hold.message == f"its queue red cannot be used: read failed: RuntimeError: {BOOM}"
    follower = house.guarded.follower
    told = queue.statuses(follower.scheduler.ledger, {}, follower.held_back, follower.closed)["red"]
    assert told["waiting"] == 1
    assert BOOM in told["reasons"][0]["message"]
    monkeypatch.setattr(queue, "described", real)
    before, now = (named(CustomObject, "red", spec={"quota": {"cpu": cpu}}) for cpu in ("2", "3"))
    house.guarded.hear("queue", "red", before, now)
    assert await house.decide() == {VICTIM_POD: "a"}, "a queue that changes is tried at once"
    assert house.causes() == []


async def test_memory_that_breaks_every_decision_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    house = House()
    house.guarded.follower.scheduler.ledger.memory.usage["red"] = (0.5, 1000.0)
    real = Scheduler.decide

    def fail(scheduler: Scheduler, now: float) -> Any:
        if "red" in scheduler.ledger.memory.usage:
            raise RuntimeError(BOOM)
        return real(scheduler, now)

    monkeypatch.setattr(Scheduler, "decide", fail)
    house.furnish()
    house.put(pod("other"))
    assert await house.decide() == {"other": "a"}
    assert house.causes() == [f"scheduler: read memory failed: RuntimeError: {BOOM}"]


async def test_a_core_that_fails_without_any_object_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    house = House()
    house.furnish()
    house.put(pod("other"))
    with monkeypatch.context() as patch:
        patch.setattr(Scheduler, "decide", lambda *_: 1 / 0)
        outcome = await house.guarded.decide(house.clock.now())
        assert outcome.wake_at == house.clock.now() + 1.0
        assert house.causes() == ["scheduler: schedule failed: ZeroDivisionError: division by zero"]
    house.clock.time += 1.0
    assert await house.decide() == {"other": "a"}
    assert house.causes() == []


async def test_a_gang_that_could_not_be_bound_is_held_with_back_off_and_says_why() -> None:
    house = House()
    house.guarded.hear("node", "a", None, node("a", cpu="1"))
    house.put(pod("x"))
    times = []
    for _ in range(4):
        began = house.clock.now()
        while not bound(await house.guarded.decide(house.clock.now())):
            house.clock.time += 0.25
        times.append(house.clock.now() - began)
        house.guarded.not_bound([pod("x")], OSError("no"))
        assert "bind failed: no" in house.guarded.holds(house.clock.now())[FaultUnit("gang", "team/pod/x")].message
    assert times == [0.0, 1.0, 2.0, 4.0]
    house.put(pod("y"))
    assert bound(await house.guarded.decide(house.clock.now())) == {"y": "a"}, "its place is free meanwhile"


OWNERS: dict[str, Any] = {
    "scheduler_gang": gang,
    "memory_store": memory_store,
    "wait_explanation": wait_explanation,
    "preemption": preemption,
    "queue": queue,
    "self.ground": ClusterNodes,
    "self.narrowing": RequestRestriction,
    "self.narrowing.company": PlacedPods,
    "narrowing.company": PlacedPods,
    "storage": VolumeTopology,
    "self._families": EqualPodGroups,
    "self._halves": HalfBoundGangs,
    "self._shapes": gang.PodShapeCache,
    "self.scheduler": Scheduler,
}
"""Objects whose calls are broken, by their name in the sources."""
PLAIN = {"again", "binds", "broken", "follower", "found", "ledger", "line", "members", "nodes", "parts", "placed", "pods"}
PLAIN |= {"remembered", "seats_by_role", "self", "spared", "waiting"}
"""Names for containers, the core's own tables, and calls within the same module."""


def test_every_call_of_the_core_is_broken_once_or_has_a_reason() -> None:
    called = set()
    for source in (inspect.getsource(core_sync.CoreSync), inspect.getsource(cluster_snapshot.hear)):
        for call in ast.walk(ast.parse(source)):
            if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute):
                owner = ast.unparse(call.func.value)
                if owner in OWNERS:
                    called.add(f"{OWNERS[owner].__name__.rpartition('.')[2]}.{call.func.attr}")
                else:
                    root = owner.partition(".")[0].partition("[")[0].partition("(")[0]
                    assert root in PLAIN, f"{owner} has no owner here"
    tried = {str(place).partition("-")[0] for place in PLACES}
    assert called - tried - set(ELSEWHERE) == set(), "these are not broken by any test"
    assert (tried | set(ELSEWHERE)) - called == set(), "there are no such calls"


def test_every_kind_that_is_followed_is_broken_once() -> None:
    tried = {place.subject.partition(":")[0] for place in PLACES}
    assert set(KINDS) - tried == {"volume"}, "tested with the sizes of volumes"


async def test_a_volume_whose_size_cannot_be_read_is_left_out_and_others_are_used() -> None:
    house = House()
    house.furnish()
    house.guarded.hear("volume", "odd", None, named(PersistentVolume, "odd", spec={"capacity": {"storage": "much"}}))
    house.put(victim())
    assert await house.decide() == {VICTIM_POD: "a"}
    assert house.causes() == ["volume:odd: read failed: ValueError: 'much' is not a quantity"]
    house.guarded.hear("volume", "odd", named(PersistentVolume, "odd"), None)
    assert house.causes() == []
