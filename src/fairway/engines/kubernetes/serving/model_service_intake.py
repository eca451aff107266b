"""Takes in ModelService objects: applies each generation of a document once, and writes the service's state to its status.

Other decisions about a service (a release by `fairway rollout`, an undo) stand until the object changes.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any, Protocol

from fairway.app.port.port import Clock
from fairway.app.service import ServiceRequest
from fairway.app.serving.service_turn import ServiceEntry
from fairway.engines.kubernetes import annotation
from fairway.engines.kubernetes.client import api_resource, errors
from fairway.engines.kubernetes.client.api import ApiClient
from fairway.engines.kubernetes.client.informer import Informer
from fairway.engines.kubernetes.identity.caller import CALLER, named_by
from fairway.engines.kubernetes.objects import CustomObject
from fairway.engines.kubernetes.operator.installation import InstallationSettings
from fairway.engines.kubernetes.serving import manifest, model_service_status, naming
from fairway.engines.kubernetes.serving.gateway_sync import RequestPath
from fairway.engines.kubernetes.serving.model_service_status import UID
from fairway.errors import FairwayError
from fairway.spec.service import ModelService
from fairway.spec.text.document import read_data
from fairway.state.job import SubmissionOrigin
from fairway.state.service import ServiceKey, ServiceState
from fairway.state.serving.route import RoutePlan

STATUS_MANAGER = "fairway-serving-status"
TRY_AGAIN = 10.0
"""Seconds until an object that was refused is retried: its model may have been registered since."""
SOON = 1.0

log = logging.getLogger("fairway.operator")


class ServiceApplication(Protocol):
    """The operations of the application that the intake uses."""

    async def apply(self, ask: ServiceRequest) -> tuple[ServiceState, str]:
        """Create or update the service."""
        ...

    async def checked(self, ask: ServiceRequest) -> ServiceState:
        """Return the service as an apply would leave it, without applying."""
        ...

    async def scale(self, key: ServiceKey, floor: int) -> ServiceState:
        """Set the floor: the minimum of replicas."""
        ...

    async def delete(self, key: ServiceKey) -> None:
        """Delete the service; return when it has ended."""
        ...

    def is_kept(self, key: ServiceKey) -> bool:
        """Return whether a service of that name exists."""
        ...

    def find(self, key: ServiceKey) -> ServiceEntry:
        """Return one service."""
        ...


class ServiceObjectState(Protocol):
    """Provides the state of a service's Kubernetes objects."""

    def front(self, key: ServiceKey) -> str:
        """Return the name of the Service that clients use."""
        ...

    def trouble(self, key: ServiceKey) -> str:
        """Return why the service's objects are not as they should be."""
        ...

    def plan(self, key: ServiceKey) -> RoutePlan | None:
        """Return the route plan of the service."""
        ...

    def way(self, key: ServiceKey) -> RequestPath:
        """Return the path that its requests take."""
        ...


class ModelServiceIntake:
    """Reconciles ModelService objects with services; `look` is the work function of a controller."""

    def __init__(
        self,
        client: ApiClient,
        objects: Informer[CustomObject],
        services: ServiceApplication,
        around: ServiceObjectState,
        installation: InstallationSettings,
        clock: Clock,
        tell: Callable[[CustomObject, ServiceKey], None],
    ) -> None:
        self._tell_events = tell
        self._client = client
        self._objects = objects
        self._services = services
        self._around = around
        self._installation = installation
        self._clock = clock
        self._deleting: dict[ServiceKey, asyncio.Task[None]] = {}

    async def look(self, text: str) -> float | None:
        """Apply a new or changed object, end the service of a deleted one, and write the status."""
        key = ServiceKey(*text.split("/", 1))
        custom, standing = self._objects.get(text), self._known(key)
        if custom is not None and custom.metadata.deletion_timestamp is not None:
            custom = None
        if standing is not None and not self._is_of(standing, custom):
            return self._end(key) if await self._is_gone(standing) else SOON
        if custom is None:
            return None
        again = None
        if standing is None or custom.status.get("observedGeneration") != custom.metadata.generation:
            again = await self._take(custom, key)
            standing = self._known(key)
        if standing is not None and again is None:
            await self._tell(custom, self._status(custom, standing))
            self._tell_events(custom, key)
        return again

    def _known(self, key: ServiceKey) -> ServiceEntry | None:
        return self._services.find(key) if self._services.is_kept(key) else None

    def _is_of(self, standing: ServiceEntry, found: CustomObject | None) -> bool:
        """Return whether the service comes from this object. A service that comes from no object is never ended here."""
        uid = standing.service.labels.get(UID)
        return uid is None if found is None else uid in (None, found.metadata.uid)

    async def _is_gone(self, standing: ServiceEntry) -> bool:
        """Ask the API server whether the object is deleted: its service may be recorded before the mirror shows the object."""
        service = standing.service
        by_name = f"metadata.name={service.key.name}"
        objects = await self._client.list(api_resource.MODEL_SERVICES, service.key.namespace, fields=by_name)
        uids = {custom.metadata.uid for custom in objects.items if custom.metadata.deletion_timestamp is None}
        return service.labels.get(UID) not in uids

    def _end(self, key: ServiceKey) -> float:
        """Delete the service. An object of the same name waits until it has ended."""
        if key not in self._deleting:
            self._deleting[key] = asyncio.create_task(self._services.delete(key))
            self._deleting[key].add_done_callback(lambda _done: self._deleting.pop(key, None))
        return SOON

    async def _take(self, found: CustomObject, key: ServiceKey) -> float | None:
        """Apply the object's document. Return None when it was accepted, else the seconds until the next attempt."""
        asking = CALLER.set(named_by(found.metadata.annotations))
        try:
            ask, floor = ask_of(found)
            revision = (await self._services.checked(ask)).revisions[-1]
            manifest.runtime_of(revision, self._installation)
            manifest.code_of(revision)
            service, word = await self._services.apply(ask)
            if service.floor != floor:
                await self._services.scale(key, floor)
        except FairwayError as error:
            if isinstance(error, errors.ApiError):
                raise
            log.info("%s is refused: %s", key, error)
            await self._tell(found, model_service_status.refused(str(error), found.status, self._clock.now()))
            return TRY_AGAIN
        finally:
            CALLER.reset(asking)
        log.info("%s is %s", key, word)
        return None

    def _status(self, found: CustomObject, standing: ServiceEntry) -> dict[str, Any]:
        service = standing.service
        front = self._around.front(service.key)
        domain, tls = self._installation.cluster_domain, service.spec.endpoint.tls.on
        url = naming.url(service.key, front, service.port, domain, tls=tls) if front else ""
        return model_service_status.status_of(
            standing.record,
            self._around.plan(service.key),
            url,
            self._around.trouble(service.key),
            found.metadata.generation,
            found.status,
            self._clock.now(),
            self._around.way(service.key),
        )

    async def _tell(self, found: CustomObject, told: dict[str, Any]) -> None:
        if _lasting(told) == _lasting(found.status):
            return
        body = {
            "apiVersion": api_resource.MODEL_SERVICES.api_version,
            "kind": api_resource.MODEL_SERVICES.kind,
            "metadata": {"name": found.metadata.name, "namespace": found.metadata.namespace, "uid": found.metadata.uid},
            "status": told,
        }
        await self._client.apply_status(api_resource.MODEL_SERVICES, body, manager=STATUS_MANAGER)


def _lasting(told: dict[str, Any]) -> dict[str, Any]:
    """Return the status without the figures that change all the time: they alone are not worth a write."""
    return {name: value for name, value in told.items() if name != "why"}


def ask_of(found: CustomObject) -> tuple[ServiceRequest, int]:
    """Return the request of an object, and its floor. Raises `FairwayError` with every mistake of the document."""
    metadata, spec = found.metadata, found.spec_data()
    floor = int(spec.pop("floor", 0))
    plain = {
        "apiVersion": found.api_version or api_resource.MODEL_SERVICES.api_version,
        "kind": "ModelService",
        "metadata": {"name": metadata.name, "namespace": metadata.namespace, "labels": {**metadata.labels, UID: metadata.uid}},
        "spec": spec,
    }
    document = read_data(plain, f"{metadata.namespace}/{metadata.name}")
    assert isinstance(document, ModelService)
    origin = SubmissionOrigin(
        user=metadata.annotations.get(annotation.USER, ""), code_digest=metadata.annotations.get(annotation.CODE, "")
    )
    return ServiceRequest(document, origin), floor
