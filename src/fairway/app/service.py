"""Use cases of services: commands change state, queries read it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from fairway.app.idempotency import IdempotencyKey, IdempotentRequest, ReceiptBook
from fairway.app.key import KeyUseCases
from fairway.app.loop.loop import ReconcileLoop
from fairway.app.port.port import ChangeSet, SecretStore
from fairway.app.serving.room_preview import planned_room
from fairway.app.serving.service_turn import ServiceEntry, ServiceReconciler, subject_of
from fairway.app.serving.signature_check import check_signature, signature_changes
from fairway.app.submission import Submission, SubmissionStore
from fairway.errors import NeverFitsError, NotFoundError, RefusedError
from fairway.plan.admission import never_fits
from fairway.plan.service import service_command
from fairway.plan.service.access import service_url
from fairway.plan.service.replica import highest_number, new_replica, replica_run
from fairway.plan.service.rollout import is_active
from fairway.spec.job import TrainingJob
from fairway.spec.service import ModelService, ServiceSpec
from fairway.spec.validation import refuse_problems
from fairway.state.fault import ROUTING, WorkFault
from fairway.state.job import JobState, SubmissionOrigin
from fairway.state.model import ModelVersion
from fairway.state.service import ReplicaPhase, ServiceKey, ServiceState
from fairway.state.serving.access import PortProtection
from fairway.units import suggestion

_MOVE_SECONDS = 25.0
"""Timeout for a change of the address, in seconds: routers have 20 seconds to start or to end."""
_LOOK_SECONDS = 0.2


@dataclass(frozen=True, slots=True)
class ServiceRequest:
    """One service document, and the origin of the request."""

    document: ModelService
    origin: SubmissionOrigin = SubmissionOrigin()

    @property
    def key(self) -> ServiceKey:
        """The key of the described service."""
        return ServiceKey(self.document.metadata.namespace, self.document.metadata.name)


class ServiceUseCases:
    """The use cases of services."""

    def __init__(self, turns: ServiceReconciler, secrets: SecretStore, submissions: SubmissionStore) -> None:
        self._turns = turns
        self._loop: ReconcileLoop = turns.loop
        self._models = turns.models
        self._secrets = secrets
        self._submissions = submissions
        self._receipts = ReceiptBook(self._loop.store, self._loop.clock)
        self.routed_by: Callable[[str], str] = lambda _service: ""
        """Describe the router of a service; set by the code that chooses it."""
        self.keys: KeyUseCases | None = None
        """API keys; None where no router checks them."""
        self.access_state: Callable[[str], PortProtection] = lambda _service: PortProtection()
        """Return how the port of a service is protected; set by the code that owns the routers."""
        self.check_model: Callable[[ModelVersion, ServiceSpec], Awaitable[None]] = _any_model
        """Raise the error with which a replica of a model version would end; set by code that can read the files."""
        self.check_endpoint: Callable[[ServiceState], Sequence[str]] = lambda _service: ()
        """Return what the endpoint of a document lacks, each with its fix; set by the engine."""
        self.in_cluster = False
        """Whether a service listens on an address of a cluster rather than of this machine; set by the engine."""
        self.outcome_token: Callable[[str], str] = lambda _service: ""
        """Return the token that reports of outcomes to a service must carry; empty where it is not available."""
        self.access_folder: Callable[[str], Path | None] = lambda _service: None
        """Return the folder of a service's access log; None where it is not stored."""
        self.check_rights: Callable[[ServiceRequest], Awaitable[None]] = _all_rights
        """Raise `DeniedError` if the caller may not read the model of a document; set by an engine with permissions."""

    def guard_following(self, check: Callable[[ServiceState], Awaitable[None]]) -> None:
        """Set a check made before a service follows its model.

        It raises `DeniedError` if the service's user may not read the model.
        """
        self._turns.may_follow = check

    # Commands

    async def apply(self, ask: ServiceRequest, request: IdempotencyKey | None = None) -> tuple[ServiceState, str]:
        """Apply the document; with an idempotency key, at most once.

        Return the service, and `created`, `changed` or `unchanged`.
        """
        async with self._receipts.once(self._asked_by(request), "serve", str(ask.key), self._written(ask)) as once:
            if once.over and once.known is not None:
                return self.find(ask.key).service, once.known.made[0]
            return await self._apply(ask, once)

    async def _apply(self, ask: ServiceRequest, once: IdempotentRequest) -> tuple[ServiceState, str]:
        checked = await self.checked(ask)
        ask = replace(ask, origin=await self._received(checked, ask.origin))
        begun = self._loop.clock.now()
        async with self._loop.lock:
            before = self._service(ask.key)
            after = self.planned(ask)
            if before is None:
                after = replace(after, replicas_made=highest_number(ask.key, self._loop.store.job_keys()))
            word = "created" if before is None else "unchanged" if after == before else "changed"
            if word != "unchanged":
                who = ask.origin.user or "an unknown user"
                event = ("Created" if before is None else "Changed", f"by {who}")
                await self._turns.put(after, [event], once.receipt([word]))
            elif once.key is not None:
                self._loop.store.commit(ChangeSet(receipts=once.receipt([word])))
        if before is not None and (before.spec.port, before.spec.endpoint) != (after.spec.port, after.spec.endpoint):
            await self._moved(ask.key, begun)
        return after, word

    async def _moved(self, key: ServiceKey, begun: float) -> None:
        """Wait until a change of the address is in force or has failed, which is then a fault of the service."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_MOVE_SECONDS):
                while (standing := self._turns.known.get(key)) is not None and standing.moving:
                    if any(fault.work == ROUTING and fault.retry_at > begun for fault in self.faults(standing)):
                        return
                    with contextlib.suppress(TimeoutError):
                        # A fault that recurs with the same cause does not count as a change.
                        async with asyncio.timeout(_LOOK_SECONDS):
                            await self._turns.changed()

    def _asked_by(self, key: IdempotencyKey | None) -> IdempotencyKey | None:
        """Return the idempotency key in its stored form; an override adds the authenticated user where there is one."""
        return key

    def _written(self, ask: ServiceRequest) -> str:
        """Return the content of the request as text."""
        labels = sorted(ask.document.metadata.labels.items())
        return f"{labels} {ask.document.spec.model_dump_json(exclude_unset=True)}"

    async def checked(self, ask: ServiceRequest) -> ServiceState:
        """Return the service as an apply would leave it on the current nodes; raises the refusals of an apply."""
        await self.check_rights(ask)
        await self._loop.refresh_nodes()
        after = self.planned(ask)
        await self._check_model(self._service(ask.key), after)
        return after

    async def _check_model(self, before: ServiceState | None, after: ServiceState) -> None:
        """Check a model before its release; a model that is already served is not checked again."""
        revision = after.revisions[-1]
        if revision.model and (before is None or before.revision(revision.number) is None):
            await self.check_model(self._models.get(self._models.meant(revision.model, after.key.namespace)), revision.spec)

    def room(self, before: ServiceState | None, after: ServiceState) -> list[str]:
        """Describe which runs would be preempted for the replicas of the change, or what these would wait for."""
        return planned_room(self._loop, before, after)

    def signature_changes(self, before: ServiceState | None, after: ServiceState) -> list[str]:
        """Describe the effect of the change on clients: inputs and outputs that differ."""
        effects = {True: "breaks clients", False: "breaks no client"}
        return [f"{change.text} ({effects[change.breaks]})" for change in signature_changes(self._models, before, after)]

    def planned(self, ask: ServiceRequest) -> ServiceState:
        """Return the service as an apply would leave it; raises the refusals of an apply."""
        spec = ask.document.spec
        missing = sorted(set(spec.secrets) - set(self._secrets.names()))
        # In a cluster, secrets belong to the namespace and the operator must not read them.
        if missing and self._loop.places:
            message = f"there is no secret {', '.join(missing)}"
            raise RefusedError(message, fix=f"fairway secret set {missing[0]}")
        version = self._models.get(self._models.meant(spec.model, ask.key.namespace)) if spec.model else None
        after = service_command.applied(
            self._service(ask.key),
            ask.key,
            spec,
            self._models.relative(str(version), ask.key.namespace) if version else "",
            version.format if version else "",
            ask.origin,
            dict(ask.document.metadata.labels),
            self._loop.clock.now(),
        )
        self._check_fit(after)
        check_signature(self._models, self._service(ask.key), after)
        lacks = self.check_endpoint(after)
        if lacks:
            message = f"the endpoint of {ask.key.name} cannot be opened: {'; '.join(lacks)}"
            raise RefusedError(message, fix="correct `endpoint` in its document")
        return after

    def release_ask(self, key: ServiceKey, model: str, strategy: str, *, allow_signature_change: bool = False) -> ServiceRequest:
        """Return the document for the release of another version, with the service's own strategy unless `strategy` is given.

        Consent to another signature is given separately for each release. Raises `SpecError` if guards of the document are
        incompatible with the strategy.
        """
        service = self.find(key).service
        if not service.spec.model:
            message = f"{key.name} serves a command, not a model"
            raise RefusedError(message, fix="apply its document with the new command")
        spec = service.spec.model_dump(mode="json", exclude_unset=True) | {"model": model}
        policy = {name: value for name, value in spec.get("rollout", {}).items() if name != "allow_signature_change"}
        if allow_signature_change:
            policy["allow_signature_change"] = True
        if strategy:
            policy["strategy"] = strategy
            if strategy != service.spec.rollout.strategy:
                policy.pop("steps", None)
        if policy or "rollout" in spec:
            spec["rollout"] = policy
        metadata = {"name": key.name, "namespace": key.namespace, "labels": service.labels}
        document = ModelService.model_validate({"metadata": metadata, "spec": spec})
        refuse_problems(document)
        return ServiceRequest(document, service.origin)

    async def scale(self, key: ServiceKey, floor: int) -> ServiceState:
        """Set the minimum number of replicas until it is changed again."""
        return await self._change(
            key, lambda service: service_command.scaled(service, floor), "Floor", f"at least {floor} replicas"
        )

    async def pause(self, key: ServiceKey) -> ServiceState:
        """Pause the release at its current step."""
        now = self._loop.clock.now()
        return await self._change(key, lambda service: service_command.paused(service, now), "RolloutPaused", "by hand")

    async def resume(self, key: ServiceKey, request: IdempotencyKey | None = None) -> ServiceState:
        """Resume the release."""
        now = self._loop.clock.now()
        return await self._change(
            key, lambda service: service_command.resumed(service, now), "RolloutResumed", "by hand", request
        )

    async def undo(self, key: ServiceKey, request: IdempotencyKey | None = None) -> ServiceState:
        """Return to the previous revision."""
        now = self._loop.clock.now()
        return await self._change(key, lambda service: service_command.undone(service, now), "RolloutUndone", "by hand", request)

    async def delete(self, key: ServiceKey) -> None:
        """Delete a service: first routes, then replicas, each with its grace period. Returns when nothing remains."""
        if self.is_unreadable(key):
            async with self._loop.lock:
                await self._turns.forget(key)
            return
        await self._change(key, service_command.deleted, "Deleting", "by hand")
        while key in self._turns.known:
            await self._turns.changed()

    # Queries

    async def note(self, key: ServiceKey, reason: str, message: str) -> None:
        """Add an event to the record of an existing service."""
        async with self._loop.lock:
            if key in self._turns.known:
                await self._turns.put(self._turns.known[key].service, [(reason, message)])

    def is_unreadable(self, key: ServiceKey) -> bool:
        """Return whether the service has a record that cannot be read; such a service can be deleted by name."""
        record_key = ("service", (key.namespace, key.name))
        return key not in self._turns.known and any((bad.kind, bad.key) == record_key for bad in self._loop.store.unreadable())

    def all(self, namespace: str = "") -> list[ServiceEntry]:
        """Return the services of a namespace, or all, in order of name."""
        return [self._turns.known[key] for key in sorted(self._turns.known) if namespace in ("", key.namespace)]

    def find(self, key: ServiceKey) -> ServiceEntry:
        """Return one service."""
        standing = self._turns.known.get(key)
        if standing is None:
            names = [other.name for other in self._turns.known if other.namespace == key.namespace]
            hint = suggestion.did_you_mean(key.name, names) or "`fairway list services` shows the services"
            message = f"there is no service {key.name} in namespace {key.namespace}"
            raise NotFoundError(message, fix=hint)
        return standing

    def asking(self, question: Callable[[ServiceSpec], str]) -> Callable[[str], str]:
        """Turn a function of specifications into a function of service names.

        It returns an empty string for an unknown service.
        """

        def answer(service: str) -> str:
            standing = self._turns.known.get(ServiceKey(*service.split("/", 1)))
            return question(standing.service.spec) if standing is not None else ""

        return answer

    def is_kept(self, key: ServiceKey) -> bool:
        """Return whether a service of that name exists."""
        return key in self._turns.known

    def model_of(self, service: ServiceState) -> ModelVersion | None:
        """Return the model version that serves now, or will serve first; None for a command, or if it was deleted."""
        revision = service.revision(service.stable) or (service.revisions[-1] if service.revisions else None)
        if revision is None or not revision.model:
            return None
        try:
            return self._models.get(self._models.meant(revision.model, service.key.namespace))
        except NotFoundError:
            return None

    def url_of(self, service: ServiceState) -> str:
        """Return the URL of the service; empty until it listens."""
        return service_url(service)

    def serving(self, version: ModelVersion) -> str:
        """Describe which service serves a model version, or could roll back to it; empty if none."""
        for standing in self.all():
            key = standing.service.key
            for revision in standing.service.revisions:
                if revision.model and self._models.meant(revision.model, key.namespace) == str(version):
                    return f"service {key.name} (revision {revision.number})"
        return ""

    def batching(self, version: ModelVersion) -> str:
        """Describe whether replicas batch requests to a model version and why; empty if none has reported it yet."""
        for standing in self.all():
            for revision in reversed(standing.service.revisions):
                reported = revision.batching is not None and revision.model
                if reported and self._models.meant(revision.model, standing.service.key.namespace) == str(version):
                    return str(revision.batching)
        return ""

    def replica_runs(self, standing: ServiceEntry) -> list[tuple[str, JobState]]:
        """Return the stored replicas, each with its run, oldest first."""
        runs = []
        for replica in standing.record.replicas:
            run = self._loop.snapshot.jobs.get(replica.run) or self._loop.store.get_job(replica.run)
            if run is not None:
                runs.append((replica.name, run))
        return runs

    def faults(self, standing: ServiceEntry) -> tuple[WorkFault, ...]:
        """Return the current faults of a service."""
        return self._loop.faults.of(subject_of(standing))

    async def changed(self) -> None:
        """Wait until any service changes."""
        await self._turns.changed()

    async def settled(self, key: ServiceKey) -> ServiceEntry:
        """Return the service as soon as no release is in progress and it is ready or needs no replica.

        If work on it fails before it listens, it is returned as it is.
        """
        while True:
            standing = self.find(key)
            service = standing.service
            ready = any(replica.phase is ReplicaPhase.READY for replica in standing.record.replicas)
            faults = self.faults(standing)
            if (faults and not service.port) or (standing.moving and any(fault.work == ROUTING for fault in faults)):
                return standing
            over = service.rollout is None or not is_active(service.rollout)
            if service.port and not standing.moving and over and (ready or not service.scale.wanted or not service.stable):
                return standing
            await self._turns.changed()

    # Helpers

    async def _received(self, service: ServiceState, origin: SubmissionOrigin) -> SubmissionOrigin:
        """Return the origin with the digest of the code, which is stored from now on."""
        return await self._submissions.receive(self._submission(service, origin))

    async def missing(self, before: ServiceState | None, after: ServiceState, origin: SubmissionOrigin) -> Sequence[str]:
        """Return what the replicas would lack, and the port if it is in use; each with its fix."""
        port = after.spec.port if before is None or before.spec.port != after.spec.port else 0
        return await self._submissions.missing(self._submission(after, origin), port)

    @staticmethod
    def _submission(service: ServiceState, origin: SubmissionOrigin) -> Submission:
        """Return a replica as a run to submit."""
        revision = service.revisions[-1]
        run = replica_run(service, revision, new_replica(service, revision.number, 0, 0.0), "python")
        metadata = {"name": service.key.name, "namespace": service.key.namespace}
        document = TrainingJob.model_validate({"metadata": metadata, "spec": run.spec})
        return Submission(document, origin)

    async def _change(
        self,
        key: ServiceKey,
        change: Callable[[ServiceState], ServiceState],
        reason: str,
        message: str,
        request: IdempotencyKey | None = None,
    ) -> ServiceState:
        async with self._receipts.once(self._asked_by(request), reason, str(key), message) as once, self._loop.lock:
            before = self.find(key).service
            if once.over:
                return before
            after = change(before)
            if after != before:
                await self._agree(before, after)
                await self._turns.put(after, [(reason, message)], once.receipt())
            return after

    async def _agree(self, before: ServiceState, after: ServiceState) -> None:
        """Called before a change is stored: an override updates documents stored elsewhere, or raises and nothing has changed."""

    def _service(self, key: ServiceKey) -> ServiceState | None:
        standing = self._turns.known.get(key)
        return standing.service if standing else None

    def _check_fit(self, service: ServiceState) -> None:
        if not self._loop.places:
            return  # A cluster may grow; its scheduler reports what is missing.
        revision = service.revisions[-1]
        trial = replica_run(service, revision, new_replica(service, revision.number, 0, 0.0), "python")
        snapshot = self._loop.snapshot
        why = never_fits(replace(trial, created=self._loop.clock.now()), snapshot.nodes, snapshot.queues.get(trial.spec.queue))
        if why:
            message = f"a replica of {service.key.name} can never run here: {why}"
            raise NeverFitsError(message, fix="request fewer resources; `fairway top node` shows what the nodes have")


async def _any_model(_version: ModelVersion, _spec: ServiceSpec) -> None:
    """Default where the files cannot be read: replicas detect the errors."""


async def _all_rights(_ask: ServiceRequest) -> None:
    """Default on a single machine: one namespace of models, readable by its owner."""
