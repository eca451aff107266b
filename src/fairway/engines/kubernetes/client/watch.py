"""Follows a kind: yields all existing objects and then every change, also across reconnects and expired versions."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Generic, cast

import msgspec

from fairway.engines.kubernetes.client import errors, paths
from fairway.engines.kubernetes.client.api import Client, decoder
from fairway.engines.kubernetes.client.connection import pause
from fairway.engines.kubernetes.client.course import PATIENCE, SPAN, SPREAD, Ask, Course
from fairway.engines.kubernetes.client.paths import Resource
from fairway.engines.kubernetes.objects.meta import T, Thing

_INITIAL_END = "k8s.io/initial-events-end"


class Happening(StrEnum):
    """The type of a change."""

    ADDED = "ADDED"
    MODIFIED = "MODIFIED"
    DELETED = "DELETED"


@dataclass(frozen=True, slots=True)
class Unreadable:
    """An existing object that cannot be decoded. The others are followed all the same."""

    head: Thing
    cause: str
    raw: bytes = b""
    """The object as it was sent."""


@dataclass(frozen=True, slots=True)
class Whole(Generic[T]):
    """All existing objects; objects that are not in it are deleted."""

    things: tuple[T, ...]
    unreadable: tuple[Unreadable, ...] = ()


@dataclass(frozen=True, slots=True)
class Change(Generic[T]):
    """A change of an object; for a deletion, its last state."""

    what: Happening
    thing: T


class _Event(msgspec.Struct, frozen=True, gc=False):
    type: str
    object: msgspec.Raw


@dataclass(frozen=True, slots=True)
class Scope:
    """A subset of a kind: in one namespace or in all, with these labels, with these fields."""

    namespace: str = ""
    labels: str = ""
    fields: str = ""


_event = msgspec.json.Decoder(_Event)
_status = msgspec.json.Decoder(errors.Status)
_thing = msgspec.json.Decoder(Thing)

Trouble = Callable[[errors.ApiError], None]
Found = Whole[T] | tuple[Change[T] | Unreadable, ...]


def refuse(error: errors.ApiError) -> None:
    """Raise an error that will not pass by itself: no permission, no such kind. Other errors are retried."""
    if isinstance(error, errors.Forbidden | errors.Unauthorized | errors.NotFound | errors.BadRequest):
        raise error


async def follow(
    client: Client, resource: Resource[T], scope: Scope = Scope(), trouble: Trouble = refuse
) -> AsyncIterator[Found[T]]:
    """Yield first a `Whole`, then changes as they arrive; another `Whole` whenever changes may have been missed.

    `trouble` is called with every failure that is retried; an exception that it raises ends the watch.
    """
    course, connection = Course(), client.connection
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


async def _ask(client: Client, resource: Resource[T], scope: Scope, course: Course) -> AsyncIterator[Found[T]]:
    if course.ask is Ask.LIST:
        unreadable: list[Unreadable] = []
        listed = await client.list(
            resource,
            scope.namespace,
            labels=scope.labels,
            fields=scope.fields,
            unreadable=lambda item, cause: unreadable.append(Unreadable(_thing.decode(item), cause, bytes(item))),
        )
        course.reached(listed.resource_version)
        yield Whole(listed.items, tuple(unreadable))
    seconds = SPAN + SPREAD * client.connection.chance()
    path = resource.collection(scope.namespace) + _query(scope, course, int(seconds))
    request = f"watch {resource.plural}"
    reading = _Reading(resource, course, request)
    async with client.connection.stream(request, path, silence=seconds + PATIENCE) as body:
        rest = b""
        while chunk := await body.readany():
            *lines, rest = (rest + chunk if rest else chunk).split(b"\n")
            for result in reading.take(lines):
                yield result


def _query(scope: Scope, course: Course, seconds: int) -> str:
    begin = course.ask is Ask.WATCH_LIST
    return paths.query(
        watch=True,
        allowWatchBookmarks=True,
        labelSelector=scope.labels,
        fieldSelector=scope.fields,
        timeoutSeconds=seconds,
        sendInitialEvents=begin,
        resourceVersionMatch="NotOlderThan" if begin else "",
        resourceVersion=course.version,
    )


class _Reading(Generic[T]):
    """Decodes the lines of a watch."""

    def __init__(self, resource: Resource[T], course: Course, asked: str) -> None:
        self._decode = decoder(resource.model).decode
        self._course = course
        self._asked = asked
        self._initial: list[T] | None = [] if course.ask is Ask.WATCH_LIST else None
        self._unreadable: list[Unreadable] = []

    def take(self, lines: list[bytes]) -> list[Found[T]]:
        """Return the results of these lines, in order."""
        results: list[Found[T]] = []
        changes: list[Change[T] | Unreadable] = []
        try:
            for line in lines:
                whole = self._line(line, changes) if line else None
                if whole:
                    results.append(whole)
        except msgspec.DecodeError as error:
            message = f"cannot {self._asked}: an event does not match the API: {error}"
            raise errors.ApiError(message, asked=self._asked) from error
        return [*results, tuple(changes)] if changes else results

    def _line(self, line: bytes, changes: list[Change[T] | Unreadable]) -> Whole[T] | None:
        event = _event.decode(line)
        if event.type == "BOOKMARK":
            return self._bookmark(_thing.decode(event.object))
        if event.type == "ERROR":
            raise errors.from_status(self._asked, _status.decode(event.object))
        try:
            thing = self._decode(event.object)
        except msgspec.ValidationError as error:
            self._note_unreadable(Unreadable(_thing.decode(event.object), str(error), bytes(event.object)), event.type, changes)
            return None
        if self._initial is not None:
            self._initial.append(thing)
            return None
        changes.append(Change(Happening(event.type), thing))
        self._course.reached(thing.metadata.resource_version)
        return None

    def _note_unreadable(self, found: Unreadable, what: str, changes: list[Change[T] | Unreadable]) -> None:
        if self._initial is not None:
            self._unreadable.append(found)
            return
        self._course.reached(found.head.metadata.resource_version)
        # Of a deleted object only the name matters.
        gone = what == Happening.DELETED
        changes.append(Change(Happening.DELETED, cast("T", found.head)) if gone else found)

    def _bookmark(self, mark: Thing) -> Whole[T] | None:
        if self._initial is None:
            self._course.reached(mark.metadata.resource_version)
            return None
        if mark.metadata.annotations.get(_INITIAL_END) != "true":
            return None
        whole, self._initial = Whole(tuple(self._initial), tuple(self._unreadable)), None
        self._course.reached(mark.metadata.resource_version)
        return whole
