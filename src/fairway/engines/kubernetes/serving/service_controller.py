"""The controller of services: brings Kubernetes objects in step with the plan. Level-triggered: any event may be lost.

Replica counts are written only here; a Deployment that was scaled by hand is set back.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from fairway.engines.kubernetes import annotation
from fairway.engines.kubernetes.client import api_resource, errors
from fairway.engines.kubernetes.client.api import ApiClient
from fairway.engines.kubernetes.client.api_path import ApiResource
from fairway.engines.kubernetes.client.informer import Informer
from fairway.engines.kubernetes.objects import CustomObject, Deployment, Pod
from fairway.engines.kubernetes.objects import KubernetesService as ServiceObject
from fairway.engines.kubernetes.operator.installation import InstallationSettings
from fairway.engines.kubernetes.serving import manifest, naming, replica_assignment
from fairway.engines.kubernetes.serving.endpoint_exposure import RouterPodSecrets, keys_name, keys_secret
from fairway.engines.kubernetes.serving.gateway_route import ClusterGateway, front_service
from fairway.engines.kubernetes.serving.gateway_sync import GatewaySync, RequestPath
from fairway.engines.kubernetes.serving.manifest import DIGEST, Manifest
from fairway.engines.kubernetes.serving.model_service_status import UID
from fairway.errors import ConflictError
from fairway.plan.service.rollout import is_active
from fairway.state.job import JobState
from fairway.state.service import ServiceKey, ServiceState
from fairway.state.serving.route import RoutePlan
from fairway.state.snapshot import PlannerSnapshot
from fairway.state.task import Task

MANAGER = "fairway-serving"
ROUTERS = 2
"""Router pods of a service: one may fail without an interruption."""
PATIENCE = 2.0
"""Seconds that a Deployment gets to delete the marked pod by itself before the controller deletes it."""
LOOK_AGAIN = 1.0

log = logging.getLogger("fairway.operator")


class DesiredServices(Protocol):
    """The desired state: from the planner, and from the issuer of keys."""

    def service(self, key: ServiceKey) -> ServiceState | None:
        """Return the service of that name, if there is one."""
        ...

    def plan(self, key: ServiceKey) -> RoutePlan | None:
        """Return the route plan of the service."""
        ...

    def plan_text(self, plan: RoutePlan) -> bytes:
        """Return the plan in the encoding that routers read."""
        ...

    def snapshot(self) -> PlannerSnapshot:
        """Return the runs; replicas are among them."""
        ...

    def tokens(self, key: ServiceKey) -> tuple[str, str]:
        """Return the token with which the service's pods authenticate, and the token that its router demands."""
        ...

    def key_records(self, key: ServiceKey) -> bytes:
        """Return the records of the service's API keys in the encoding that routers read."""
        ...


class ServiceMirrors:
    """The observed state."""

    def __init__(
        self,
        pods: Informer[Pod],
        deployments: Informer[Deployment],
        services: Informer[ServiceObject],
        objects: Informer[CustomObject],
    ) -> None:
        self.pods = pods
        self.deployments = deployments
        self.services = services
        self.objects = objects


class ServiceController:
    """The objects of all services; `look` is the work function of a controller."""

    def __init__(
        self,
        client: ApiClient,
        mirrors: ServiceMirrors,
        installation: InstallationSettings,
        endpoint: str,
        wishes: DesiredServices,
        now: Callable[[], float],
    ) -> None:
        self._client = client
        self._mirrors = mirrors
        self._installation = installation
        self._endpoint = endpoint
        self.authority = ""
        """The certificates by which pods verify the operator, in PEM; empty where pods reach it without TLS."""
        self._wishes = wishes
        self._gateways = GatewaySync(client, installation, now)
        self._now = now
        self._plans: dict[ServiceKey, Manifest] = {}
        """The ConfigMap that was applied last, by service."""
        self._keys: dict[ServiceKey, str] = {}
        """The Secret that exists, by service."""
        self._key_secrets: dict[ServiceKey, str] = {}
        """The Secret with the hashes of API keys that was created last, by service."""
        self._leaving: dict[str, float] = {}
        """Pods that are to be deleted, by uid, with the time when they were marked."""
        self.fronts: dict[ServiceKey, str] = {}
        """The name of the Service that clients use, by service."""
        self.trouble: dict[ServiceKey, str] = {}
        """Why the objects of a service are not as they should be, as a message."""

    def by_gateway(self, key: ServiceKey) -> bool:
        """Return whether requests to a service come through a gateway instead of Fairway's router."""
        return self._gateways.leads(key)

    def way(self, key: ServiceKey) -> RequestPath:
        """Return which path requests to a service take, and why."""
        return self._gateways.ways.get(key, RequestPath())

    def way_changed(self, tell: Callable[[ServiceKey], None]) -> None:
        """Register a callback for changes of a service's request path or of its reason."""
        self._gateways.changed = tell

    async def look(self, text: str) -> float | None:
        """Reconcile one service."""
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

    async def _bring(self, service: ServiceState) -> float | None:
        key, owner = service.key, owner_of(service, self._mirrors.objects.get(str(service.key)))
        plan = self._wishes.plan(key)
        if plan is None:
            return None
        front = await self._front(service, plan, owner)
        children = owner or _reference("v1", "Service", front.metadata.name, front.metadata.uid)
        keys = self._wishes.tokens(key)
        name = naming.secret_name(key, children["uid"], keys[0])
        around = manifest.PodSurroundings(self._installation, self._endpoint, name, self.authority)
        await self._make_keys(key, manifest.owned(manifest.secret(key, around.secret, *keys), children))
        way = await self._gateways.way(service, plan, front, children)
        if way.unheard:
            # The gateway may still send requests to replicas that are to be deleted.
            return way.again
        again = await self._revisions(service, owner, around)
        if way.gateway is not None and way.leads:
            await self._lead(key, front, way.gateway, owner, children)
            return sooner(again, way.again)
        await self._keep_plan(key, manifest.owned(manifest.plan_map(key, self._wishes.plan_text(plan)), children))
        if way.waits:
            return sooner(again, way.again)
        exposed = await self._expose(service, children)
        await self._deploy(manifest.owned(manifest.router(key, ROUTERS, around, exposed), owner))
        return sooner(again, await self._lead_to_router(key, front, way, owner, children))

    async def _lead(
        self, key: ServiceKey, front: ServiceObject, gateway: ClusterGateway, owner: Manifest | None, children: Manifest
    ) -> None:
        """Route by the gateway: the Service points to it, at last exclusively; then Fairway's router is deleted."""
        name, port = front.metadata.name, front.spec.ports[0].port
        await self._gateways.lead(key, name, gateway, children)
        await self._serve(manifest.owned(front_service(key, name, port), owner))
        await self._gateways.alone(key, name)
        router_deployment = self._mirrors.deployments.get(f"{key.namespace}/{naming.router_name(key)}")
        if router_deployment is not None and router_deployment.metadata.labels.get(annotation.SERVICE) == key.name:
            await self._delete(router_deployment)

    async def _lead_to_router(
        self, key: ServiceKey, front: ServiceObject, way: RequestPath, owner: Manifest | None, children: Manifest
    ) -> float | None:
        """Route by Fairway's router as soon as it is ready. Return the seconds until the next look, if one is due."""
        router_deployment = self._mirrors.deployments.get(f"{key.namespace}/{naming.router_name(key)}")
        if not front.spec.selector and (router_deployment is None or not router_deployment.status.ready_replicas):
            return LOOK_AGAIN
        name, port = front.metadata.name, front.spec.ports[0].port
        led_by_gateway = not front.spec.selector
        front = await self._serve(manifest.owned(manifest.front_service(key, name, port), owner))
        if not self._installation.gateway and not led_by_gateway:
            return None
        return sooner(await self._gateways.leave(key, front, way, children), way.again)

    async def _make_keys(self, key: ServiceKey, body: Manifest) -> None:
        """Create the Secret with these tokens. Its name depends on them, so that an existing one is right."""
        name = body["metadata"]["name"]
        if self._keys.get(key) == name:
            return
        with contextlib.suppress(errors.AlreadyExists):
            await self._client.create(api_resource.SECRETS, body, key.namespace)
        self._keys[key] = name

    async def _expose(self, service: ServiceState, children: Manifest) -> RouterPodSecrets:
        """Return the Secrets that the router reads. The one with the API keys is created anew when they change."""
        endpoint, key = service.spec.endpoint, service.key
        name = ""
        if endpoint.keys == "required":
            key_records = self._wishes.key_records(key)
            name = keys_name(key, children["uid"], key_records)
            if self._key_secrets.get(key) != name:
                body = manifest.owned(keys_secret(key, name, key_records), children)
                with contextlib.suppress(errors.AlreadyExists):
                    await self._client.create(api_resource.SECRETS, body, key.namespace)
                self._key_secrets[key] = name
        return RouterPodSecrets(name, endpoint.tls.secret or "")

    async def _keep_plan(self, key: ServiceKey, body: Manifest) -> None:
        if self._plans.get(key) != body:
            await self._client.apply(api_resource.CONFIG_MAPS, body, manager=MANAGER)
            self._plans[key] = body

    # Revisions

    async def _revisions(self, service: ServiceState, owner: Manifest | None, around: manifest.PodSurroundings) -> float | None:
        key, snapshot = service.key, self._wishes.snapshot()
        wanted_counts = replica_assignment.counts(snapshot.jobs.values()).get(key, {})
        leaving = replica_assignment.leavers(self._mirrors.pods.indexed(naming.BY_SERVICE, str(key)), _tasks(snapshot, key))
        for pod in leaving:
            await self._mark(pod)
        kept = {*wanted_counts, *_in_use(service)}
        for revision in service.revisions:
            if revision.number in kept:
                count = wanted_counts.get(revision.number, 0)
                body = manifest.deployment(service, revision, count, around)
                await self._deploy(manifest.owned(body, owner))
                await self._serve(manifest.owned(manifest.revision_service(key, revision.number, revision.spec), owner))
        if service.stable:
            # Before that, an object may be the only trace of a service whose record was lost.
            await self._forget_others(key, {naming.revision_name(key, number) for number in kept})
        return await self._let_go(leaving, wanted_counts)

    async def _mark(self, pod: Pod) -> None:
        """Lower the pod's deletion cost, so that its Deployment deletes it before others."""
        if replica_assignment.is_going(pod) or pod.metadata.uid in self._leaving:
            return
        test = {"op": "test", "path": "/metadata/uid", "value": pod.metadata.uid}
        place = "/metadata/annotations/" + annotation.DELETION_COST.replace("/", "~1")
        change = {"op": "add", "path": place, "value": "-1000"}
        await self._client.patch(api_resource.PODS, pod.metadata.name, pod.metadata.namespace, [test, change])
        self._leaving[pod.metadata.uid] = self._now()

    async def _let_go(self, leaving: list[Pod], wanted: Mapping[int, int]) -> float | None:
        """Delete marked pods that their Deployment keeps: its count has not fallen, or it has chosen another pod."""
        staying = [pod for pod in leaving if not replica_assignment.is_going(pod)]
        self._leaving = {uid: at for uid, at in self._leaving.items() if self._now() < at + 100 * PATIENCE}
        for pod in staying:
            number = annotation.read_count(pod.metadata.labels.get(annotation.REVISION), 0)
            of_revision = [
                other
                for other in self._mirrors.pods.indexed(naming.BY_SERVICE, naming.by_service(pod)[0])
                if other.metadata.labels.get(annotation.REVISION) == str(number)
                and not replica_assignment.is_going(other)
                and not other.over
            ]
            marked = self._leaving.get(pod.metadata.uid, self._now())
            if len(of_revision) <= wanted.get(number, 0) or self._now() >= marked + PATIENCE:
                await self._client.delete(api_resource.PODS, pod.metadata.name, pod.metadata.namespace, uid=pod.metadata.uid)
        return LOOK_AGAIN if staying else None

    async def _forget_others(self, key: ServiceKey, kept: set[str]) -> None:
        """Delete the objects of revisions that are no longer needed."""
        for child in self._children(key):
            if annotation.REVISION in child.metadata.labels and child.metadata.name not in kept:
                await self._delete(child)

    # The front

    async def _front(self, service: ServiceState, plan: RoutePlan, owner: Manifest | None) -> ServiceObject:
        """Apply the Service that clients use. It has the service's name, or NAME-serving when that is taken.

        A new one points to Fairway's router.
        """
        key, port = service.key, plan.port or naming.usual_port(tls=service.spec.endpoint.tls.on)
        for name in (key.name, f"{key.name}-serving"):
            existing = self._mirrors.services.get(f"{key.namespace}/{name}")
            is_ours = existing is not None and existing.metadata.labels.get(annotation.SERVICE) == key.name
            if existing is not None and not is_ours:
                continue
            if existing is None and await self._is_foreign(api_resource.SERVICES, key, name):
                continue
            self.fronts[key] = name
            led = existing is not None and not existing.spec.selector
            body = front_service(key, name, port) if led else manifest.front_service(key, name, port)
            return await self._serve(manifest.owned(body, owner))
        message = f"both names for the Service of {key} are taken: {key.name} and {key.name}-serving"
        raise ConflictError(message, fix="delete one of those Services, or rename the ModelService")

    async def _is_foreign(self, resource: ApiResource[Any], key: ServiceKey, name: str) -> bool:
        try:
            existing = await self._client.get(resource, name, key.namespace)
        except errors.NotFound:
            return False
        return bool(existing.metadata.labels.get(annotation.SERVICE) != key.name)

    # Writes

    async def _deploy(self, body: Manifest) -> None:
        metadata, spec = body["metadata"], body["spec"]
        existing = self._mirrors.deployments.get(f"{metadata['namespace']}/{metadata['name']}")
        if existing is None:
            key = ServiceKey(metadata["namespace"], metadata["labels"][annotation.SERVICE])
            if await self._is_foreign(api_resource.DEPLOYMENTS, key, metadata["name"]):
                message = (
                    f"the Deployment {metadata['namespace']}/{metadata['name']} exists and does not belong to this ModelService"
                )
                raise ConflictError(message, fix="delete it, or rename the ModelService")
        same = existing is not None and existing.metadata.annotations.get(DIGEST) == metadata["annotations"][DIGEST]
        if existing is None or not same or existing.spec.replicas != spec["replicas"]:
            await self._client.apply(api_resource.DEPLOYMENTS, body, manager=MANAGER)

    async def _serve(self, body: Manifest) -> ServiceObject:
        metadata, spec = body["metadata"], {"selector": {}, **body["spec"]}
        existing = self._mirrors.services.get(f"{metadata['namespace']}/{metadata['name']}")
        ports = [port["port"] for port in spec["ports"]]
        if existing is not None and (existing.spec.selector, [port.port for port in existing.spec.ports]) == (
            spec["selector"],
            ports,
        ):
            return existing
        return await self._client.apply(api_resource.SERVICES, body, manager=MANAGER)

    def _is_wanted(self, key: ServiceKey) -> bool:
        """Return whether an existing ModelService owns objects of the service: the record does not have it yet, or lost it."""
        custom = self._mirrors.objects.get(str(key))
        if custom is None or custom.metadata.deletion_timestamp is not None:
            return False
        owners = (owner for child in self._children(key) for owner in child.metadata.owner_references)
        return any(owner.uid == custom.metadata.uid for owner in owners)

    async def _remove(self, key: ServiceKey) -> None:
        """Delete the objects of the service; the objects owned by those are removed with them."""
        for child in self._children(key):
            await self._delete(child)
        self._plans.pop(key, None)
        self._keys.pop(key, None)
        self._key_secrets.pop(key, None)
        self._gateways.forget(key)
        self.fronts.pop(key, None)
        self.trouble.pop(key, None)

    def _children(self, key: ServiceKey) -> list[Deployment | ServiceObject]:
        everything = [*self._mirrors.deployments, *self._mirrors.services]
        service_names = (key.namespace, key.name)
        return [
            child
            for child in everything
            if (child.metadata.namespace, child.metadata.labels.get(annotation.SERVICE)) == service_names
        ]

    async def _delete(self, found: Deployment | ServiceObject) -> None:
        metadata = found.metadata
        resource: ApiResource[Any] = api_resource.DEPLOYMENTS if isinstance(found, Deployment) else api_resource.SERVICES
        if metadata.deletion_timestamp is None:
            await self._client.delete(resource, metadata.name, metadata.namespace, uid=metadata.uid)


def owner_of(service: ServiceState, found: CustomObject | None) -> Manifest | None:
    """Return the owner reference for the objects of a service: the ModelService it comes from; `found` is its observed state.

    The object may not be observed yet. A deleted one owns nothing: the objects stay until the service has ended.
    """
    uid = service.labels.get(UID)
    if uid is None or (service.deleting if found is None else found.metadata.uid != uid):
        return None
    return _reference(api_resource.MODEL_SERVICES.api_version, api_resource.MODEL_SERVICES.kind, service.key.name, uid)


def sooner(one: float | None, other: float | None) -> float | None:
    """Return the smaller of two waits; None stands for no wait."""
    return min((wait for wait in (one, other) if wait is not None), default=None)


def _reference(api: str, kind: str, name: str, uid: str) -> Manifest:
    return {"apiVersion": api, "kind": kind, "name": name, "uid": uid, "controller": True}


def _in_use(service: ServiceState) -> set[int]:
    """Return the revisions whose Deployments stay even without a replica: the serving one, and those of a rollout in progress."""
    release = service.rollout
    moving = {release.source, release.target} if release is not None and is_active(release) else set()
    return {service.stable, *moving}


def _tasks(snapshot: PlannerSnapshot, key: ServiceKey) -> dict[tuple[str, str], Task]:
    def is_mine(run: JobState) -> bool:
        return naming.is_replica_run(run.key) and replica_assignment.service_of(run) == key

    runs = [run for run in snapshot.jobs.values() if is_mine(run)]
    return {(task.key.job, str(task.key.attempt)): task for run in runs for task in snapshot.tasks_of(run.key)}
