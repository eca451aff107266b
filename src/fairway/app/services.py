"""What can be asked of services: commands change, queries show."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from fairway.app.ports import SecretStore
from fairway.app.service_ports import ModelCatalogue
from fairway.app.service_turn import ServiceTurns, Standing
from fairway.errors import NeverFitsError, NotFoundError, RefusedError
from fairway.plan.admit import never_fits
from fairway.plan.service import commands
from fairway.plan.service.replica import new_replica, replica_run
from fairway.spec.service import ModelService
from fairway.state.job import Origin
from fairway.state.model import ModelVersion
from fairway.state.service import RolloutPhase, Service, ServiceKey
from fairway.units import suggest


@dataclass(frozen=True, slots=True)
class ServiceAsk:
    """One service document, and who asks."""

    document: ModelService
    origin: Origin = Origin()

    @property
    def key(self) -> ServiceKey:
        """The service that it describes."""
        return ServiceKey(self.document.metadata.namespace, self.document.metadata.name)


class Services:
    """The use cases about services."""

    def __init__(self, turns: ServiceTurns, models: ModelCatalogue, secrets: SecretStore) -> None:
        self._turns = turns
        self._loop = turns.loop
        self._models = models
        self._secrets = secrets

    # Commands

    async def apply(self, ask: ServiceAsk) -> tuple[Service, str]:
        """Make it so. Returns the service, and `created`, `changed` or `unchanged`."""
        await self._loop.refresh_nodes()
        async with self._loop.lock:
            before = self._service(ask.key)
            after = self.planned(ask)
            word = "created" if before is None else "unchanged" if after == before else "changed"
            if word != "unchanged":
                who = ask.origin.user or "somebody"
                await self._turns.put(after, [("Created" if before is None else "Changed", f"by {who}")])
            return after, word

    def planned(self, ask: ServiceAsk) -> Service:
        """The service as an apply would leave it; refusals are those of an apply."""
        spec = ask.document.spec
        missing = sorted(set(spec.secrets) - set(self._secrets.names()))
        if missing:
            message = f"there is no secret {', '.join(missing)}"
            raise RefusedError(message, fix=f"fairway secret set {missing[0]}")
        version = self._models.find(spec.model) if spec.model else None
        after = commands.applied(
            self._service(ask.key),
            ask.key,
            spec,
            str(version) if version else "",
            version.format if version else "",
            ask.origin,
            dict(ask.document.metadata.labels),
            self._loop.clock.now(),
        )
        self._check_fit(after)
        return after

    async def scale(self, key: ServiceKey, floor: int) -> Service:
        """Never fewer replicas than this, until told otherwise."""
        return await self._change(key, lambda service: commands.scaled(service, floor), "Scaled", f"at least {floor}")

    async def pause(self, key: ServiceKey) -> Service:
        """Hold the release where it is."""
        now = self._loop.clock.now()
        return await self._change(key, lambda service: commands.paused(service, now), "RolloutPaused", "by hand")

    async def resume(self, key: ServiceKey) -> Service:
        """Let the release go on."""
        now = self._loop.clock.now()
        return await self._change(key, lambda service: commands.resumed(service, now), "RolloutResumed", "by hand")

    async def undo(self, key: ServiceKey) -> Service:
        """Back to the revision before."""
        now = self._loop.clock.now()
        return await self._change(key, lambda service: commands.undone(service, now), "RolloutUndone", "by hand")

    async def delete(self, key: ServiceKey) -> None:
        """Take it away: routes first, then replicas, each with its grace. Returns when nothing is left."""
        await self._change(key, commands.deleted, "Deleting", "by hand")
        while key in self._turns.known:
            await self._turns.changed()

    async def follow(self, version: ModelVersion, alias: str, moved_by: str) -> list[Service]:
        """Start a release in every service that follows the alias and serves another version."""
        started = []
        for standing in self.all():
            spec = standing.service.spec
            if not (spec.follow and spec.model in _followed(version, alias)):
                continue
            after = commands.applied(
                standing.service,
                standing.service.key,
                spec,
                str(version),
                version.format,
                standing.service.origin,
                standing.service.labels,
                self._loop.clock.now(),
            )
            if after != standing.service:
                async with self._loop.lock:
                    await self._turns.put(after, [("Followed", f"{version} became {alias} by {moved_by or 'somebody'}")])
                started.append(after)
        return started

    # Queries

    def all(self, namespace: str = "") -> list[Standing]:
        """The services of a namespace, or all, in order of name."""
        return [self._turns.known[key] for key in sorted(self._turns.known) if namespace in ("", key.namespace)]

    def find(self, key: ServiceKey) -> Standing:
        """One service."""
        found = self._turns.known.get(key)
        if found is None:
            known = [other.name for other in self._turns.known if other.namespace == key.namespace]
            hint = suggest.did_you_mean(key.name, known) or "`fairway list services` shows what there is"
            message = f"there is no service {key.name} in namespace {key.namespace}"
            raise NotFoundError(message, fix=hint)
        return found

    def is_kept(self, key: ServiceKey) -> bool:
        """Whether there is a service of that name."""
        return key in self._turns.known

    def serving(self, version: ModelVersion) -> str:
        """Who serves a model version, in words; empty when nobody does."""
        for standing in self.all():
            for revision in standing.service.revisions:
                if revision.model == str(version):
                    return f"service {standing.service.key.name} (revision {revision.number})"
        return ""

    async def settled(self, key: ServiceKey) -> Standing:
        """The service, as soon as its release is over and it answers; or as it is when it was rolled back."""
        while True:
            standing = self.find(key)
            service = standing.service
            moving = service.rollout is not None and service.rollout.phase not in (RolloutPhase.DONE, RolloutPhase.ROLLED_BACK)
            if service.port and not moving:
                return standing
            await self._turns.changed()

    # Parts

    async def _change(self, key: ServiceKey, change: Callable[[Service], Service], reason: str, message: str) -> Service:
        async with self._loop.lock:
            before = self.find(key).service
            after = change(before)
            if after != before:
                await self._turns.put(after, [(reason, message)])
            return after

    def _service(self, key: ServiceKey) -> Service | None:
        known = self._turns.known.get(key)
        return known.service if known else None

    def _check_fit(self, service: Service) -> None:
        revision = service.revisions[-1]
        trial = replica_run(service, revision, new_replica(service, revision.number, 0, 0.0), "python")
        snapshot = self._loop.snapshot
        why = never_fits(replace(trial, created=self._loop.clock.now()), snapshot.nodes, snapshot.queues.get(trial.spec.queue))
        if why:
            message = f"a replica of {service.key.name} can never run here: {why}"
            raise NeverFitsError(message, fix="ask for less, or see `fairway top node` for what there is")


def _followed(version: ModelVersion, alias: str) -> tuple[str, ...]:
    """The references that mean this version now."""
    return (f"{version.name}@{alias}",) if alias else (version.name, f"{version.name}@latest")
