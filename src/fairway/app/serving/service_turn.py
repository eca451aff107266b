"""The services' part of every turn of the loop.

Replicas are runs. This module passes the observed state of services to the planner, and turns the plan into runs to start and to
stop, routes for the router, and changes to store. It makes no decisions itself.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from fairway.app.loop.loop import ReconcileLoop
from fairway.app.port.port import ChangeSet
from fairway.app.port.serving import ProbeTarget, ServingPorts
from fairway.app.serving.replica_usage import ReplicaUsageSampler
from fairway.app.serving.signature_check import check_signature
from fairway.errors import FairwayError, UnavailableError
from fairway.plan.service import service_command
from fairway.plan.service.access import access_of
from fairway.plan.service.clock_correction import not_later
from fairway.plan.service.replica import ROLE, highest_number, new_replica, ready_path, replica_run
from fairway.plan.service.service_plan import ServiceMeasurements, ServicePlan, ServiceSample, advance
from fairway.state.event import RunEvent
from fairway.state.fault import ANSWERING, ROUTING
from fairway.state.job import JobState
from fairway.state.phase import JobPhase, RunIntent, TaskPhase
from fairway.state.request_receipt import RequestReceipt
from fairway.state.service import ReplicaPhase, ServiceKey, ServiceRecord, ServiceReplica, ServiceState
from fairway.state.serving.load import RouteLoad
from fairway.state.serving.route import RoutePlan, RouterFault
from fairway.state.task import Task

log = logging.getLogger("fairway.services")

LOOK_EVERY = 1.0
"""Interval at which the measurements of routers and replicas are read, in seconds."""
GONE_KEPT = 20
"""Number of ended replicas whose records are kept: how often, and how, they ended."""


@dataclass(slots=True)
class ServiceEntry:
    """The state of one service in memory."""

    record: ServiceRecord
    measured: ServiceMeasurements = ServiceMeasurements()
    routed: RoutePlan | None = None
    """The routes last sent to the router."""
    load: RouteLoad | None = None
    wake_at: float | None = None

    @property
    def service(self) -> ServiceState:
        """The service."""
        return self.record.service

    @property
    def moving(self) -> bool:
        """Whether address, TLS or access rules do not match the document yet; False before the service listens at all."""
        service, routed = self.service, self.routed
        if not service.port or service.deleting:
            return False
        endpoint = service.spec.endpoint
        wanted = (service.spec.port or service.port, endpoint.bind, endpoint.hosts, access_of(service))
        return routed is None or (routed.port or service.port, routed.host, routed.hosts, routed.access) != wanted


class ServiceReconciler:
    """The services of one loop; a companion of the loop. All methods run under the loop's lock."""

    def __init__(self, loop: ReconcileLoop, serving: ServingPorts) -> None:
        self.loop = loop
        self.models = serving.models
        self.known: dict[ServiceKey, ServiceEntry] = {}
        self._router = serving.router
        self._watch = serving.watch
        self._python = serving.python
        self._use = ReplicaUsageSampler(loop.engine, loop.clock)
        self._faults = loop.faults
        self._faults.noted.append(lambda subject: self._tell() if subject.startswith("service:") else None)
        self._looked = float("-inf")
        self._watchers: set[asyncio.Future[None]] = set()
        self._watching = False
        self.may_follow: Callable[[ServiceState], Awaitable[None]] = _always
        """Raises `DeniedError` when a service lacks permission to read its model."""
        self._dropping: set[str] = set()
        """Services without a record whose routers could not be ended yet."""

    name = "services"

    async def start(self) -> None:
        """Load the stored services. Routers of services that have neither a record nor a replica are ended."""
        if not self._watching:
            self._watch.start(self.loop.wake)
            self._watching = True
        now = self.loop.clock.now()
        for record in self.loop.store.services():
            self.known.setdefault(record.service.key, ServiceEntry(not_later(record, now)))
        await self._router.start(self._hurry)
        names = {str(key) for key in self.known}
        orphaned = set(await self._router.kept()) - names
        self._dropping |= {name for name in orphaned if not self._has_replica(ServiceKey(*name.split("/", 1)))}
        await self._drop_leftovers()

    def _has_replica(self, key: ServiceKey) -> bool:
        """Return whether a replica of the service runs; the record of the service may have been lost."""
        return highest_number(key, self.loop.snapshot.jobs) > 0

    def _hurry(self) -> None:
        """Measure in the next turn: a router reported an urgent event, such as a request that waits for the first replica."""
        self._looked = float("-inf")
        self.loop.wake()

    async def close(self) -> None:
        """Detach. Routers and replicas continue to run."""
        for future in self._watchers:
            future.cancel()
        await self._use.close()
        await self._watch.close()
        await self._router.close()

    async def turn(self) -> float | None:
        """Measure, plan and act for every service. Return the time of the next turn.

        The failure of one service is its own fault.
        """
        await self._drop_leftovers()
        if not self.known:
            return None
        now = self.loop.clock.now()
        if now >= self._looked + LOOK_EVERY:
            self._looked = now
            await self._look(now)
            for standing in list(self.known.values()):
                if self._faults.due(subject_of(standing), "follow model"):
                    with self._faults.contain(subject_of(standing), "follow model"):
                        await self._follow_model(standing, now)
        for standing in list(self.known.values()):
            subject = subject_of(standing)
            if self._faults.due(subject, "plan"):
                with self._faults.contain(subject, "plan"):
                    await self._advance(standing, now)
        self._follow()
        times = [standing.wake_at for standing in self.known.values() if standing.wake_at is not None]
        return min([*times, self._looked + LOOK_EVERY]) if self.known else None

    def has_news(self) -> bool:
        """Return whether a replica started or ended since its service was planned: a request may wait for it."""
        now = self.loop.clock.now()
        healthy = [standing for standing in self.known.values() if self._faults.due(subject_of(standing), "plan")]
        pairs = [(old, self._refreshed(old, now)) for standing in healthy for old in standing.record.replicas]
        return any((old.phase, old.address) != (new.phase, new.address) for old, new in pairs)

    async def put(
        self, service: ServiceState, events: Sequence[tuple[str, str]] = (), receipts: tuple[RequestReceipt, ...] = ()
    ) -> None:
        """Store a new value of a service, together with the receipt of the request that changed it."""
        before = self.known.get(service.key)
        record = ServiceRecord(service, before.record.replicas if before else ())
        recorded = self._events(service.key, events)
        self.loop.store.commit(ChangeSet(services=(record,), events=recorded, receipts=receipts))
        if before is None:
            self._dropping.discard(str(service.key))
            self.known[service.key] = ServiceEntry(record)
        else:
            before.record = record
            self._faults.hurry(subject_of(before))
        self._tell()
        self.loop.wake()

    async def forget(self, key: ServiceKey) -> None:
        """Delete a service whose record cannot be read: its router, its replicas, and the record."""
        runs = [run for run in self.loop.snapshot.jobs.values() if highest_number(key, [run.key])]
        stopping = tuple(replace(run, intent=RunIntent.STOP) for run in runs)
        await self._router.drop(str(key))
        self.loop.store.commit(ChangeSet(jobs=stopping, services_deleted=(key,), events=self._events(key, [("Deleted", "")])))
        for run in stopping:
            self.loop.snapshot.put_job(run)
        self.loop.wake()

    async def changed(self) -> None:
        """Wait until any service changes."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._watchers.add(future)
        try:
            await future
        finally:
            self._watchers.discard(future)

    def _tell(self) -> None:
        for future in self._watchers:
            if not future.done():
                future.set_result(None)

    async def _look(self, now: float) -> None:
        with self._faults.contain("companion:services", "look at routers"):
            self._note_troubles(await self._router.troubles())
        loads: Mapping[str, RouteLoad] = {}
        with self._faults.contain("companion:services", "read loads"):
            loads = await self._router.look()
        for standing in self.known.values():
            with self._faults.contain(subject_of(standing), "measure"):
                self._measure(standing, loads.get(str(standing.service.key), standing.load), now)
        self._use.look(self._ready_runs())

    def _note_troubles(self, troubles: Mapping[str, RouterFault]) -> None:
        """Schedule routers that lack a process for repair in this turn. A service has a fault while its port does not answer."""
        for standing in self.known.values():
            trouble = troubles.get(str(standing.service.key))
            if trouble is not None and trouble.lacks_process and standing.routed is not None:
                log.warning("%s: %s; repairing it", standing.service.key, trouble.message)
                standing.routed = None
            if trouble is not None and not trouble.answers:
                self._faults.fail(subject_of(standing), ANSWERING, UnavailableError(trouble.message))
            else:
                self._faults.clear(subject_of(standing), ANSWERING)

    def _measure(self, standing: ServiceEntry, load: RouteLoad | None, now: float) -> None:
        """Add one sample of the measurements of router and replicas."""
        sights, used = self._watch.seen(), self._use.seen
        replicas = {
            replica.name: sight.load
            for replica in standing.record.replicas
            if (sight := sights.get(str(replica.run))) is not None and sight.load is not None
        }
        use = {
            replica.name: used[str(replica.run)]
            for replica in standing.record.replicas
            if replica.phase is ReplicaPhase.READY and str(replica.run) in used
        }
        standing.measured = standing.measured.add(ServiceSample(now, load, replicas, use))
        standing.load = load

    def _ready_runs(self) -> dict[str, tuple[JobState, Task]]:
        """Return the runs of ready replicas, each with its task."""
        ready = {}
        for standing in self.known.values():
            for replica in standing.record.replicas:
                run = self.loop.snapshot.jobs.get(replica.run)
                tasks = self._running(run) if run is not None and replica.phase is ReplicaPhase.READY else ()
                if run is not None and tasks:
                    ready[str(replica.run)] = (run, tasks[-1])
        return ready

    async def _follow_model(self, standing: ServiceEntry, now: float) -> None:
        """Start a release if the service follows its model and the reference resolves to another version than last time.

        A version that was rolled back is tried again if the alias referred to another one in between.
        """
        service = standing.service
        if not service.spec.follow or service.deleting or not service.revisions:
            return
        await self.may_follow(service)
        try:
            version = self.models.get(self.models.meant(service.spec.model, service.key.namespace))
        except FairwayError:
            return
        model = self.models.relative(str(version), service.key.namespace)
        if model != (service.followed or service.revisions[-1].model):
            after = service_command.applied(
                service, service.key, service.spec, model, version.format, service.origin, service.labels, now
            )
            check_signature(self.models, service, after)
            await self.put(after, [("Followed", f"{service.spec.model} now refers to {model}")])

    async def _advance(self, standing: ServiceEntry, now: float) -> None:
        before = standing.record
        replicas = tuple(self._refreshed(replica, now) for replica in before.replicas)
        plan = advance(standing.service, replicas, standing.measured, now)
        service, started = plan.service, self._started(plan, now)
        kept = _kept([_drained(replica, plan.drain, now) for replica in replicas] + started)
        record = ServiceRecord(service, kept)
        runs = [*self._runs(service, started), *self._stopping(kept, plan.stop)]
        events = self._events(service.key, plan.events)
        if record != before or runs or events:
            self.loop.store.commit(ChangeSet(services=(record,), jobs=tuple(runs), events=events))
            for run in runs:
                self.loop.snapshot.put_job(run)
            standing.record = record
            self._tell()
        standing.wake_at = plan.wake_at
        if plan.routes is None:
            await self._remove(standing)
        elif plan.routes != standing.routed and self._faults.due(subject_of(standing), ROUTING):
            with self._faults.contain(subject_of(standing), ROUTING):
                await self._route(standing, plan)

    async def _remove(self, standing: ServiceEntry) -> None:
        """Delete a service that has no replica left. A router that cannot be ended now is ended later."""
        key = standing.service.key
        self._dropping.add(str(key))
        await self._drop_leftovers()
        self.loop.store.commit(ChangeSet(services_deleted=(key,), events=self._events(key, [("Deleted", "")])))
        del self.known[key]
        self._faults.clear(subject_of(standing))
        self._tell()

    async def _drop_leftovers(self) -> None:
        for name in sorted(self._dropping):
            if self._faults.due("companion:services", f"end router of {name}"):
                with self._faults.contain("companion:services", f"end router of {name}"):
                    await self._router.drop(name)
                    self._dropping.discard(name)

    async def _route(self, standing: ServiceEntry, plan: ServicePlan) -> None:
        assert plan.routes is not None
        port = await self._router.put(plan.routes)
        moves = standing.moving
        standing.routed = plan.routes
        if moves:
            self._tell()
        if port != standing.service.port:
            record = ServiceRecord(replace(standing.service, port=port), standing.record.replicas)
            self.loop.store.commit(ChangeSet(services=(record,)))
            standing.record = record
            standing.wake_at = self.loop.clock.now()
            self._tell()

    def _started(self, plan: ServicePlan, now: float) -> list[ServiceReplica]:
        number = plan.service.replicas_made - len(plan.start)
        return [new_replica(plan.service, revision, number + offset, now) for offset, revision in enumerate(plan.start, start=1)]

    def _runs(self, service: ServiceState, started: Iterable[ServiceReplica]) -> Iterable[JobState]:
        for replica in started:
            revision = service.revision(replica.revision)
            if revision is not None:
                yield replica_run(service, revision, replica, self._python)

    def _stopping(self, replicas: Iterable[ServiceReplica], names: Sequence[str]) -> Iterable[JobState]:
        for replica in replicas:
            run = self.loop.snapshot.jobs.get(replica.run)
            if replica.name in names and run is not None and run.intent is not RunIntent.STOP:
                yield replace(run, intent=RunIntent.STOP)

    def _refreshed(self, replica: ServiceReplica, now: float) -> ServiceReplica:
        """Return the replica updated from its run and the watch."""
        if replica.phase is ReplicaPhase.GONE:
            return replica
        run = self.loop.snapshot.jobs.get(replica.run)
        if run is None or run.phase.over:
            return self._gone(replica, now)
        address = self._address(run)
        sight = self._watch.seen().get(str(replica.run))
        if run.phase is not JobPhase.RUNNING:
            phase, message = ReplicaPhase.WAITING, run.hold.message if run.hold else ""
        elif sight is None and replica.phase is ReplicaPhase.READY:
            # After a restart no probe has completed yet: a ready replica stays ready until its first probe.
            phase, message = ReplicaPhase.READY, ""
        elif sight is None or not sight.ready:
            phase, message = ReplicaPhase.STARTING, "it does not answer yet"
        else:
            phase, message = ReplicaPhase.READY, sight.refused
        if replica.phase is ReplicaPhase.DRAINING:
            return replace(replica, address=address)
        since = replica.since if phase is replica.phase else now
        return replace(replica, phase=phase, address=address, message=message, since=since, started=run.started)

    def _gone(self, replica: ServiceReplica, now: float) -> ServiceReplica:
        run = self.loop.store.get_job(replica.run)
        outcome = run.outcome if run is not None else None
        message = (outcome.message or outcome.reason) if outcome is not None else "its run no longer exists"
        # A service has no roles: its limits are at the top level of its spec.
        message = message.replace(f"roles.{ROLE}.", "")
        failed = run is None or run.intent is not RunIntent.STOP
        if run is not None and failed and run.phase is JobPhase.SUCCEEDED:
            message = "its server exited with code 0; a server must run until it is stopped"
        for_memory = failed and outcome is not None and outcome.reason == "OutOfMemory"
        ended = replace(replica, phase=ReplicaPhase.GONE, since=now, message=message, failed=failed, address="")
        return replace(ended, out_of_memory=for_memory)

    def _address(self, run: JobState) -> str:
        tasks = self._running(run)
        return tasks[-1].address if tasks else ""

    def _running(self, run: JobState) -> list[Task]:
        return [task for task in self.loop.snapshot.tasks_of(run.key) if task.phase is TaskPhase.RUNNING]

    def _follow(self) -> None:
        """Probe every replica that has an address, except draining ones: those end when their last requests are done."""
        targets = {}
        for standing in self.known.values():
            for replica in standing.record.replicas:
                revision = standing.service.revision(replica.revision)
                if replica.address and revision is not None and replica.phase is not ReplicaPhase.DRAINING:
                    spec = revision.spec
                    probe = (ready_path(spec), not spec.command, str(spec.protocol))
                    targets[str(replica.run)] = ProbeTarget(replica.address, *probe)
        self._watch.follow(targets)

    def _events(self, key: ServiceKey, told: Iterable[tuple[str, str]]) -> tuple[RunEvent, ...]:
        now = self.loop.clock.now()
        return tuple(RunEvent(now, f"service:{key}", reason, message) for reason, message in told)


def subject_of(standing: ServiceEntry) -> str:
    """Return the service as the subject of events and faults."""
    return f"service:{standing.service.key}"


def _drained(replica: ServiceReplica, names: Sequence[str], now: float) -> ServiceReplica:
    if replica.name not in names or replica.phase in (ReplicaPhase.GONE, ReplicaPhase.DRAINING):
        return replica
    return replace(replica, phase=ReplicaPhase.DRAINING, since=now)


def _kept(replicas: Sequence[ServiceReplica]) -> tuple[ServiceReplica, ...]:
    """Return the existing replicas, and the last few that have ended."""
    ended = [replica for replica in replicas if replica.phase is ReplicaPhase.GONE]
    forgotten = {replica.number for replica in ended[:-GONE_KEPT]}
    return tuple(replica for replica in replicas if replica.number not in forgotten)


async def _always(_service: ServiceState) -> None:
    """Default on a single machine, where all models belong to its owner."""
