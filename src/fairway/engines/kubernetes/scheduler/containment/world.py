"""What the scheduler has heard of the cluster, to be told again to a core that is made anew. No I/O."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

from fairway.engines.kubernetes.objects import Pod
from fairway.engines.kubernetes.scheduler import gangs, memory, queues
from fairway.engines.kubernetes.scheduler.broken import (
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
    BrokenError,
    Unit,
)
from fairway.engines.kubernetes.scheduler.follow import Follower, Pending
from fairway.plan import culprit
from fairway.plan.scheduling.memory import SchedulerMemory
from fairway.plan.scheduling.scheduler import Scheduler


class World:
    """Every object by kind and key, as it was last heard of."""

    def __init__(self) -> None:
        self.things: dict[str, dict[str, Any]] = {kind: {} for kind in KINDS}

    def put(self, kind: str, key: str, thing: Any) -> None:
        """An object is so; None: it is gone."""
        if thing is None:
            self.things[kind].pop(key, None)
        else:
            self.things[kind][key] = thing

    def get(self, kind: str, key: str) -> Any:
        """The object; None when there is none."""
        return self.things[kind].get(key)

    def without(self, out: Collection[Unit]) -> World:
        """The same objects but these, for a search while others are heard of."""
        found = World()
        for kind, own in self.things.items():
            found.things[kind] = {key: thing for key, thing in own.items() if Unit(kind, key) not in out}
        return found

    def part(self, units: Collection[Unit]) -> World:
        """These alone."""
        found, kept = World(), set(units)
        for kind, own in self.things.items():
            found.things[kind] = {
                key: thing for key, thing in own.items() if (unit_of(thing) if kind == POD else Unit(kind, key)) in kept
            }
        return found

    def units(self, out: Collection[Unit]) -> list[Unit]:
        """All that is not left out, in the order in which it is told; the pods as gangs."""
        found = [Unit(kind, key) for kind in KINDS if kind != POD for key in self.things[kind]]
        found += dict.fromkeys(unit_of(pod) for pod in self.things[POD].values())
        return [unit for unit in found if unit not in out]

    def pods(self) -> Iterator[tuple[str, Pod]]:
        """All pods."""
        yield from self.things[POD].items()


def unit_of(pod: Pod) -> Unit:
    """The gang of a pod."""
    return Unit(GANG, str(gangs.key_of_gang(pod)))


def hear(follower: Follower, kind: str, key: str, before: Any, now: Any) -> None:
    """Tell of one object: what it was, what it is."""
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
        follower.queue(key, queues.described(key, now) if now is not None else None)
    elif kind == NAMESPACE:
        narrowing.company.space(key, now.metadata.labels if now is not None else None)
    else:
        storage.see(among[kind], key, now)


def build(world: World, kept: SchedulerMemory, pending: Pending, out: Collection[Unit]) -> Follower:
    """A core that was told of everything but what is left out. `BrokenError` names what could not be told."""
    follower, broken = Follower(Scheduler(kept)), BrokenError()
    follower.resume(pending)
    for kind in KINDS:
        for key, thing in world.things[kind].items():
            with broken.noting(kind, key):
                if Unit(kind, key) not in out and (kind != POD or not out or unit_of(thing) not in out):
                    hear(follower, kind, key, None, thing)
    broken.check()
    return follower


def find_culprit(
    world: World, kept: str, pending: Pending, out: Collection[Unit], now: float
) -> tuple[Unit | None, Exception] | None:
    """The object with which deciding fails; no unit when it fails without any; None when it does not fail.

    Objects are added one after another to an empty cluster. The search is binary, as in `plan/culprit.py`.
    """
    world = world.without(out)
    units = world.units(out)

    def problem(count: int) -> Exception | None:
        try:
            build(world.part(units[:count]), memory.read(kept), pending, out).decide(now)
        except Exception as error:  # noqa: BLE001 - finding out what raises is the purpose.
            return error
        return None

    alone = problem(0)
    if alone is not None:
        return None, alone
    found = culprit.first_bad(len(units), problem)
    return (units[found[0] - 1], found[1]) if found is not None else None
