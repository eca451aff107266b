"""The scheduler's process: feeds mirrors to the core, decides one step at a time and binds. A lease elects one active process."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any

from fairway.app.loop.fault_register import SCHEDULER
from fairway.app.port.port import Clock
from fairway.engines.kubernetes import health_endpoint
from fairway.engines.kubernetes.client import api_resource
from fairway.engines.kubernetes.client.api import ApiClient
from fairway.engines.kubernetes.client.api_path import ApiResource
from fairway.engines.kubernetes.client.connection import ApiConnection
from fairway.engines.kubernetes.client.informer import Informer, all_synced
from fairway.engines.kubernetes.leader_election import LeaderElection
from fairway.engines.kubernetes.objects import CustomObject, Pod
from fairway.engines.kubernetes.scheduler import faulty_unit, memory_store, queue
from fairway.engines.kubernetes.scheduler.containment.contained_core import BIND, ContainedCore
from fairway.engines.kubernetes.scheduler.event_writer import PodEventWriter
from fairway.engines.kubernetes.scheduler.faulty_unit import GANG
from fairway.engines.kubernetes.scheduler.gang import PodPlacement
from fairway.engines.kubernetes.scheduler.gang_binder import PodGangBinder
from fairway.engines.kubernetes.scheduler.gang_evictor import PodGangEvictor
from fairway.engines.kubernetes.scheduler.volume_binder import VolumeClaimBinder
from fairway.state.job import JobKey

log = logging.getLogger("fairway.scheduler")

LEASE = "fairway-scheduler"
TELL_EVERY = 1.0
"""Seconds between two rounds of writing reasons."""
LONGEST_REST = 60.0
READY = 16
"""Connections to open before the work begins."""
KEEP_EVERY = 300.0
"""Seconds between two writes of the memory; it is also written when a leader ends."""
FREE_AFTER = 1.0
"""Seconds until the places of a gang that could not be bound are released."""
MAKE_ROOM = "make room"
RESOURCES: dict[str, ApiResource[Any]] = {
    faulty_unit.NAMESPACE: api_resource.NAMESPACES,
    faulty_unit.CLASS: api_resource.STORAGE_CLASSES,
    faulty_unit.DRIVER: api_resource.CSI_NODES,
    faulty_unit.VOLUME: api_resource.VOLUMES,
    faulty_unit.CLAIM: api_resource.CLAIMS,
    faulty_unit.NODE: api_resource.NODES,
    faulty_unit.GPU_NODE: api_resource.GPU_NODES,
    faulty_unit.QUEUE: api_resource.JOB_QUEUES,
    faulty_unit.POD: api_resource.PODS,
}
"""By kind: the API resource that is followed."""


class SchedulerProcess:
    """One scheduler process.

    Failures are contained to their objects (`containment`); the process ends by a signal, or when another leader replaces it.
    """

    def __init__(self, connection: ApiConnection, clock: Clock, namespace: str, identity: str, health_port: str = "") -> None:
        self._clock = clock
        self._health_port = health_port
        self._reading = reading = ApiClient(connection)
        self._leader = LeaderElection(reading, namespace, LEASE, identity)
        acting = ApiClient(connection, permit=lambda: self._leader.leading)
        self._mirrors: dict[str, Informer[Any]] = {kind: Informer(reading, resource) for kind, resource in RESOURCES.items()}
        self.guarded = ContainedCore(clock)
        self.faults = self.guarded.faults
        self._keeper = memory_store.SchedulerMemoryStore(acting, namespace)
        self._queue_telling = queue.QueueStatusWriter(acting, self.faults)
        self._telling = PodEventWriter(acting, clock, identity, self.faults)
        self._volumes = VolumeClaimBinder(
            acting, self._mirrors[faulty_unit.CLAIM].get, lambda claims: self.guarded.release(claims)
        )
        self._binder = PodGangBinder(acting, self._gave_up, self._bound, self._volumes)
        self._evictor = PodGangEvictor(acting, clock, self._asked_to_leave)
        self._wake = asyncio.Event()
        self._work: set[asyncio.Task[Any]] = set()
        self._leaving: set[asyncio.Task[Any]] = set()
        """Eviction tasks: they may take long, and nothing waits for them."""
        self._changed = True

    async def run(self) -> None:
        """Follow the cluster; decide while this process is the leader."""
        mirrors = tuple(self._mirrors.values())
        following = [asyncio.create_task(mirror.run()) for mirror in mirrors]
        answers = health_endpoint.HealthEndpoint(mirrors, self._leader, self.faults)
        following.append(
            asyncio.create_task(self._always("answer health", lambda: health_endpoint.answer(self._health_port, answers)))
        )
        try:
            await all_synced(*mirrors)
            await self._leader.run(self._lead)
        finally:
            for task in [*following, *self._work, *self._leaving]:
                task.cancel()

    async def _lead(self) -> None:
        self.guarded.remember(await self._keeper.recall())
        # Open connections ahead, so that the first gang does not wait for them when its pods are bound.
        await asyncio.gather(*(self._reading.plain("/version") for _ in range(READY)), return_exceptions=True)
        try:
            await self._work_as_leader()
        finally:
            await self._keep_memory()

    async def _work_as_leader(self) -> None:
        for kind in faulty_unit.KINDS:
            self._follow(kind, self._mirrors[kind])
        async with asyncio.TaskGroup() as group:
            group.create_task(self._turning("decide", self._decide))
            group.create_task(self._turning("say why", self._tell))
            group.create_task(self._always("write events", self._telling.run))
            group.create_task(self._turning("keep memory", self._keep))

    def _follow(self, kind: str, mirror: Informer[Any]) -> None:
        self.guarded.undecoded[kind] = mirror.unreadable
        for entry in mirror.unreadable.values():
            self.guarded.unreadable(kind, entry)
        mirror.noted.append(lambda entry: self.guarded.unreadable(kind, entry))
        mirror.listen(lambda key, before, now: self._hear(kind, key, before, now))

    async def _always(self, work: str, act: Callable[[], Awaitable[None]]) -> None:
        """Run work that does not end by itself; restart it with back-off when it fails."""
        done = False
        while not done:
            with self.faults.contain(SCHEDULER, work):
                await act()
                done = True
            await asyncio.sleep(self.faults.delay(SCHEDULER, work))

    async def _turning(self, work: str, turn: Callable[[], Awaitable[None]]) -> None:
        """Run a step repeatedly; after a failure, with back-off."""
        while True:
            with self.faults.contain(SCHEDULER, work):
                await turn()
            await asyncio.sleep(self.faults.delay(SCHEDULER, work))

    def _hear(self, kind: str, key: str, before: Any, now: Any) -> None:
        if kind == faulty_unit.QUEUE and _says_the_same(before, now):
            return  # Only the status, which this scheduler writes, has changed.
        if kind == faulty_unit.POD and now is None and before is not None:
            self._telling.forget(before)
        self.guarded.hear(kind, key, before, now)
        if kind == faulty_unit.CLAIM:
            self._do(self._volumes.hear(), self._leaving)
        self._wake.set()

    async def _decide(self) -> None:
        self._wake.clear()
        outcome = await self.guarded.decide(self._clock.now())
        for bind in outcome.binds:
            self._do(self._binder.bind(bind), self._work)
        for half in outcome.halves:
            self._do(self._binder.take_back(half), self._work)
        self._telling.make_way(busy=bool(self._work))
        for room in outcome.rooms:
            self._do(self._evictor.make_room(room), self._leaving)
        if outcome.binds or outcome.rooms:
            self._changed = True
        rest = LONGEST_REST if outcome.wake_at is None else max(0.0, min(LONGEST_REST, outcome.wake_at - self._clock.now()))
        await self._heard(rest)

    async def _heard(self, rest: float) -> None:
        try:
            async with asyncio.timeout(rest):
                await self._wake.wait()
        except TimeoutError:
            return
        self._changed = True
        # Let other events that have arrived by now be part of the same decision.
        await asyncio.sleep(0)

    def _do(self, work: Coroutine[Any, Any, Any], among: set[asyncio.Task[Any]]) -> None:
        task = asyncio.create_task(work)
        among.add(task)
        task.add_done_callback(among.discard)
        task.add_done_callback(lambda _: self._telling.make_way(busy=bool(self._work)))

    def _bound(self, pod: Pod, place: PodPlacement) -> None:
        self.faults.clear(self.guarded.subject(pod), BIND)
        self._telling.bound(pod, place.node)

    def _gave_up(self, pods: Sequence[Pod], problem: BaseException | None) -> None:
        # A pod that was bound before the rollback still shows: its place is released once it is deleted.
        if pods:
            asyncio.get_running_loop().call_later(FREE_AFTER, self._free, pods, problem)

    def _free(self, pods: Sequence[Pod], problem: BaseException | None) -> None:
        self.guarded.not_bound(pods, problem)
        self._wake.set()

    def _asked_to_leave(self, pods: Sequence[Pod], problem: Exception | None) -> None:
        subject = self.guarded.subject(pods[0])
        if problem is None:
            self.faults.clear(subject, MAKE_ROOM)
            return
        self.faults.fail(subject, MAKE_ROOM, problem)
        asyncio.get_running_loop().call_later(self.faults.delay(subject, MAKE_ROOM), self._choose_anew, pods)

    def _choose_anew(self, pods: Sequence[Pod]) -> None:
        self.guarded.stays(pods)
        self._wake.set()

    async def _keep(self) -> None:
        await asyncio.sleep(self.faults.delay(SCHEDULER, "write memory") or KEEP_EVERY)
        self.guarded.forget(self._clock.now())
        await self._keep_memory()

    async def _keep_memory(self) -> None:
        with self.faults.contain(SCHEDULER, "write memory"):
            await self._keeper.keep(self.guarded.follower.scheduler.ledger.memory)

    async def _tell(self) -> None:
        """Write the reasons for waiting, when something has changed and no binding is under way."""
        await asyncio.sleep(TELL_EVERY)
        self._tell_faults()
        if not self._changed or self._work:
            return
        self._changed = False
        done = True
        holds = self.guarded.holds(self._clock.now())
        for unit, hold in holds.items():
            waiting = self.guarded.waiting(unit)
            if waiting:
                done &= await self._telling.waits(min(waiting, key=lambda pod: pod.metadata.name), hold)
        gangs = {JobKey(*unit.name.split("/", 1)): hold for unit, hold in holds.items() if unit.kind == GANG}
        follower = self.guarded.follower
        done &= await self._queue_telling.tell(
            queue.statuses(follower.scheduler.ledger, gangs, follower.held_back, follower.closed)
        )
        if not done:
            self._changed = True

    def _tell_faults(self) -> None:
        """Write an Event on each object whose work starts to fail or recovers."""
        for event in self.faults.take_events():
            target = self.guarded.object_of(event.subject)
            if target is not None:
                self._telling.happened(RESOURCES[target[0]], target[1], event.reason, event.message)
                self._changed = True


def _says_the_same(before: CustomObject | None, now: CustomObject | None) -> bool:
    return before is not None and now is not None and before.spec == now.spec
