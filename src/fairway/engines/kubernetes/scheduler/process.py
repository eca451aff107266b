"""The scheduler's process: mirrors in, one decision at a time, bindings out. One of several acts, by a lease."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any

from fairway.app.ports import Clock
from fairway.engines.kubernetes import health
from fairway.engines.kubernetes.client import kinds
from fairway.engines.kubernetes.client.api import Client
from fairway.engines.kubernetes.client.connection import Connection
from fairway.engines.kubernetes.client.mirror import Mirror, all_synced
from fairway.engines.kubernetes.leader import Leader
from fairway.engines.kubernetes.objects import Claim, Custom, Pod
from fairway.engines.kubernetes.scheduler import memory, queues
from fairway.engines.kubernetes.scheduler.binding import Binder
from fairway.engines.kubernetes.scheduler.evicting import Evictor
from fairway.engines.kubernetes.scheduler.follow import Follower
from fairway.engines.kubernetes.scheduler.gangs import Place
from fairway.engines.kubernetes.scheduler.telling import Telling
from fairway.engines.kubernetes.scheduler.volumes import Volumes
from fairway.plan.scheduling.scheduler import Scheduler

log = logging.getLogger("fairway.scheduler")

LEASE = "fairway-scheduler"
TELL_EVERY = 1.0
"""Seconds between two rounds of saying why."""
LONGEST_REST = 60.0
READY = 16
"""Connections that are there when the work begins."""
KEEP_EVERY = 300.0
"""Seconds between two writes of what must not be forgotten; it is also written when a leader ends."""
TRY_AGAIN_AFTER = 1.0
"""Seconds until a gang that could not be bound is decided upon again."""


class SchedulerProcess:
    """One scheduler."""

    def __init__(self, connection: Connection, clock: Clock, namespace: str, identity: str, health_port: str = "") -> None:
        self._clock = clock
        self._health_port = health_port
        self._reading = reading = Client(connection)
        self._leader = Leader(reading, namespace, LEASE, identity)
        acting = Client(connection, permit=lambda: self._leader.leading)
        self._pods = Mirror(reading, kinds.PODS)
        self._nodes = Mirror(reading, kinds.NODES)
        self._queues = Mirror(reading, kinds.JOB_QUEUES)
        self._gpu_nodes = Mirror(reading, kinds.GPU_NODES)
        self._namespaces = Mirror(reading, kinds.NAMESPACES)
        self._claims = Mirror(reading, kinds.CLAIMS)
        self._volumes_there = Mirror(reading, kinds.VOLUMES)
        self._classes = Mirror(reading, kinds.STORAGE_CLASSES)
        self._drivers = Mirror(reading, kinds.CSI_NODES)
        self.follower = Follower(Scheduler())
        self._keeper = memory.Keeper(acting, namespace)
        self._queue_telling = queues.QueueTelling(acting)
        self._telling = Telling(acting, clock, identity)
        self._volumes = Volumes(acting, self._claims.get, lambda wanted: self.follower.narrowing.storage.release(wanted))
        self._binder = Binder(acting, self._gave_up, self._bound, self._volumes)
        self._evictor = Evictor(acting, clock, self._stays)
        self._wake = asyncio.Event()
        self._work: set[asyncio.Task[Any]] = set()
        self._leaving: set[asyncio.Task[Any]] = set()
        """Those who make room: it may take them long, and nobody waits for them."""
        self._changed = True

    async def run(self) -> None:
        """Follow the cluster; decide while it is the leader."""
        mirrors: tuple[Mirror[Any], ...] = (self._pods, self._nodes, self._queues, self._gpu_nodes, self._namespaces)
        mirrors += (self._claims, self._volumes_there, self._classes, self._drivers)
        following = [asyncio.create_task(mirror.run()) for mirror in mirrors]
        following.append(asyncio.create_task(health.answer(self._health_port, health.Health(mirrors, self._leader))))
        try:
            await all_synced(*mirrors)
            await self._leader.run(self._lead)
        finally:
            for one in [*following, *self._work, *self._leaving]:
                one.cancel()

    async def _lead(self) -> None:
        self.follower = Follower(Scheduler(await self._keeper.recall()))
        # The first gang should not have to wait until there are connections for all its pods.
        await asyncio.gather(*(self._reading.plain("/version") for _ in range(READY)), return_exceptions=True)
        try:
            await self._work_as_leader()
        finally:
            await self._keeper.keep(self.follower.scheduler.ledger.memory)

    async def _work_as_leader(self) -> None:
        self._nodes.listen(lambda key, before, now: self._hear(self.follower.node, key, before, now))
        self._gpu_nodes.listen(lambda key, before, now: self._hear(self.follower.gpu_node, key, before, now))
        self._queues.listen(self._queue)
        self._follow_storage()
        self._pods.listen(self._pod)
        async with asyncio.TaskGroup() as group:
            group.create_task(self._decide())
            group.create_task(self._tell())
            group.create_task(self._telling.run())
            group.create_task(self._keep())

    def _follow_storage(self) -> None:
        narrowing = self.follower.narrowing
        storage = narrowing.storage
        self._volumes_there.listen(lambda key, _, now: self._hear(storage.see, storage.volumes, key, now))
        self._classes.listen(lambda key, _, now: self._hear(storage.see, storage.classes, key, now))
        self._drivers.listen(lambda key, _, now: self._hear(storage.see, storage.drivers, key, now))
        self._namespaces.listen(
            lambda key, _, now: self._hear(narrowing.company.space, key, now.metadata.labels if now is not None else None)
        )
        self._claims.listen(self._claim)

    def _claim(self, key: str, _before: Claim | None, now: Claim | None) -> None:
        storage = self.follower.narrowing.storage
        self._hear(storage.see, storage.claims, key, now)
        self._do(self._volumes.hear(), self._leaving)

    def _hear(self, told: Callable[..., None], *what: Any) -> None:
        told(*what)
        self._wake.set()

    def _pod(self, key: str, before: Pod | None, now: Pod | None) -> None:
        if now is None and before is not None:
            self._telling.forget(before)
        self._hear(self.follower.pod, key, before, now)

    def _queue(self, key: str, _before: Custom | None, now: Custom | None) -> None:
        if _before is not None and now is not None and _before.spec == now.spec:
            return  # Only what we say of it is another.
        self.follower.queue(key, queues.described(key, now) if now is not None else None)
        self._wake.set()

    async def _decide(self) -> None:
        while True:
            self._wake.clear()
            outcome = self.follower.decide(self._clock.now())
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
        # Whatever else has arrived by now belongs to the same decision.
        await asyncio.sleep(0)

    def _do(self, work: Coroutine[Any, Any, Any], among: set[asyncio.Task[Any]]) -> None:
        task = asyncio.create_task(work)
        among.add(task)
        task.add_done_callback(among.discard)
        task.add_done_callback(lambda _: self._telling.make_way(busy=bool(self._work)))

    def _bound(self, pod: Pod, place: Place) -> None:
        self._telling.bound(pod, place.node)

    def _gave_up(self, pods: Any) -> None:
        # Whoever refuses a binding refuses the next as well.
        asyncio.get_running_loop().call_later(TRY_AGAIN_AFTER, self._free, pods)

    def _free(self, pods: Any) -> None:
        self.follower.failed(pods)
        self._wake.set()

    def _stays(self, pods: Any) -> None:
        self.follower.stays(pods)
        self._wake.set()

    async def _keep(self) -> None:
        while True:
            await asyncio.sleep(KEEP_EVERY)
            self.follower.forget(self._clock.now())
            await self._keeper.keep(self.follower.scheduler.ledger.memory)

    async def _tell(self) -> None:
        """Say why, when something has changed and those who can start are on their way."""
        while True:
            await asyncio.sleep(TELL_EVERY)
            if not self._changed or self._work:
                continue
            self._changed = False
            holds = self.follower.holds(self._clock.now())
            for key, hold in holds.items():
                waiting = [member.pod for member in self.follower.members(key) if member.place is None]
                if waiting:
                    await self._telling.waits(min(waiting, key=lambda pod: pod.metadata.name), hold)
            await self._queue_telling.tell(queues.statuses(self.follower.scheduler.ledger, holds, self.follower.held_back))
