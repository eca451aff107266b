"""The verbs: every request of Fairway to an API server. Every write passes the crash point of its verb.

Objects are written as plain data (`Manifest`) and read as the typed objects of their resource. Names, namespaces and bodies are
arguments; only the results of discovery are cached here.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Generic

import msgspec

from fairway.app.port.port import Clock
from fairway.app.system import crash_point
from fairway.engines.kubernetes.client import api_path, api_resource, errors
from fairway.engines.kubernetes.client.api_path import ApiResource, Model
from fairway.engines.kubernetes.client.cluster_target import ClusterTarget
from fairway.engines.kubernetes.client.connection import APPLY, JSON, JSON_PATCH, ApiConnection, RetryRule
from fairway.engines.kubernetes.objects import Manifest, ReplicaScale

PAGE = 500
"""Number of objects on a page of a list."""

_encode = msgspec.json.Encoder().encode


class _ListHead(msgspec.Struct, frozen=True, rename="camel", gc=False):
    resource_version: str = ""
    continue_: str = msgspec.field(name="continue", default="")
    remaining_item_count: int | None = None


class _Page(msgspec.Struct, frozen=True, gc=False):
    metadata: _ListHead = _ListHead()
    items: list[msgspec.Raw] | None = None


@dataclass(frozen=True, slots=True)
class ObjectList(Generic[Model]):
    """Listed objects, and the resource version of the list."""

    items: tuple[Model, ...]
    resource_version: str


_page = msgspec.json.Decoder(_Page)


_decoders: dict[Any, msgspec.json.Decoder[Any]] = {}


def decoder(model: type[Model]) -> msgspec.json.Decoder[Model]:
    """Return the decoder for an object; it ignores unknown fields. Decoders are cached, since creating one is slow."""
    cached = _decoders.get(model)
    if cached is None:
        cached = _decoders[model] = msgspec.json.Decoder(model)
    return cached


Unreadable = Callable[[msgspec.Raw, str], None]
"""Called with an object that cannot be decoded, and the reason."""


class ApiClient:
    """The verbs over one connection."""

    def __init__(self, connection: ApiConnection, permit: Callable[[], bool] | None = None) -> None:
        """`permit` is checked before every write (does this process still lead?).

        If it is false, the write raises `NotPermitted`.
        """
        self.connection = connection
        self._permit = permit
        self._discovered: dict[str, Mapping[str, ApiResource[dict[str, Any]]]] = {}

    # Reading.

    async def get(self, resource: ApiResource[Model], name: str, namespace: str = "") -> Model:
        """Return an object; `NotFound` when there is none."""
        request = f"get {resource.named(name, namespace)}"
        return self._read(request, resource, await self.connection.call(request, "GET", resource.one(name, namespace)))

    async def list(
        self,
        resource: ApiResource[Model],
        namespace: str = "",
        *,
        labels: str = "",
        fields: str = "",
        page: int = PAGE,
        unreadable: Unreadable | None = None,
    ) -> ObjectList[Model]:
        """Return all objects, as of one moment. A list that expires while it is read is read again from its beginning.

        An object that cannot be decoded is passed to `unreadable` and left out; without that it is an error.
        """
        for _ in range(3):
            try:
                return await self._list(resource, namespace, labels, fields, page, unreadable)
            except errors.Gone:
                continue
        return await self._list(resource, namespace, labels, fields, 0, unreadable)

    async def _list(
        self, resource: ApiResource[Model], namespace: str, labels: str, fields: str, page: int, unreadable: Unreadable | None
    ) -> ObjectList[Model]:
        request, more, collected = f"list {resource.plural}", "", []  # type: str, str, list[Model]
        while True:
            query = api_path.query(labelSelector=labels, fieldSelector=fields, limit=page, **{"continue": more})
            body = await self.connection.call(request, "GET", resource.collection(namespace) + query)
            head, items = self._read_page(request, resource, body, unreadable)
            collected.extend(items)
            more = head.continue_
            if not more:
                return ObjectList(tuple(collected), head.resource_version)

    def _read_page(
        self, asked: str, resource: ApiResource[Model], body: bytes, unreadable: Unreadable | None
    ) -> tuple[_ListHead, Sequence[Model]]:
        try:
            page = _page.decode(body)
            decode = decoder(resource.model).decode
            if unreadable is None:
                return page.metadata, [decode(item) for item in page.items or ()]
            decoded = []
            for item in page.items or ():
                try:
                    decoded.append(decode(item))
                except msgspec.ValidationError as error:
                    unreadable(item, str(error))
        except msgspec.DecodeError as error:
            raise _unreadable(asked, error) from error
        return page.metadata, decoded

    def _read(self, asked: str, resource: ApiResource[Model], body: bytes) -> Model:
        try:
            return decoder(resource.model).decode(body)
        except msgspec.DecodeError as error:
            raise _unreadable(asked, error) from error

    async def plain(self, path: str) -> dict[str, Any]:
        """Return the response of an API path as plain data: `/version`, or a path of discovery."""
        content: dict[str, Any] = msgspec.json.decode(await self.connection.call(f"read {path}", "GET", path))
        return content

    async def resource(self, api_version: str, kind: str) -> ApiResource[Any]:
        """Return the resource of a kind: built in, or by discovery; `NotFound` when the cluster does not have it."""
        built_in = api_resource.BY_KIND.get((api_version, kind))
        if built_in:
            return built_in
        if kind not in self._discovered.get(api_version, ()):
            listed = await self.plain(api_path.discovery_path(api_version))
            self._discovered[api_version] = api_path.discovered(api_version, listed)
        discovered = self._discovered[api_version].get(kind)
        if discovered is None:
            message = f"the cluster has no kind {kind!r} in {api_version}"
            raise errors.NotFound(message, fix="install its CustomResourceDefinition first", asked=f"find {kind}", http=404)
        return discovered

    async def serves(self, api_version: str) -> bool:
        """Whether the cluster serves this group and version, for neighbours that are used if they are present."""
        try:
            await self.plain(api_path.discovery_path(api_version))
        except errors.NotFound:
            return False
        return True

    # Writing.

    async def create(self, resource: ApiResource[Model], body: Manifest, namespace: str = "", *, dry_run: bool = False) -> Model:
        """Create an object; `AlreadyExists` when there is one of this name."""
        request = f"create {resource.named(body['metadata'].get('name', ''), namespace)}"
        path = resource.collection(namespace) + api_path.query(dryRun="All" if dry_run else "")
        answer = await self._write("api.create", resource.plural, request, "POST", path, _encode(body), repeat=RetryRule.UNDONE)
        return self._read(request, resource, answer)

    async def apply(
        self,
        resource: ApiResource[Model],
        body: Manifest,
        *,
        manager: str,
        force: bool = True,
        subresource: str = "",
        dry_run: bool = False,
    ) -> Model:
        """Server-side apply: take ownership of the fields in `body` and set them; remove fields that we no longer include.

        Creates the object if there is none, unless `body` has a `metadata.uid`. Without `force`, a field of another manager is a
        `Conflict`.
        """
        _, _, namespace, name = api_path.place_of(body)
        request = f"apply {resource.named(name, namespace)}{f' {subresource}' if subresource else ''}"
        path = resource.one(name, namespace, subresource)
        path += api_path.query(fieldManager=manager, force=force, dryRun="All" if dry_run else "")
        what = api_path.part(resource, subresource)
        answer = await self._write("api.apply", what, request, "PATCH", path, _encode(body), APPLY)
        return self._read(request, resource, answer)

    async def apply_status(self, resource: ApiResource[Model], body: Manifest, *, manager: str) -> Model:
        """Server-side apply of `status`; the object must exist."""
        return await self.apply(resource, body, manager=manager, subresource="status")

    async def patch(
        self,
        resource: ApiResource[Model],
        name: str,
        namespace: str,
        operations: Sequence[Mapping[str, Any]],
        *,
        subresource: str = "",
    ) -> Model:
        """Apply a JSON patch, all or nothing; if a `test` in it fails, raises `Invalid`, and nothing is changed."""
        request = f"patch {resource.named(name, namespace)}"
        path = resource.one(name, namespace, subresource)
        what = api_path.part(resource, subresource)
        answer = await self._write("api.patch", what, request, "PATCH", path, _encode(operations), JSON_PATCH, RetryRule.UNDONE)
        return self._read(request, resource, answer)

    async def replace(self, resource: ApiResource[Model], body: Manifest, namespace: str = "") -> Model:
        """Replace an object, which must have the same `metadata.resourceVersion`; otherwise raises `Conflict`."""
        name = body["metadata"]["name"]
        path = resource.one(name, namespace)
        request = f"replace {resource.named(name, namespace)}"
        answer = await self._write("api.replace", resource.plural, request, "PUT", path, _encode(body), repeat=RetryRule.UNDONE)
        return self._read(request, resource, answer)

    async def delete(
        self,
        resource: ApiResource[Any],
        name: str,
        namespace: str = "",
        *,
        uid: str = "",
        resource_version: str = "",
        grace: int | None = None,
        propagation: str = "Background",
    ) -> bool:
        """Delete an object.

        Returns False when there was none. With `uid`, an object of that name with another uid is a `Conflict`.
        """
        request = f"delete {resource.named(name, namespace)}"
        preconditions = {"uid": uid, "resourceVersion": resource_version}
        options: dict[str, Any] = {
            "kind": "DeleteOptions",
            "apiVersion": "v1",
            "propagationPolicy": propagation,
            "preconditions": {key: value for key, value in preconditions.items() if value},
        }
        if grace is not None:
            options["gracePeriodSeconds"] = grace
        # Without a uid, a retry could delete a new object of the same name.
        repeat = RetryRule.ALWAYS if uid else RetryRule.UNDONE
        path = resource.one(name, namespace)
        return bool(
            await self._write("api.delete", resource.plural, request, "DELETE", path, _encode(options), repeat=repeat, gone=True)
        )

    async def bind(self, name: str, namespace: str, node: str, *, uid: str, annotations: Mapping[str, str] | None = None) -> None:
        """Bind this pod to a node; the annotations are added to the pod in the same write.

        `Conflict` when it is another pod of this name, or already placed, gated or being deleted. The API server checks nothing
        else.
        """
        body = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": name, "uid": uid, "annotations": annotations or {}},
            "target": {"apiVersion": "v1", "kind": "Node", "name": node},
        }
        request = f"bind Pod {namespace}/{name} to {node}"
        path = api_resource.PODS.one(name, namespace, "binding")
        await self._write("api.bind", "pods/binding", request, "POST", path, _encode(body), repeat=RetryRule.UNDONE)

    async def evict(self, name: str, namespace: str, *, uid: str = "", grace: int | None = None) -> bool:
        """Evict a pod if its disruption budget allows; otherwise raises `TooManyRequests`, which is not retried here.

        Returns False when there was no such pod.
        """
        options: dict[str, Any] = {"preconditions": {"uid": uid}} if uid else {}
        if grace is not None:
            options["gracePeriodSeconds"] = grace
        body = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": name, "namespace": namespace},
            "deleteOptions": options,
        }
        path = api_resource.PODS.one(name, namespace, "eviction")
        request = f"evict Pod {namespace}/{name}"
        return bool(
            await self._write(
                "api.evict", "pods/eviction", request, "POST", path, _encode(body), repeat=RetryRule.NEVER, gone=True
            )
        )

    async def _write(
        self,
        point: str,
        what: str,
        asked: str,
        method: str,
        path: str,
        body: bytes,
        content: str = JSON,
        repeat: RetryRule = RetryRule.ALWAYS,
        *,
        gone: bool = False,
    ) -> bytes:
        """Send a write. All writes go through here: each attempt is checked by `permit`, and tests can crash the process here.

        With `gone`, a missing object is a success; the response is empty then.
        """
        with crash_point.reach(point, what):
            try:
                return await self.connection.call(asked, method, path, body, content, repeat, self._permit)
            except errors.NotFound:
                if not gone:
                    raise
                return b""

    async def scale_of(self, resource: ApiResource[Any], name: str, namespace: str) -> ReplicaScale:
        """Return the desired and the actual number of replicas."""
        request = f"read the scale of {resource.named(name, namespace)}"
        answer = await self.connection.call(request, "GET", resource.one(name, namespace, "scale"))
        return self._read(request, _scale(resource), answer)

    async def scale(self, resource: ApiResource[Any], name: str, namespace: str, replicas: int) -> ReplicaScale:
        """Set the desired number of replicas."""
        request = f"scale {resource.named(name, namespace)} to {replicas}"
        body = _encode([{"op": "replace", "path": "/spec/replicas", "value": replicas}])
        path = resource.one(name, namespace, "scale")
        what = api_path.part(resource, "scale")
        answer = await self._write("api.scale", what, request, "PATCH", path, body, JSON_PATCH)
        return self._read(request, _scale(resource), answer)


@asynccontextmanager
async def connect(target: ClusterTarget, clock: Clock) -> AsyncIterator[ApiClient]:
    """Return a client of this cluster, for as long as the block lasts."""
    async with ApiConnection(target, clock) as connection:
        yield ApiClient(connection)


def _scale(resource: ApiResource[Any]) -> ApiResource[ReplicaScale]:
    return ApiResource(ReplicaScale, resource.group, resource.version, resource.plural, resource.kind, resource.namespaced)


def _unreadable(asked: str, error: msgspec.DecodeError) -> errors.ApiError:
    return errors.ApiError(
        f"cannot {asked}: the response does not match the API: {error}",
        fix="check that the version of the cluster is supported, and report this error",
        asked=asked,
    )
