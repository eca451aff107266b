"""The verbs: everything that Fairway asks of an API server. Every write passes the crash point of its verb.

Objects are written as plain data (`Manifest`) and read as the typed objects of their resource. Names, namespaces and bodies are
arguments; nothing is remembered here but what discovery said.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Generic

import msgspec

from fairway.app import crash
from fairway.app.ports import Clock
from fairway.engines.kubernetes.client import errors, kinds, paths
from fairway.engines.kubernetes.client.connection import APPLY, JSON, JSON_PATCH, Connection, Repeat
from fairway.engines.kubernetes.client.paths import Model, Resource
from fairway.engines.kubernetes.client.target import Target
from fairway.engines.kubernetes.objects import Manifest, Scale

PAGE = 500
"""Objects a page of a list."""

_encode = msgspec.json.Encoder().encode


class _ListHead(msgspec.Struct, frozen=True, rename="camel", gc=False):
    resource_version: str = ""
    continue_: str = msgspec.field(name="continue", default="")
    remaining_item_count: int | None = None


class _Page(msgspec.Struct, frozen=True, gc=False):
    metadata: _ListHead = _ListHead()
    items: list[msgspec.Raw] | None = None


@dataclass(frozen=True, slots=True)
class Listed(Generic[Model]):
    """Objects, and the state of the cluster that they are of."""

    items: tuple[Model, ...]
    resource_version: str


_page = msgspec.json.Decoder(_Page)


_decoders: dict[Any, msgspec.json.Decoder[Any]] = {}


def decoder(model: type[Model]) -> msgspec.json.Decoder[Model]:
    """Reads one object; unknown fields are skipped. Making one takes long, so each is made once."""
    found = _decoders.get(model)
    if found is None:
        found = _decoders[model] = msgspec.json.Decoder(model)
    return found


Unreadable = Callable[[msgspec.Raw, str], None]
"""Called with an object that cannot be decoded, and why."""


class Client:
    """The verbs over one connection."""

    def __init__(self, connection: Connection, permit: Callable[[], bool] | None = None) -> None:
        """`permit` is asked before every write (does this process still lead?); without it, `NotPermitted`."""
        self.connection = connection
        self._permit = permit
        self._discovered: dict[str, Mapping[str, Resource[dict[str, Any]]]] = {}

    # Reading.

    async def get(self, resource: Resource[Model], name: str, namespace: str = "") -> Model:
        """One object; `NotFound` when there is none."""
        asked = f"get {resource.named(name, namespace)}"
        return self._read(asked, resource, await self.connection.call(asked, "GET", resource.one(name, namespace)))

    async def list(
        self,
        resource: Resource[Model],
        namespace: str = "",
        *,
        labels: str = "",
        fields: str = "",
        page: int = PAGE,
        unreadable: Unreadable | None = None,
    ) -> Listed[Model]:
        """All of them, as of one moment. A list that gets too old while it is read is read again from its beginning.

        An object that cannot be decoded is given to `unreadable` and left out; without that it is an error.
        """
        for _ in range(3):
            try:
                return await self._list(resource, namespace, labels, fields, page, unreadable)
            except errors.Gone:
                continue
        return await self._list(resource, namespace, labels, fields, 0, unreadable)

    async def _list(
        self, resource: Resource[Model], namespace: str, labels: str, fields: str, page: int, unreadable: Unreadable | None
    ) -> Listed[Model]:
        asked, more, found = f"list {resource.plural}", "", []  # type: str, str, list[Model]
        while True:
            wanted = paths.query(labelSelector=labels, fieldSelector=fields, limit=page, **{"continue": more})
            body = await self.connection.call(asked, "GET", resource.collection(namespace) + wanted)
            head, items = self._read_page(asked, resource, body, unreadable)
            found.extend(items)
            more = head.continue_
            if not more:
                return Listed(tuple(found), head.resource_version)

    def _read_page(
        self, asked: str, resource: Resource[Model], body: bytes, unreadable: Unreadable | None
    ) -> tuple[_ListHead, Sequence[Model]]:
        try:
            page = _page.decode(body)
            decode = decoder(resource.model).decode
            if unreadable is None:
                return page.metadata, [decode(item) for item in page.items or ()]
            found = []
            for item in page.items or ():
                try:
                    found.append(decode(item))
                except msgspec.ValidationError as error:
                    unreadable(item, str(error))
        except msgspec.DecodeError as error:
            raise _unreadable(asked, error) from error
        return page.metadata, found

    def _read(self, asked: str, resource: Resource[Model], body: bytes) -> Model:
        try:
            return decoder(resource.model).decode(body)
        except msgspec.DecodeError as error:
            raise _unreadable(asked, error) from error

    async def plain(self, path: str) -> dict[str, Any]:
        """What a path of the API says, as plain data: `/version`, or a path of discovery."""
        found: dict[str, Any] = msgspec.json.decode(await self.connection.call(f"read {path}", "GET", path))
        return found

    async def resource(self, api_version: str, kind: str) -> Resource[Any]:
        """The resource of a kind: built in, or found by discovery; `NotFound` when the cluster has none."""
        built_in = kinds.BY_KIND.get((api_version, kind))
        if built_in:
            return built_in
        if kind not in self._discovered.get(api_version, ()):
            listed = await self.plain(paths.discovery_path(api_version))
            self._discovered[api_version] = paths.discovered(api_version, listed)
        found = self._discovered[api_version].get(kind)
        if found is None:
            message = f"the cluster has no kind {kind!r} in {api_version}"
            raise errors.NotFound(message, fix="install its CustomResourceDefinition first", asked=f"find {kind}", http=404)
        return found

    async def serves(self, api_version: str) -> bool:
        """Whether the cluster has this group and version at all: for neighbours that are used when they are found."""
        try:
            await self.plain(paths.discovery_path(api_version))
        except errors.NotFound:
            return False
        return True

    # Writing.

    async def create(self, resource: Resource[Model], body: Manifest, namespace: str = "", *, dry_run: bool = False) -> Model:
        """Make it; `AlreadyExists` when there is one of this name."""
        asked = f"create {resource.named(body['metadata'].get('name', ''), namespace)}"
        path = resource.collection(namespace) + paths.query(dryRun="All" if dry_run else "")
        answer = await self._write("api.create", resource.plural, asked, "POST", path, _encode(body), repeat=Repeat.UNDONE)
        return self._read(asked, resource, answer)

    async def apply(
        self,
        resource: Resource[Model],
        body: Manifest,
        *,
        manager: str,
        force: bool = True,
        subresource: str = "",
        dry_run: bool = False,
    ) -> Model:
        """Server-side apply: the fields in `body` become as they are there and ours; fields that we gave up go.

        Make it if there is none, unless it has a `metadata.uid`. Without `force`, a field of somebody else's is a `Conflict`.
        """
        _, _, namespace, name = paths.place_of(body)
        asked = f"apply {resource.named(name, namespace)}{f' {subresource}' if subresource else ''}"
        path = resource.one(name, namespace, subresource)
        path += paths.query(fieldManager=manager, force=force, dryRun="All" if dry_run else "")
        what = paths.part(resource, subresource)
        answer = await self._write("api.apply", what, asked, "PATCH", path, _encode(body), APPLY)
        return self._read(asked, resource, answer)

    async def apply_status(self, resource: Resource[Model], body: Manifest, *, manager: str) -> Model:
        """Server-side apply of `status`; the object must be there."""
        return await self.apply(resource, body, manager=manager, subresource="status")

    async def patch(
        self,
        resource: Resource[Model],
        name: str,
        namespace: str,
        operations: Sequence[Mapping[str, Any]],
        *,
        subresource: str = "",
    ) -> Model:
        """A JSON patch, all or nothing; a `test` in it that does not hold is `Invalid`, and nothing is changed."""
        asked = f"patch {resource.named(name, namespace)}"
        path = resource.one(name, namespace, subresource)
        what = paths.part(resource, subresource)
        answer = await self._write("api.patch", what, asked, "PATCH", path, _encode(operations), JSON_PATCH, Repeat.UNDONE)
        return self._read(asked, resource, answer)

    async def replace(self, resource: Resource[Model], body: Manifest, namespace: str = "") -> Model:
        """Put it in place of what is there, which must be of the same `metadata.resourceVersion`; else `Conflict`."""
        name = body["metadata"]["name"]
        path = resource.one(name, namespace)
        asked = f"replace {resource.named(name, namespace)}"
        answer = await self._write("api.replace", resource.plural, asked, "PUT", path, _encode(body), repeat=Repeat.UNDONE)
        return self._read(asked, resource, answer)

    async def delete(
        self,
        resource: Resource[Any],
        name: str,
        namespace: str = "",
        *,
        uid: str = "",
        resource_version: str = "",
        grace: int | None = None,
        propagation: str = "Background",
    ) -> bool:
        """Let it go. False when it was not there. With `uid`, only this very one: another of the name is a `Conflict`."""
        asked = f"delete {resource.named(name, namespace)}"
        preconditions = {"uid": uid, "resourceVersion": resource_version}
        options: dict[str, Any] = {
            "kind": "DeleteOptions",
            "apiVersion": "v1",
            "propagationPolicy": propagation,
            "preconditions": {key: value for key, value in preconditions.items() if value},
        }
        if grace is not None:
            options["gracePeriodSeconds"] = grace
        # Without a uid the second try could meet somebody else's of the same name.
        repeat = Repeat.ALWAYS if uid else Repeat.UNDONE
        path = resource.one(name, namespace)
        return bool(
            await self._write("api.delete", resource.plural, asked, "DELETE", path, _encode(options), repeat=repeat, gone=True)
        )

    async def bind(self, name: str, namespace: str, node: str, *, uid: str, annotations: Mapping[str, str] | None = None) -> None:
        """Put this very pod on a node; the annotations become the pod's in the same write.

        `Conflict` when it is another pod of this name, already placed, gated or going. Nothing else is checked by anybody.
        """
        body = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": name, "uid": uid, "annotations": annotations or {}},
            "target": {"apiVersion": "v1", "kind": "Node", "name": node},
        }
        asked = f"bind Pod {namespace}/{name} to {node}"
        path = kinds.PODS.one(name, namespace, "binding")
        await self._write("api.bind", "pods/binding", asked, "POST", path, _encode(body), repeat=Repeat.UNDONE)

    async def evict(self, name: str, namespace: str, *, uid: str = "", grace: int | None = None) -> bool:
        """Ask a pod to go, if its disruption budget allows; else `TooManyRequests`, which is left to the caller.

        False when it was not there.
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
        path = kinds.PODS.one(name, namespace, "eviction")
        asked = f"evict Pod {namespace}/{name}"
        return bool(
            await self._write("api.evict", "pods/eviction", asked, "POST", path, _encode(body), repeat=Repeat.NEVER, gone=True)
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
        repeat: Repeat = Repeat.ALWAYS,
        *,
        gone: bool = False,
    ) -> bytes:
        """The one way in which anything is written: permitted each time it is sent, and a place to die in tests.

        With `gone`, what is not there is as it should be; the answer is empty then.
        """
        with crash.reach(point, what):
            try:
                return await self.connection.call(asked, method, path, body, content, repeat, self._permit)
            except errors.NotFound:
                if not gone:
                    raise
                return b""

    async def scale_of(self, resource: Resource[Any], name: str, namespace: str) -> Scale:
        """How many are asked for, and how many there are."""
        asked = f"read the scale of {resource.named(name, namespace)}"
        answer = await self.connection.call(asked, "GET", resource.one(name, namespace, "scale"))
        return self._read(asked, _scale(resource), answer)

    async def scale(self, resource: Resource[Any], name: str, namespace: str, replicas: int) -> Scale:
        """Ask for so many."""
        asked = f"scale {resource.named(name, namespace)} to {replicas}"
        body = _encode([{"op": "replace", "path": "/spec/replicas", "value": replicas}])
        path = resource.one(name, namespace, "scale")
        what = paths.part(resource, "scale")
        answer = await self._write("api.scale", what, asked, "PATCH", path, body, JSON_PATCH)
        return self._read(asked, _scale(resource), answer)


@asynccontextmanager
async def connect(target: Target, clock: Clock) -> AsyncIterator[Client]:
    """A client of this cluster, for as long as the block lasts."""
    async with Connection(target, clock) as connection:
        yield Client(connection)


def _scale(resource: Resource[Any]) -> Resource[Scale]:
    return Resource(Scale, resource.group, resource.version, resource.plural, resource.kind, resource.namespaced)


def _unreadable(asked: str, error: msgspec.DecodeError) -> errors.ApiError:
    return errors.ApiError(
        f"cannot {asked}: the answer is not what this API promises: {error}",
        fix="check that the cluster is of a supported version, and report it",
        asked=asked,
    )
