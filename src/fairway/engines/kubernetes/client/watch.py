"""Follows a kind: yields all existing objects and then every change, also across reconnects and expired versions."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Generic, cast

import msgspec

from fairway.engines.kubernetes.client import api_path, errors
from fairway.engines.kubernetes.client.api import ApiClient, decoder
from fairway.engines.kubernetes.client.api_path import ApiResource
from fairway.engines.kubernetes.client.connection import pause
from fairway.engines.kubernetes.client.watch_state import PATIENCE, SPAN, SPREAD, WatchRequest, WatchState
from fairway.engines.kubernetes.objects.meta import KubernetesObject, T

_INITIAL_END = "k8s.io/initial-events-end"


class WatchEventType(StrEnum):
    """The type of a change."""

    ADDED = "ADDED"
    MODIFIED = "MODIFIED"
    DELETED = "DELETED"


@dataclass(frozen=True, slots=True)
class UndecodableObject:
    """An existing object that cannot be decoded. The others are followed all the same."""

    head: KubernetesObject
    cause: str
    raw: bytes = b""
    """The object as it was sent."""


@dataclass(frozen=True, slots=True)
class WatchSnapshot(Generic[T]):
    """All existing objects; objects that are not in it are deleted."""

    things: tuple[T, ...]
    unreadable: tuple[UndecodableObject, ...] = ()


@dataclass(frozen=True, slots=True)
class WatchChange(Generic[T]):
    """A change of an object; for a deletion, its last state."""

    what: WatchEventType
    thing: T


class _WatchEvent(msgspec.Struct, frozen=True, gc=False):
    type: str
    object: msgspec.Raw


@dataclass(frozen=True, slots=True)
class WatchScope:
    """A subset of a kind: in one namespace or in all, with these labels, with these fields."""

    namespace: str = ""
    labels: str = ""
    fields: str = ""


_event = msgspec.json.Decoder(_WatchEvent)
_status = msgspec.json.Decoder(errors.ApiStatus)
_thing = msgspec.json.Decoder(KubernetesObject)

Trouble = Callable[[errors.ApiError], None]
Found = WatchSnapshot[T] | tuple[WatchChange[T] | UndecodableObject, ...]


def refuse(error: errors.ApiError) -> None:
    """Raise an error that will not pass by itself: no permission, no such kind. Other errors are retried."""
    if isinstance(error, errors.Forbidden | errors.Unauthorized | errors.NotFound | errors.BadRequest):
        raise error


async def follow(
    client: ApiClient, resource: ApiResource[T], scope: WatchScope = WatchScope(), trouble: Trouble = refuse
) -> AsyncIterator[Found[T]]:
    """Yield first a `WatchSnapshot`, then changes as they arrive; another `WatchSnapshot` whenever changes may have been missed.

    `trouble` is called with every failure that is retried; an exception that it raises ends the watch.
    """
    course, connection = WatchState(), client.connection
    while True:
        any_result = False
        try:
            async for result in _ask(client, resource, scope, course):
                any_result = True
                yield result
            course.ended(empty=not any_result)
        except errors.ApiError as error:
            if course.failed(error):
                continue
            trouble(error)
            await asyncio.sleep(pause(course.failures, error.retry_after, connection.chance()))
            continue
        if course.failures:
            await asyncio.sleep(pause(course.failures, 0.0, connection.chance()))


async def _ask(client: ApiClient, resource: ApiResource[T], scope: WatchScope, course: WatchState) -> AsyncIterator[Found[T]]:
    if course.ask is WatchRequest.LIST:
        unreadable: list[UndecodableObject] = []
        listed = await client.list(
            resource,
            scope.namespace,
            labels=scope.labels,
            fields=scope.fields,
            unreadable=lambda item, cause: unreadable.append(UndecodableObject(_thing.decode(item), cause, bytes(item))),
        )
        course.reached(listed.resource_version)
        yield WatchSnapshot(listed.items, tuple(unreadable))
    seconds = SPAN + SPREAD * client.connection.chance()
    path = resource.collection(scope.namespace) + _query(scope, course, int(seconds))
    request = f"watch {resource.plural}"
    reading = _WatchDecoder(resource, course, request)
    async with client.connection.stream(request, path, silence=seconds + PATIENCE) as body:
        rest = b""
        while chunk := await body.readany():
            *lines, rest = (rest + chunk if rest else chunk).split(b"\n")
            for result in reading.take(lines):
                yield result


def _query(scope: WatchScope, course: WatchState, seconds: int) -> str:
    begin = course.ask is WatchRequest.WATCH_LIST
    return api_path.query(
        watch=True,
        allowWatchBookmarks=True,
        labelSelector=scope.labels,
        fieldSelector=scope.fields,
        timeoutSeconds=seconds,
        sendInitialEvents=begin,
        resourceVersionMatch="NotOlderThan" if begin else "",
        resourceVersion=course.version,
    )


class _WatchDecoder(Generic[T]):
    """Decodes the lines of a watch."""

    def __init__(self, resource: ApiResource[T], course: WatchState, asked: str) -> None:
        self._decode = decoder(resource.model).decode
        self._course = course
        self._asked = asked
        self._initial: list[T] | None = [] if course.ask is WatchRequest.WATCH_LIST else None
        self._unreadable: list[UndecodableObject] = []

    def take(self, lines: list[bytes]) -> list[Found[T]]:
        """Return the results of these lines, in order."""
        results: list[Found[T]] = []
        changes: list[WatchChange[T] | UndecodableObject] = []
        try:
            for line in lines:
                whole = self._line(line, changes) if line else None
                if whole:
                    results.append(whole)
        except msgspec.DecodeError as error:
            message = f"cannot {self._asked}: an event does not match the API: {error}"
            raise errors.ApiError(message, asked=self._asked) from error
        return [*results, tuple(changes)] if changes else results

    def _line(self, line: bytes, changes: list[WatchChange[T] | UndecodableObject]) -> WatchSnapshot[T] | None:
        event = _event.decode(line)
        if event.type == "BOOKMARK":
            return self._bookmark(_thing.decode(event.object))
        if event.type == "ERROR":
            raise errors.from_status(self._asked, _status.decode(event.object))
        try:
            thing = self._decode(event.object)
        except msgspec.ValidationError as error:
            self._note_unreadable(
                UndecodableObject(_thing.decode(event.object), str(error), bytes(event.object)), event.type, changes
            )
            return None
        if self._initial is not None:
            self._initial.append(thing)
            return None
        changes.append(WatchChange(WatchEventType(event.type), thing))
        self._course.reached(thing.metadata.resource_version)
        return None

    def _note_unreadable(self, found: UndecodableObject, what: str, changes: list[WatchChange[T] | UndecodableObject]) -> None:
        if self._initial is not None:
            self._unreadable.append(found)
            return
        self._course.reached(found.head.metadata.resource_version)
        # Of a deleted object only the name matters.
        gone = what == WatchEventType.DELETED
        changes.append(WatchChange(WatchEventType.DELETED, cast("T", found.head)) if gone else found)

    def _bookmark(self, mark: KubernetesObject) -> WatchSnapshot[T] | None:
        if self._initial is None:
            self._course.reached(mark.metadata.resource_version)
            return None
        if mark.metadata.annotations.get(_INITIAL_END) != "true":
            return None
        whole, self._initial = WatchSnapshot(tuple(self._initial), tuple(self._unreadable)), None
        self._course.reached(mark.metadata.resource_version)
        return whole
