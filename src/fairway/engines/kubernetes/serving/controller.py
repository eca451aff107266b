"""Brings the objects of a service in step with what the planner wants. Level-triggered: any event may be lost.

Replica counts are written here and nowhere else; whoever scales a Deployment by hand is overruled.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from fairway.engines.kubernetes import marks
from fairway.engines.kubernetes.client import errors, kinds
from fairway.engines.kubernetes.client.api import Client
from fairway.engines.kubernetes.client.mirror import Mirror
from fairway.engines.kubernetes.client.paths import Resource
from fairway.engines.kubernetes.objects import Custom, Deployment, Pod
from fairway.engines.kubernetes.objects import Service as ServiceObject
from fairway.engines.kubernetes.operator.installation import Installation
from fairway.engines.kubernetes.serving import manifests, naming, seating
from fairway.engines.kubernetes.serving.exposure import Exposure, keys_name, keys_secret
from fairway.engines.kubernetes.serving.gateway import Gateway, front_service
from fairway.engines.kubernetes.serving.gateways import Gateways, Way
from fairway.engines.kubernetes.serving.manifests import DIGEST, Manifest
from fairway.engines.kubernetes.serving.status import UID
from fairway.errors import ConflictError
from fairway.plan.service.rollout import is_active
from fairway.state.job import Job
from fairway.state.route import RoutePlan
from fairway.state.service import Service, ServiceKey
from fairway.state.snapshot import Snapshot
from fairway.state.task import Task

MANAGER = "fairway-serving"
ROUTERS = 2
"""Routers of a service: one may go without anybody noticing."""
PATIENCE = 2.0
"""Seconds for which a Deployment may let the right pod go by itself, before it is deleted."""
LOOK_AGAIN = 1.0

log = logging.getLogger("fairway.operator")


class Wishes(Protocol):
    """What is wanted, from the planner and whoever gives keys."""

    def service(self, key: ServiceKey) -> Service | None:
        """The service of that name."""
        ...

    def plan(self, key: ServiceKey) -> RoutePlan | None:
        """Where its requests go."""
        ...

    def plan_text(self, plan: RoutePlan) -> bytes:
        """The plan as routers read it."""
        ...

    def snapshot(self) -> Snapshot:
        """The runs, of which some are replicas."""
        ...

    def tokens(self, key: ServiceKey) -> tuple[str, str]:
        """What its pods prove themselves with, and what its router asks for."""
        ...

    def key_records(self, key: ServiceKey) -> bytes:
        """What is kept of its API keys, as routers read it."""
        ...


class Mirrors:
    """What there is."""

    def __init__(
        self, pods: Mirror[Pod], deployments: Mirror[Deployment], services: Mirror[ServiceObject], objects: Mirror[Custom]
    ) -> None:
        self.pods = pods
        self.deployments = deployments
        self.services = services
        self.objects = objects


class ServiceObjects:
    """The objects of every service; `look` is the work of a controller."""

    def __init__(
        self,
        client: Client,
        mirrors: Mirrors,
        installation: Installation,
        endpoint: str,
        wishes: Wishes,
        now: Callable[[], float],
    ) -> None:
        self._client = client
        self._mirrors = mirrors
        self._installation = installation
        self._endpoint = endpoint
        self.authority = ""
        """By which pods know the operator, in PEM; empty: they are led there without TLS."""
        self._wishes = wishes
        self._gateways = Gateways(client, installation, now)
        self._now = now
        self._plans: dict[ServiceKey, Manifest] = {}
        """The ConfigMap that was applied last, by service."""
        self._keys: dict[ServiceKey, str] = {}
        """The Secret that is there, by service."""
        self._key_secrets: dict[ServiceKey, str] = {}
        """The Secret with the hashes of API keys that was made last, by service."""
        self._leaving: dict[str, float] = {}
        """Pods that are to go, by uid, and since when they are marked."""
        self.fronts: dict[ServiceKey, str] = {}
        """The name of the Service that people ask, by service."""
        self.trouble: dict[ServiceKey, str] = {}
        """Why the objects of a service are not as they should be, in words."""

    def by_gateway(self, key: ServiceKey) -> bool:
        """Whether requests to a service come by a gateway, not by our router."""
        return self._gateways.leads(key)

    def way(self, key: ServiceKey) -> Way:
        """By whom a service is asked, and why."""
        return self._gateways.ways.get(key, Way())

    def way_changed(self, tell: Callable[[ServiceKey], None]) -> None:
        """Have this called when a service is asked by another, or for another reason."""
        self._gateways.changed = tell

    async def look(self, text: str) -> float | None:
        """Bring one service in step."""
        key = ServiceKey(*text.split("/", 1))
        service = self._wishes.service(key)
        if service is None:
            if self._is_wanted(key):
                return LOOK_AGAIN
            await self._remove(key)
            return None
        try:
            again = await self._bring(service)
        except (errors.ApiError, ConflictError) as error:
            self.trouble[key] = str(error)
            raise
        self.trouble.pop(key, None)
        return again

    async def _bring(self, service: Service) -> float | None:
        key, owner = service.key, owner_of(service, self._mirrors.objects.get(str(service.key)))
        plan = self._wishes.plan(key)
        if plan is None:
            return None
        front = await self._front(service, plan, owner)
        children = owner or _reference("v1", "Service", front.metadata.name, front.metadata.uid)
        keys = self._wishes.tokens(key)
        name = naming.secret_name(key, children["uid"], keys[0])
        around = manifests.Around(self._installation, self._endpoint, name, self.authority)
        await self._make_keys(key, manifests.owned(manifests.secret(key, around.secret, *keys), children))
        way = await self._gateways.way(service, plan, front, children)
        if way.unheard:
            # It may still send requests to replicas that are to go.
            return way.again
        again = await self._revisions(service, owner, around)
        if way.gateway is not None and way.leads:
            await self._lead(key, front, way.gateway, owner, children)
            return sooner(again, way.again)
        await self._keep_plan(key, manifests.owned(manifests.plan_map(key, self._wishes.plan_text(plan)), children))
        if way.waits:
            return sooner(again, way.again)
        exposed = await self._expose(service, children)
        await self._deploy(manifests.owned(manifests.router(key, ROUTERS, around, exposed), owner))
        return sooner(again, await self._lead_to_router(key, front, way, owner, children))

    async def _lead(
        self, key: ServiceKey, front: ServiceObject, gateway: Gateway, owner: Manifest | None, children: Manifest
    ) -> None:
        """The gateway follows the route: the Service leads there, then there alone, and our router goes."""
        name, port = front.metadata.name, front.spec.ports[0].port
        await self._gateways.lead(key, name, gateway, children)
        await self._serve(manifests.owned(front_service(key, name, port), owner))
        await self._gateways.alone(key, name)
        known = self._mirrors.deployments.get(f"{key.namespace}/{naming.router_name(key)}")
        if known is not None and known.metadata.labels.get(marks.SERVICE) == key.name:
            await self._delete(known)

    async def _lead_to_router(
        self, key: ServiceKey, front: ServiceObject, way: Way, owner: Manifest | None, children: Manifest
    ) -> float | None:
        """Our router leads, as soon as it can. Seconds until it may, or until somebody else might."""
        known = self._mirrors.deployments.get(f"{key.namespace}/{naming.router_name(key)}")
        if not front.spec.selector and (known is None or not known.status.ready_replicas):
            return LOOK_AGAIN
        name, port = front.metadata.name, front.spec.ports[0].port
        was_led = not front.spec.selector
        front = await self._serve(manifests.owned(manifests.front_service(key, name, port), owner))
        if not self._installation.gateway and not was_led:
            return None
        return sooner(await self._gateways.leave(key, front, way, children), way.again)

    async def _make_keys(self, key: ServiceKey, body: Manifest) -> None:
        """A Secret of this name has these keys: what is there already is right."""
        name = body["metadata"]["name"]
        if self._keys.get(key) == name:
            return
        with contextlib.suppress(errors.AlreadyExists):
            await self._client.create(kinds.SECRETS, body, key.namespace)
        self._keys[key] = name

    async def _expose(self, service: Service, children: Manifest) -> Exposure:
        """The Secrets that the router reads; the one with the keys is made when they are others."""
        endpoint, key = service.spec.endpoint, service.key
        name = ""
        if endpoint.keys == "required":
            keys = self._wishes.key_records(key)
            name = keys_name(key, children["uid"], keys)
            if self._key_secrets.get(key) != name:
                body = manifests.owned(keys_secret(key, name, keys), children)
                with contextlib.suppress(errors.AlreadyExists):
                    await self._client.create(kinds.SECRETS, body, key.namespace)
                self._key_secrets[key] = name
        return Exposure(name, endpoint.tls.secret or "")

    async def _keep_plan(self, key: ServiceKey, body: Manifest) -> None:
        if self._plans.get(key) != body:
            await self._client.apply(kinds.CONFIG_MAPS, body, manager=MANAGER)
            self._plans[key] = body

    # Revisions

    async def _revisions(self, service: Service, owner: Manifest | None, around: manifests.Around) -> float | None:
        key, snapshot = service.key, self._wishes.snapshot()
        wanted = seating.counts(snapshot.jobs.values()).get(key, {})
        leaving = seating.leavers(self._mirrors.pods.indexed(naming.BY_SERVICE, str(key)), _tasks(snapshot, key))
        for pod in leaving:
            await self._mark(pod)
        kept = {*wanted, *_in_use(service)}
        for revision in service.revisions:
            if revision.number in kept:
                count = wanted.get(revision.number, 0)
                body = manifests.deployment(service, revision, count, around)
                await self._deploy(manifests.owned(body, owner))
                await self._serve(manifests.owned(manifests.revision_service(key, revision.number, revision.spec), owner))
        if service.stable:
            # Before that, whatever serves may be all that there is of a record that was lost.
            await self._forget_others(key, {naming.revision_name(key, number) for number in kept})
        return await self._let_go(leaving, wanted)

    async def _mark(self, pod: Pod) -> None:
        """Have the Deployment let this one go before the others."""
        if seating.is_going(pod) or pod.metadata.uid in self._leaving:
            return
        test = {"op": "test", "path": "/metadata/uid", "value": pod.metadata.uid}
        place = "/metadata/annotations/" + marks.DELETION_COST.replace("/", "~1")
        change = {"op": "add", "path": place, "value": "-1000"}
        await self._client.patch(kinds.PODS, pod.metadata.name, pod.metadata.namespace, [test, change])
        self._leaving[pod.metadata.uid] = self._now()

    async def _let_go(self, leaving: list[Pod], wanted: Mapping[int, int]) -> float | None:
        """Delete those that no Deployment lets go: because it should have as many as before, or chose another one."""
        left = [pod for pod in leaving if not seating.is_going(pod)]
        self._leaving = {uid: at for uid, at in self._leaving.items() if self._now() < at + 100 * PATIENCE}
        for pod in left:
            number = marks.read_count(pod.metadata.labels.get(marks.REVISION), 0)
            of_revision = [
                one
                for one in self._mirrors.pods.indexed(naming.BY_SERVICE, naming.by_service(pod)[0])
                if one.metadata.labels.get(marks.REVISION) == str(number) and not seating.is_going(one) and not one.over
            ]
            marked = self._leaving.get(pod.metadata.uid, self._now())
            if len(of_revision) <= wanted.get(number, 0) or self._now() >= marked + PATIENCE:
                await self._client.delete(kinds.PODS, pod.metadata.name, pod.metadata.namespace, uid=pod.metadata.uid)
        return LOOK_AGAIN if left else None

    async def _forget_others(self, key: ServiceKey, kept: set[str]) -> None:
        """Revisions that nobody needs."""
        for found in self._children(key):
            if marks.REVISION in found.metadata.labels and found.metadata.name not in kept:
                await self._delete(found)

    # The front

    async def _front(self, service: Service, plan: RoutePlan, owner: Manifest | None) -> ServiceObject:
        """The Service that people ask, by the service's own name unless somebody else has it. A new one leads to our router."""
        key, port = service.key, plan.port or naming.usual_port(tls=service.spec.endpoint.tls.on)
        for name in (key.name, f"{key.name}-serving"):
            known = self._mirrors.services.get(f"{key.namespace}/{name}")
            mine = known is not None and known.metadata.labels.get(marks.SERVICE) == key.name
            if known is not None and not mine:
                continue
            if known is None and await self._is_foreign(kinds.SERVICES, key, name):
                continue
            self.fronts[key] = name
            led = known is not None and not known.spec.selector
            body = front_service(key, name, port) if led else manifests.front_service(key, name, port)
            return await self._serve(manifests.owned(body, owner))
        message = f"both names for the Service of {key} are taken: {key.name} and {key.name}-serving"
        raise ConflictError(message, fix="delete one of those Services, or call the ModelService otherwise")

    async def _is_foreign(self, resource: Resource[Any], key: ServiceKey, name: str) -> bool:
        try:
            found = await self._client.get(resource, name, key.namespace)
        except errors.NotFound:
            return False
        return bool(found.metadata.labels.get(marks.SERVICE) != key.name)

    # Writing

    async def _deploy(self, body: Manifest) -> None:
        metadata, spec = body["metadata"], body["spec"]
        known = self._mirrors.deployments.get(f"{metadata['namespace']}/{metadata['name']}")
        if known is None:
            key = ServiceKey(metadata["namespace"], metadata["labels"][marks.SERVICE])
            if await self._is_foreign(kinds.DEPLOYMENTS, key, metadata["name"]):
                message = f"there is a Deployment {metadata['namespace']}/{metadata['name']} of somebody else's"
                raise ConflictError(message, fix="delete it, or call the ModelService otherwise")
        same = known is not None and known.metadata.annotations.get(DIGEST) == metadata["annotations"][DIGEST]
        if known is None or not same or known.spec.replicas != spec["replicas"]:
            await self._client.apply(kinds.DEPLOYMENTS, body, manager=MANAGER)

    async def _serve(self, body: Manifest) -> ServiceObject:
        metadata, spec = body["metadata"], {"selector": {}, **body["spec"]}
        known = self._mirrors.services.get(f"{metadata['namespace']}/{metadata['name']}")
        ports = [port["port"] for port in spec["ports"]]
        if known is not None and (known.spec.selector, [port.port for port in known.spec.ports]) == (spec["selector"], ports):
            return known
        return await self._client.apply(kinds.SERVICES, body, manager=MANAGER)

    def _is_wanted(self, key: ServiceKey) -> bool:
        """Whether an object that is there owns what there is of the service: the record does not know it yet, or lost it."""
        found = self._mirrors.objects.get(str(key))
        if found is None or found.metadata.deletion_timestamp is not None:
            return False
        owners = (owner for child in self._children(key) for owner in child.metadata.owner_references)
        return any(owner.uid == found.metadata.uid for owner in owners)

    async def _remove(self, key: ServiceKey) -> None:
        """Nothing of the service is left; what its other objects own goes with them."""
        for found in self._children(key):
            await self._delete(found)
        self._plans.pop(key, None)
        self._keys.pop(key, None)
        self._key_secrets.pop(key, None)
        self._gateways.forget(key)
        self.fronts.pop(key, None)
        self.trouble.pop(key, None)

    def _children(self, key: ServiceKey) -> list[Deployment | ServiceObject]:
        everything = [*self._mirrors.deployments, *self._mirrors.services]
        mine = (key.namespace, key.name)
        return [one for one in everything if (one.metadata.namespace, one.metadata.labels.get(marks.SERVICE)) == mine]

    async def _delete(self, found: Deployment | ServiceObject) -> None:
        metadata = found.metadata
        resource: Resource[Any] = kinds.DEPLOYMENTS if isinstance(found, Deployment) else kinds.SERVICES
        if metadata.deletion_timestamp is None:
            await self._client.delete(resource, metadata.name, metadata.namespace, uid=metadata.uid)


def owner_of(service: Service, found: Custom | None) -> Manifest | None:
    """The object that a service comes from, as the owner of its parts; `found`: what is seen of it.

    It may not be seen yet. One that has gone owns nothing: its parts stay until what the service was asked is finished.
    """
    uid = service.labels.get(UID)
    if uid is None or (service.deleting if found is None else found.metadata.uid != uid):
        return None
    return _reference(kinds.MODEL_SERVICES.api_version, kinds.MODEL_SERVICES.kind, service.key.name, uid)


def sooner(one: float | None, other: float | None) -> float | None:
    """The smaller of two waits; None: there is none."""
    return min((wait for wait in (one, other) if wait is not None), default=None)


def _reference(api: str, kind: str, name: str, uid: str) -> Manifest:
    return {"apiVersion": api, "kind": kind, "name": name, "uid": uid, "controller": True}


def _in_use(service: Service) -> set[int]:
    """Revisions whose Deployments stay, also without a replica: the one that serves, and those of a release under way."""
    release = service.rollout
    moving = {release.source, release.target} if release is not None and is_active(release) else set()
    return {service.stable, *moving}


def _tasks(snapshot: Snapshot, key: ServiceKey) -> dict[tuple[str, str], Task]:
    def is_mine(run: Job) -> bool:
        return naming.is_replica_run(run.key) and seating.service_of(run) == key

    runs = [run for run in snapshot.jobs.values() if is_mine(run)]
    return {(task.key.job, str(task.key.attempt)): task for run in runs for task in snapshot.tasks_of(run.key)}
