"""A scheduling core with fault containment: an object for which it fails is excluded, reported and retried with back-off.

An exception may leave a core in an inconsistent state. The core is then discarded, and a new one is built from the former one's
memory and the last known state of the cluster. Resources held by excluded pods stay reserved.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import msgspec

from fairway.app.loop.fault_register import SCHEDULER, FaultRegister
from fairway.app.port.port import Clock
from fairway.engines.kubernetes.client.watch import UndecodableObject
from fairway.engines.kubernetes.objects import Pod, key_of
from fairway.engines.kubernetes.scheduler import gang as scheduler_gang
from fairway.engines.kubernetes.scheduler import memory_store
from fairway.engines.kubernetes.scheduler.containment.cluster_snapshot import (
    ClusterSnapshot,
    build,
    find_culprit,
    hear,
    unit_of,
)
from fairway.engines.kubernetes.scheduler.core_sync import CoreSync, PendingDecisions, SchedulingOutcome
from fairway.engines.kubernetes.scheduler.faulty_unit import GANG, GPU_NODE, NODE, POD, QUEUE, FaultUnit, FaultyObjectsError
from fairway.engines.kubernetes.scheduler.filter.volume_filter import ClaimBinding
from fairway.plan.scheduling.scheduler import Scheduler
from fairway.plan.scheduling.scheduler_memory import SchedulerMemory
from fairway.state.fault import WorkFault
from fairway.state.job import JobKey, WaitReason

log = logging.getLogger("fairway.scheduler")

READ, SCHEDULE, EXPLAIN, BIND = "read", "schedule", "explain", "bind"
"""The kinds of work on an object that may fail."""
MOST_CULPRITS = 20
"""Rounds of exclusion within one decision, before the rest waits for the next."""
BUSY_KINDS = frozenset({POD, NODE, GPU_NODE})
"""Kinds whose objects change all the time: excluded ones are retried by time alone, those of other kinds also on a change."""
FIX = "it is retried automatically"


class _PartialPodSpec(msgspec.Struct, frozen=True, rename="camel"):
    node_name: Any = ""


class _PartialPod(msgspec.Struct, frozen=True):
    spec: _PartialPodSpec = _PartialPodSpec()


class ContainedCore:
    """Follows the cluster and decides; raises nothing."""

    def __init__(self, clock: Clock, kept: SchedulerMemory | None = None) -> None:
        self._clock = clock
        self.faults = FaultRegister(clock)
        self.follower = CoreSync(Scheduler(kept))
        self.world = ClusterSnapshot()
        self._out: dict[FaultUnit, str] = {}
        """Excluded units, and the work that failed."""
        self._trying: dict[FaultUnit, str] = {}
        """Formerly excluded units that take part again, until a decision has succeeded with them."""
        self._unreadable: dict[FaultUnit, UndecodableObject] = {}
        self.undecoded: dict[str, Mapping[str, UndecodableObject]] = {}
        """By kind and key: the objects that mirrors cannot decode now."""

    def remember(self, kept: SchedulerMemory) -> None:
        """Start with the memory of an earlier scheduler. Call it before any object is passed in."""
        try:
            self.follower = CoreSync(Scheduler(kept))
        except Exception as problem:  # noqa: BLE001 - the memory is an aid: without it the core learns again.
            self.faults.fail(SCHEDULER, "read memory", problem)

    # Changes of the cluster

    def hear(self, kind: str, key: str, before: Any, now: Any) -> None:
        """Take in that an object was added, changed or removed."""
        if before is None and now is None:
            self._readable(FaultUnit(kind, key))
            return  # Its last state was never decoded.
        self.world.put(kind, key, now)
        self._readable(FaultUnit(kind, key))
        unit = self._left_out(kind, key, now if now is not None else before)
        if unit is None:
            self._tell(kind, key, before, now)
        elif kind == POD:
            self._hold(key, now)
            self._forget_empty(unit)
        elif now is None:
            self._forget(unit)
        elif kind not in BUSY_KINDS:
            self._take_in(unit)

    def _tell(self, kind: str, key: str, before: Any, now: Any) -> None:
        try:
            hear(self.follower, kind, key, before, now)
        except Exception as problem:  # noqa: BLE001 - the failure concerns this object only.
            if now is not None:
                self._leave_out(FaultUnit(kind, key), READ, problem)
            else:
                self.faults.fail(str(FaultUnit(kind, key)), READ, problem)  # It is removed, so that there is nothing to retry.
            self._rebuild(self.follower.pending())

    def _left_out(self, kind: str, key: str, thing: Any) -> FaultUnit | None:
        """Return the unit as part of which an object is excluded; None when it is not excluded."""
        if not self._out:
            return None
        own_unit = FaultUnit(kind, key)
        if own_unit in self._out or kind != POD:
            return own_unit if own_unit in self._out else None
        try:
            gang = unit_of(thing)
        except Exception:  # noqa: BLE001 - the failure is recorded when the pod is passed to the core.
            return None
        return gang if gang in self._out else None

    def unreadable(self, kind: str, found: UndecodableObject) -> None:
        """Take in that an object cannot be decoded. Its last decodable state, if there was one, stays in force."""
        key = key_of(found.head)
        unit = FaultUnit(kind, key)
        self._unreadable[unit] = found
        self.faults.fail(str(unit), READ, ValueError(found.cause))
        self._hold_unreadable(unit, self.follower)

    def _readable(self, unit: FaultUnit) -> None:
        if self._unreadable.pop(unit, None) is not None:
            self.faults.clear(str(unit), READ)
            if unit.kind == POD:
                self.follower.ground.release(unit.name)

    # Exclusion

    def _leave_out(self, unit: FaultUnit, work: str, problem: Exception) -> None:
        self._trying.pop(unit, None)
        self._out[unit] = work
        self.faults.fail(str(unit), work, problem)

    def _forget(self, unit: FaultUnit) -> None:
        self._out.pop(unit, None)
        self.faults.clear(str(unit))
        if unit.kind == QUEUE:
            self.follower.open(unit.name)

    def _forget_empty(self, unit: FaultUnit) -> None:
        """Lift the exclusion when the last pod of the unit is gone."""
        if not any(True for _ in self._pods_of(unit)):
            self._forget(unit)

    def _pods_of(self, unit: FaultUnit) -> Iterable[tuple[str, Pod]]:
        if unit.kind == POD:
            existing = self.world.get(POD, unit.name)
            return [(unit.name, existing)] if existing is not None else []
        return ((key, pod) for key, pod in self.world.pods() if self._left_out(POD, key, pod) == unit)

    def _rebuild(self, pending: PendingDecisions, *, forget: bool = False) -> None:
        """Replace the core by a new one. Objects that the new core rejects are excluded, too."""
        memory_text = "" if forget else self._remembered()
        while True:
            try:
                follower = build(self.world, memory_store.read(memory_text), pending, self._out)
                break
            except FaultyObjectsError as broken:
                for unit, problem in broken.causes.items():
                    self._leave_out(unit, READ, problem)
        for unit in self._out:
            if unit.kind == QUEUE:
                follower.close(unit.name, self._cause(unit))
        self.follower = follower
        self._hold_all()

    def _remembered(self) -> str:
        try:
            return memory_store.write(self.follower.scheduler.ledger.memory)
        except Exception as problem:  # noqa: BLE001 - the memory is an aid: without it the core learns again.
            self.faults.fail(SCHEDULER, "write memory", problem)
            return ""

    def _hold_all(self) -> None:
        if any(unit.kind in (GANG, POD) for unit in self._out):
            for key, pod in self.world.pods():
                if self._left_out(POD, key, pod) is not None:
                    self._hold(key, pod)
        for unit in self._unreadable:
            self._hold_unreadable(unit, self.follower)

    def _hold(self, key: str, pod: Pod | None) -> None:
        """Keep the resources of an excluded pod reserved."""
        ground = self.follower.ground
        assumed = self.follower.assumed(pod) if pod is not None else None
        node = "" if pod is None or pod.over else pod.spec.node_name or (assumed.node if assumed is not None else "")
        if pod is None or not node:
            ground.release(key)
        else:
            ground.hold(key, pod, node, scheduler_gang.devices_of(pod) or (assumed.devices if assumed is not None else ()))

    def _hold_unreadable(self, unit: FaultUnit, follower: CoreSync) -> None:
        if unit.kind != POD or self.world.get(POD, unit.name) is not None:
            return
        try:
            node = msgspec.json.decode(self._unreadable[unit].raw, type=_PartialPod).spec.node_name
        except msgspec.DecodeError:
            return
        if node and isinstance(node, str):
            follower.ground.hold_unknown(unit.name, node)

    # Retries

    def _retry(self) -> None:
        for unit, work in list(self._out.items()):
            if self.faults.due(str(unit), work):
                self._take_in(unit)
        for unit, unreadable in list(self._unreadable.items()):
            if unit.name not in self.undecoded.get(unit.kind, {}):
                self._readable(unit)  # It was removed while no watch was running.
            elif self.faults.due(str(unit), READ):
                self.faults.fail(str(unit), READ, ValueError(unreadable.cause))  # It changes only with the object.

    def _take_in(self, unit: FaultUnit) -> None:
        pods = list(self._pods_of(unit)) if unit.kind in (GANG, POD) else []
        self._trying[unit] = self._out.pop(unit)
        for key, pod in pods:
            self.follower.ground.release(key)
            self._tell(POD, key, None, pod)
        if unit.kind == QUEUE:
            self.follower.open(unit.name)
        if unit.kind not in (GANG, POD):
            self._tell(unit.kind, unit.name, None, self.world.get(unit.kind, unit.name))

    # Decisions

    async def decide(self, now: float) -> SchedulingOutcome:
        """Decide on everything but what is excluded."""
        self._retry()
        for _ in range(MOST_CULPRITS):
            pending = self.follower.pending()
            try:
                outcome = self.follower.decide(now)
            except FaultyObjectsError as broken:
                for unit, problem in broken.causes.items():
                    self._leave_out(unit, SCHEDULE, problem)
                self._rebuild(pending)
            except Exception as problem:  # noqa: BLE001 - the culprit is searched for below.
                self._rebuild(pending)
                if not await self._blame(problem, now):
                    break
            else:
                for unit, work in self._trying.items():
                    self.faults.clear(str(unit), work)
                self._trying.clear()
                self.faults.clear(SCHEDULER, SCHEDULE)
                return replace(outcome, wake_at=_earlier(outcome.wake_at, self.faults.next_retry(now)))
        return SchedulingOutcome(wake_at=_earlier(now + 1.0, self.faults.next_retry(now)))

    async def _blame(self, problem: Exception, now: float) -> bool:
        """Find the object for which the decision fails, and exclude it. Return False when no single object is to blame."""
        memory_text, pending, world, out = self._remembered(), self.follower.pending(), self.world.without(()), dict(self._out)
        # This takes long on a large cluster. It runs in a thread so that the lease is renewed meanwhile.
        culprit = await asyncio.to_thread(find_culprit, world, memory_text, pending, out, now)
        if culprit is not None and culprit[0] is not None:
            self._leave_out(culprit[0], SCHEDULE, culprit[1])
            self._rebuild(self.follower.pending())
            return True
        if (
            culprit is not None
            and memory_text
            and await asyncio.to_thread(find_culprit, ClusterSnapshot(), "", pending, out, now) is None
        ):
            self.faults.fail(SCHEDULER, "read memory", culprit[1])
            self._rebuild(self.follower.pending(), forget=True)
            return True
        self.faults.fail(SCHEDULER, SCHEDULE, problem)
        return False

    # Results of decisions

    def not_bound(self, pods: Sequence[Pod], problem: BaseException | None) -> None:
        """Release the places of pods whose bindings were given up; their gang is retried with back-off."""
        subject = self.subject(pods[0])
        if isinstance(problem, Exception):
            self.faults.fail(subject, BIND, problem)
        try:
            self.follower.failed(pods)
            for fault in self.faults.of(subject):
                if fault.work == BIND:
                    self.follower.hold_until(scheduler_gang.key_of_gang(pods[0]), fault.retry_at)
        except Exception as error:  # noqa: BLE001 - the failure concerns this gang only.
            pending = self.follower.pending()
            for pod in pods:
                pending.assumed.pop(pod.metadata.uid, None)
                self._leave_out(FaultUnit(POD, key_of(pod)), READ, error)
            self._rebuild(pending)
        for pod in pods:
            key, current = key_of(pod), self.world.get(POD, key_of(pod))
            if current is not None and self._left_out(POD, key, current) is not None:
                self._hold(key, current)

    def stays(self, pods: Sequence[Pod]) -> None:
        """Take in that these pods could not be evicted: the core may choose other victims."""
        try:
            self.follower.stays(pods)
        except Exception as error:  # noqa: BLE001 - the failure concerns this gang only.
            pending = self.follower.pending()
            pending.leaving.difference_update(pod.metadata.uid for pod in pods)
            for pod in pods:
                self._leave_out(FaultUnit(POD, key_of(pod)), READ, error)
            self._rebuild(pending)

    def release(self, wanted: Iterable[ClaimBinding]) -> None:
        """Release the volumes that were promised to these claims."""
        self.follower.narrowing.storage.release(wanted)

    def forget(self, now: float) -> None:
        """Drop what the core remembers of runs that have left and are not expected back."""
        try:
            self.follower.forget(now)
        except Exception as problem:  # noqa: BLE001 - it is retried the next time.
            self.faults.fail(SCHEDULER, "forget", problem)
            self._rebuild(self.follower.pending())

    def subject(self, pod: Pod) -> str:
        """Return the subject under which failures of a pod's gang are recorded: the pod itself when its gang is not known."""
        try:
            return str(unit_of(pod))
        except Exception:  # noqa: BLE001 - the failure is recorded when the pod is passed to the core.
            return str(FaultUnit(POD, key_of(pod)))

    # Reports

    def holds(self, now: float) -> dict[FaultUnit, WaitReason]:
        """Return why gangs, and excluded single pods, wait."""
        silent = [key for key, _ in self._faulty(EXPLAIN) if not self.faults.due(str(FaultUnit(GANG, str(key))), EXPLAIN)]
        reasons: dict[JobKey, WaitReason] = {}
        try:
            reasons = self.follower.holds(now, silent)
            for key, _ in self._faulty(EXPLAIN):
                if key not in silent:
                    self.faults.clear(str(FaultUnit(GANG, str(key))), EXPLAIN)
            self.faults.clear(SCHEDULER, EXPLAIN)
        except FaultyObjectsError as broken:
            for unit, problem in broken.causes.items():
                self.faults.fail(str(unit), EXPLAIN, problem)
            self._rebuild(self.follower.pending())
        except Exception as problem:  # noqa: BLE001 - without a reason to report they wait all the same.
            self.faults.fail(SCHEDULER, EXPLAIN, problem)
            self._rebuild(self.follower.pending())
        by_unit = {FaultUnit(GANG, str(key)): hold for key, hold in reasons.items()}
        for work in (EXPLAIN, BIND):
            by_unit |= {FaultUnit(GANG, str(key)): _hold(fault) for key, fault in self._faulty(work)}
        for unit in self._out:
            faults = self.faults.of(str(unit))
            if faults and unit.kind in (GANG, POD):
                by_unit[unit] = _hold(faults[0])
        return by_unit

    def _faulty(self, work: str) -> list[tuple[JobKey, WorkFault]]:
        """Return the gangs for which this work fails, with the fault."""
        faults = [fault for fault in self.faults.all() if fault.work == work and fault.subject.startswith(f"{GANG}:")]
        return [(JobKey(*fault.subject.removeprefix(f"{GANG}:").split("/", 1)), fault) for fault in faults]

    def waiting(self, unit: FaultUnit) -> list[Pod]:
        """Return the pods of the unit that have no place."""
        if unit in self._out:
            return [pod for _, pod in self._pods_of(unit) if not pod.spec.node_name and not pod.over]
        try:
            members = self.follower.members(JobKey(*unit.name.split("/", 1)))
        except Exception as problem:  # noqa: BLE001 - the failure concerns this gang only.
            self.faults.fail(str(unit), EXPLAIN, problem)
            return []
        return [member.pod for member in members if member.place is None]

    def object_of(self, subject: str) -> tuple[str, Any] | None:
        """Return the kind and the object on which a fault is reported; None when there is none."""
        kind, _, name = subject.partition(":")
        if kind == GANG:
            pods = [pod for _, pod in self.world.pods() if self.subject(pod) == subject]
            return (POD, min(pods, key=lambda pod: pod.metadata.name)) if pods else None
        unit = FaultUnit(kind, name)
        if unit in self._unreadable:
            return kind, self._unreadable[unit].head
        thing = self.world.things.get(kind, {}).get(name)
        return (kind, thing) if thing is not None else None

    def _cause(self, unit: FaultUnit) -> str:
        return next((fault.text for fault in self.faults.of(str(unit))), "it fails")


def _hold(fault: WorkFault) -> WaitReason:
    return WaitReason("fault", f"the scheduler cannot place it: {fault.text}", FIX)


def _earlier(one: float | None, other: float | None) -> float | None:
    return min((at for at in (one, other) if at is not None), default=None)
