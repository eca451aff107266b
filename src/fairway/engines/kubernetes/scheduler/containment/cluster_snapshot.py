"""The last known state of all cluster objects, from which a core can be rebuilt. No I/O."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

from fairway.engines.kubernetes.objects import Pod
from fairway.engines.kubernetes.scheduler import gang, memory_store, queue
from fairway.engines.kubernetes.scheduler.core_sync import CoreSync, PendingDecisions
from fairway.engines.kubernetes.scheduler.faulty_unit import (
    CLAIM,
    CLASS,
    DRIVER,
    GANG,
    GPU_NODE,
    KINDS,
    NAMESPACE,
    NODE,
    POD,
    QUEUE,
    VOLUME,
    FaultUnit,
    FaultyObjectsError,
)
from fairway.plan import faulty_object
from fairway.plan.scheduling.scheduler import Scheduler
from fairway.plan.scheduling.scheduler_memory import SchedulerMemory


class ClusterSnapshot:
    """Every object by kind and key, in its last known state."""

    def __init__(self) -> None:
        self.things: dict[str, dict[str, Any]] = {kind: {} for kind in KINDS}

    def put(self, kind: str, key: str, thing: Any) -> None:
        """Record an object; None removes it."""
        if thing is None:
            self.things[kind].pop(key, None)
        else:
            self.things[kind][key] = thing

    def get(self, kind: str, key: str) -> Any:
        """Return the object; None when there is none."""
        return self.things[kind].get(key)

    def without(self, out: Collection[FaultUnit]) -> ClusterSnapshot:
        """Return a copy without these units, for a search while this one goes on changing."""
        copy = ClusterSnapshot()
        for kind, own in self.things.items():
            copy.things[kind] = {key: thing for key, thing in own.items() if FaultUnit(kind, key) not in out}
        return copy

    def part(self, units: Collection[FaultUnit]) -> ClusterSnapshot:
        """Return a copy with these units only."""
        subset, kept = ClusterSnapshot(), set(units)
        for kind, own in self.things.items():
            subset.things[kind] = {
                key: thing for key, thing in own.items() if (unit_of(thing) if kind == POD else FaultUnit(kind, key)) in kept
            }
        return subset

    def units(self, out: Collection[FaultUnit]) -> list[FaultUnit]:
        """Return all units but those in `out`, in the order in which a core receives them; pods count as gangs."""
        order = [FaultUnit(kind, key) for kind in KINDS if kind != POD for key in self.things[kind]]
        order += dict.fromkeys(unit_of(pod) for pod in self.things[POD].values())
        return [unit for unit in order if unit not in out]

    def pods(self) -> Iterator[tuple[str, Pod]]:
        """Yield all pods by key."""
        yield from self.things[POD].items()


def unit_of(pod: Pod) -> FaultUnit:
    """Return the gang of a pod."""
    return FaultUnit(GANG, str(gang.key_of_gang(pod)))


def hear(follower: CoreSync, kind: str, key: str, before: Any, now: Any) -> None:
    """Pass one object's change to the core: its former and its present state."""
    narrowing = follower.narrowing
    storage = narrowing.storage
    among: dict[str, dict[str, Any]] = {
        VOLUME: storage.volumes,
        CLASS: storage.classes,
        DRIVER: storage.drivers,
        CLAIM: storage.claims,
    }
    if kind == POD:
        follower.pod(key, before, now)
    elif kind == NODE:
        follower.node(key, before, now)
    elif kind == GPU_NODE:
        follower.gpu_node(key, before, now)
    elif kind == QUEUE:
        follower.queue(key, queue.described(key, now) if now is not None else None)
    elif kind == NAMESPACE:
        narrowing.company.space(key, now.metadata.labels if now is not None else None)
    else:
        storage.see(among[kind], key, now)


def build(world: ClusterSnapshot, kept: SchedulerMemory, pending: PendingDecisions, out: Collection[FaultUnit]) -> CoreSync:
    """Build a core from all objects but those in `out`. Raises `FaultyObjectsError` naming the objects that it rejected."""
    follower, broken = CoreSync(Scheduler(kept)), FaultyObjectsError()
    follower.resume(pending)
    for kind in KINDS:
        for key, thing in world.things[kind].items():
            with broken.noting(kind, key):
                if FaultUnit(kind, key) not in out and (kind != POD or not out or unit_of(thing) not in out):
                    hear(follower, kind, key, None, thing)
    broken.check()
    return follower


def find_culprit(
    world: ClusterSnapshot, kept: str, pending: PendingDecisions, out: Collection[FaultUnit], now: float
) -> tuple[FaultUnit | None, Exception] | None:
    """Find the object with which a decision fails: None when it does not fail; no unit when it fails without any object.

    Objects are added one after another to an empty cluster. The search is binary, as in `plan/faulty_object.py`.
    """
    world = world.without(out)
    units = world.units(out)

    def problem(count: int) -> Exception | None:
        try:
            build(world.part(units[:count]), memory_store.read(kept), pending, out).decide(now)
        except Exception as error:  # noqa: BLE001 - the purpose is to find out what raises.
            return error
        return None

    alone = problem(0)
    if alone is not None:
        return None, alone
    bad = faulty_object.first_bad(len(units), problem)
    return (units[bad[0] - 1], bad[1]) if bad is not None else None
