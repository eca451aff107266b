"""Services for callers of the cluster's API: their commands change ModelService objects."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

from fairway.app.idempotency import IdempotencyKey, IdempotentRequest
from fairway.app.service import ServiceRequest, ServiceUseCases
from fairway.engines.kubernetes import annotation
from fairway.engines.kubernetes.client import api_resource, errors
from fairway.engines.kubernetes.client.api import ApiClient
from fairway.engines.kubernetes.client.informer import Informer
from fairway.engines.kubernetes.identity.caller import CALLER, noted
from fairway.engines.kubernetes.objects import CustomObject
from fairway.engines.kubernetes.operator.run.training_job import UID
from fairway.engines.kubernetes.record.access_right import AccessReviewer
from fairway.engines.kubernetes.record.front_proxy import MANAGER, PATIENCE, callers_key, review, sent_code
from fairway.errors import NotFoundError, UnavailableError
from fairway.plan.service.rollout import is_active
from fairway.plan.service.service_command import NOT_SERVED
from fairway.spec.service import ModelService
from fairway.state.job import SubmissionOrigin
from fairway.state.service import ServiceKey, ServiceState

KEPT = NOT_SERVED - {"model", "follow"}
"""Fields that an undo does not restore."""


class CallerServices(ServiceUseCases):
    """Shares the components of the operator's own; its commands act on objects, on behalf of the caller."""

    def __init__(
        self, services: ServiceUseCases, client: ApiClient, objects: Informer[CustomObject], rights: AccessReviewer
    ) -> None:
        self.__dict__.update(services.__dict__)
        self._client = client
        self._objects = objects
        self._rights = rights

    async def apply(self, ask: ServiceRequest, request: IdempotencyKey | None = None) -> tuple[ServiceState, str]:
        """Apply the object and the service; the controller of the objects then finds nothing to do."""
        await self._review("create", ask.key)
        await self._review("patch", ask.key)
        return await super().apply(_from_caller(ask), request)

    async def _apply(self, ask: ServiceRequest, once: IdempotentRequest) -> tuple[ServiceState, str]:
        await self.checked(ask)  # refuses what is impossible
        self._rights.check_code(ask.origin.user, ask.key.namespace, ask.origin.code_digest.removeprefix(annotation.BLOB))
        fresh = not self.is_kept(ask.key)
        model = {"model": f"model://{ask.document.spec.model}"} if ask.document.spec.model else {}
        groups = await self._rights.granting(CALLER.get(), ask.key.namespace, model)
        body = _object(ask, noted(CALLER.get(), (), groups))
        applied = await self._client.apply(api_resource.MODEL_SERVICES, body, manager=MANAGER)
        meta = ask.document.metadata
        labels = {**meta.labels, UID: applied.metadata.uid}
        document = ask.document.model_copy(update={"metadata": meta.model_copy(update={"labels": labels})})
        service, word = await super()._apply(replace(ask, document=document), once)
        return service, "created" if fresh else word

    async def scale(self, key: ServiceKey, floor: int) -> ServiceState:
        """Write the object's floor."""
        await self._review("patch", key)
        await self._patch_floor(key, floor)
        return await super().scale(key, floor)

    async def pause(self, key: ServiceKey) -> ServiceState:
        """Pause the rollout."""
        await self._review("patch", key)
        return await super().pause(key)

    async def resume(self, key: ServiceKey, request: IdempotencyKey | None = None) -> ServiceState:
        """Resume the rollout."""
        await self._review("patch", key)
        return await super().resume(key, request)

    async def undo(self, key: ServiceKey, request: IdempotencyKey | None = None) -> ServiceState:
        """Return to the previous revision, and change the object's document accordingly."""
        await self._review("patch", key)
        return await super().undo(key, request)

    async def delete(self, key: ServiceKey) -> None:
        """Delete the object; the service is deleted with it once its requests are finished."""
        await self._review("delete", key)
        if not await self._client.delete(api_resource.MODEL_SERVICES, key.name, key.namespace):
            await super().delete(key)
            return
        try:
            async with asyncio.timeout(PATIENCE):
                while self.is_kept(key):
                    await self.changed()
        except TimeoutError:
            message = f"the service {key.name} is being deleted, but its requests take long to finish"
            raise UnavailableError(message, fix=f"`kubectl -n {key.namespace} get pods` shows the remaining pods") from None

    def _asked_by(self, key: IdempotencyKey | None) -> IdempotencyKey | None:
        """Return the key with the caller that the API server authenticated."""
        return callers_key(key)

    async def _agree(self, before: ServiceState, after: ServiceState) -> None:
        """Write into the object what the service serves from now on, so that the next change of the object is based on that."""
        current = self._objects.get(str(after.key))
        if current is None or (after.spec, after.origin) == (before.spec, before.origin):
            return
        changes = written_back(current, before, after, self._pinned(after))
        if changes:
            await self._client.patch(api_resource.MODEL_SERVICES, after.key.name, after.key.namespace, changes)

    def _pinned(self, service: ServiceState) -> str:
        """Return the model for the object: the version itself where the name in the spec has come to mean another one."""
        rollout, spec = service.rollout, service.spec
        revision = service.revision(rollout.target if rollout is not None and is_active(rollout) else service.stable)
        if revision is None or not spec.model or spec.follow:
            return spec.model
        try:
            version = self._models.get(self._models.meant(spec.model, service.key.namespace))
            return spec.model if self._models.relative(str(version), service.key.namespace) == revision.model else revision.model
        except NotFoundError:
            return revision.model  # The name in the spec no longer exists.

    def url_of(self, service: ServiceState) -> str:
        """Return the service's URL inside the cluster, from its object."""
        current = self._objects.get(str(service.key))
        return str(current.status.get("url") or "") if current is not None else ""

    async def _review(self, verb: str, key: ServiceKey) -> None:
        await review(self._client, CALLER.get(), verb, api_resource.MODEL_SERVICES, key.namespace, key.name)

    async def _patch_floor(self, key: ServiceKey, floor: int) -> None:
        try:
            change = [{"op": "add", "path": "/spec/floor", "value": floor}]
            await self._client.patch(api_resource.MODEL_SERVICES, key.name, key.namespace, change)
        except errors.NotFound:
            self.find(key)  # raises our own error when there is no such service


def written_back(found: CustomObject, before: ServiceState, after: ServiceState, model: str) -> list[dict[str, Any]]:
    """Return the patch that makes an object match its service. Fields that are the same stay with their field manager."""
    was, new = (service.spec.model_dump(mode="json", by_alias=True, exclude_unset=True) for service in (before, after))
    new = {**new, **({"model": model} if model else {})}
    spec, annotations = found.spec_data(), found.metadata.annotations
    changes: list[dict[str, Any]] = []
    for name in sorted((was.keys() | new.keys()) - KEPT):
        if name not in new and name in spec:
            changes.append({"op": "remove", "path": f"/spec/{name}"})
        elif name in new and new[name] != was.get(name):
            changes.append({"op": "add", "path": f"/spec/{name}", "value": new[name]})
    code, path = after.origin.code_digest, f"/metadata/annotations/{annotation.CODE.replace('/', '~1')}"
    if code and code != annotations.get(annotation.CODE):
        changes += [] if annotations else [{"op": "add", "path": "/metadata/annotations", "value": {}}]
        changes.append({"op": "add", "path": path, "value": code})
    elif not code and annotation.CODE in annotations:
        changes.append({"op": "remove", "path": path})
    return [{"op": "test", "path": "/metadata/uid", "value": found.metadata.uid}, *changes] if changes else []


def _from_caller(ask: ServiceRequest) -> ServiceRequest:
    """Set the caller that the API server authenticated, and drop what names the caller's machine."""
    code, spec = sent_code(ask.document.spec.code.path, ask.origin.code_digest), ask.document.spec
    if spec.code.path.startswith(annotation.BLOB):
        spec = spec.model_copy(update={"code": spec.code.model_copy(update={"path": "."})})
    document = ask.document.model_copy(update={"spec": spec})
    return replace(ask, document=document, origin=SubmissionOrigin(CALLER.get().user, code_digest=code))


def _object(ask: ServiceRequest, asked: dict[str, str]) -> dict[str, Any]:
    """Return the ModelService object of a document. `asked`: annotations with the user."""
    document: ModelService = ask.document
    plain = document.model_dump(mode="json", by_alias=True, exclude_unset=True)
    annotations = {**asked, annotation.CODE: ask.origin.code_digest}
    return {
        "apiVersion": api_resource.MODEL_SERVICES.api_version,
        "kind": api_resource.MODEL_SERVICES.kind,
        "metadata": {
            "name": ask.key.name,
            "namespace": ask.key.namespace,
            "labels": dict(document.metadata.labels),
            "annotations": {name: value for name, value in annotations.items() if value},
        },
        "spec": plain["spec"],
    }
