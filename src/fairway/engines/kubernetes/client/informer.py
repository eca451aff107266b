"""An informer: a copy of all objects of a kind, kept up to date by a watch, with indexes and callbacks on every change.

The copy may be a moment old. A write that is based on it must contain a precondition (a uid, a version).
"""

from __future__ import annotations

import asyncio
import gc
import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any, Generic

from fairway.engines.kubernetes.client import errors
from fairway.engines.kubernetes.client.api import ApiClient
from fairway.engines.kubernetes.client.api_path import ApiResource
from fairway.engines.kubernetes.client.watch import UndecodableObject, WatchEventType, WatchScope, WatchSnapshot, follow
from fairway.engines.kubernetes.objects.meta import KubernetesObject, T, key_of, owner_of

Index = Callable[[T], Iterable[str]]
"""Returns the values under which an object is indexed."""
Listener = Callable[[str, T | None, T | None], None]
"""Called with a change: the key, the old and the new object. One of the two may be missing."""

RESTART_AFTER = 1.0
"""Seconds until the watch is restarted after an unexpected failure."""

_log = logging.getLogger(__name__)


class Informer(Generic[T]):
    """A copy of all objects of a kind."""

    def __init__(
        self,
        client: ApiClient,
        resource: ApiResource[T],
        scope: WatchScope = WatchScope(),
        indexes: Mapping[str, Index[T]] | None = None,
    ) -> None:
        self._client = client
        self.resource = resource
        self._scope = scope
        self._things: dict[str, T] = {}
        self._indexes = dict(indexes or {})
        self._found: dict[str, dict[str, dict[str, T]]] = {name: {} for name in self._indexes}
        self._listeners: list[Listener[T]] = []
        self._complete = asyncio.Event()
        self.trouble: errors.ApiError | None = None
        """Why the copy is behind, while it is."""
        self.unreadable: dict[str, UndecodableObject] = {}
        """Objects that cannot be decoded, by key. If an earlier state could be decoded, that is kept."""
        self.noted: list[Callable[[UndecodableObject], None]] = []
        """Called with every object that cannot be decoded."""

    # Reading.

    def get(self, key: str) -> T | None:
        """Return the object with this key (`NAMESPACE/NAME`, or `NAME`), if there is one."""
        return self._things.get(key)

    def __len__(self) -> int:
        return len(self._things)

    def __iter__(self) -> Iterator[T]:
        return iter(self._things.values())

    def keys(self) -> Collection[str]:
        """Return the keys of all objects."""
        return self._things.keys()

    def indexed(self, index: str, value: str) -> Collection[T]:
        """Return all objects that are indexed under the value."""
        return self._found[index].get(value, {}).values()

    @property
    def complete(self) -> bool:
        """Whether the copy has all objects that existed at the start."""
        return self._complete.is_set()

    async def synced(self) -> None:
        """Wait until the copy is complete."""
        await self._complete.wait()

    def listen(self, listener: Listener[T]) -> None:
        """Call the listener on every change from now on, and at once for every existing object."""
        self._listeners.append(listener)
        for key, thing in self._things.items():
            listener(key, None, thing)

    # Keeping in step.

    async def run(self) -> None:
        """Keep the copy up to date until cancelled. Failures are retried; `trouble` has the reason while the copy is behind."""
        while True:
            try:
                await self._follow()
            except Exception:  # noqa: BLE001 - a copy that is no longer updated would be taken for the truth.
                _log.exception("the watch of %s failed; it restarts in %g s", self.resource.plural, RESTART_AFTER)
                await asyncio.sleep(RESTART_AFTER)

    async def _follow(self) -> None:
        async for result in follow(self._client, self.resource, self._scope, self._trouble):
            self.trouble = None
            if isinstance(result, WatchSnapshot):
                self.reset(result.things, result.unreadable)
                self._complete.set()
                continue
            for change in result:
                if isinstance(change, UndecodableObject):
                    self._note(change)
                else:
                    self.put(change.thing, gone=change.what is WatchEventType.DELETED)

    def reset(self, things: Iterable[T], unreadable: Iterable[UndecodableObject] = ()) -> None:
        """Replace all objects. Only differences are passed to the listeners."""
        fresh = {key_of(thing): thing for thing in things}
        self.unreadable.clear()
        for broken in unreadable:
            self._note(broken)
        for key in self._things.keys() - fresh.keys() - self.unreadable.keys():
            self._set(key, None)
        for key, thing in fresh.items():
            existing = self._things.get(key)
            if existing is None or existing.metadata.resource_version != thing.metadata.resource_version:
                self._set(key, thing)

    def put(self, thing: T, *, gone: bool = False) -> None:
        """Apply a single change."""
        self.unreadable.pop(key_of(thing), None)
        self._set(key_of(thing), None if gone else thing)

    def _note(self, found: UndecodableObject) -> None:
        key = key_of(found.head)
        self.unreadable[key] = found
        _log.warning("%s %s cannot be read; its last readable state is kept: %s", self.resource.plural, key, found.cause)
        for call in self.noted:
            call(found)

    def _set(self, key: str, thing: T | None) -> None:
        before = self._things.pop(key, None) if thing is None else self._things.get(key)
        if thing is not None:
            self._things[key] = thing
        for name, index in self._indexes.items():
            entries_by_value = self._found[name]
            for value in index(before) if before is not None else ():
                entries = entries_by_value[value]
                entries.pop(key, None)
                if not entries:
                    del entries_by_value[value]
            if thing is not None:
                for value in index(thing):
                    entries_by_value.setdefault(value, {})[key] = thing
        for listener in self._listeners:
            try:
                listener(key, before, thing)
            except Exception:  # noqa: BLE001 - the copy stays up to date, and the other listeners are called.
                _log.exception("a listener to %s failed for %s", self.resource.plural, key)

    def _trouble(self, error: errors.ApiError) -> None:
        if type(error) is not type(self.trouble):
            _log.warning("%s; trying again", error.message)
        self.trouble = error


def by_label(name: str) -> Index[KubernetesObject]:
    """Return an index by the value of a label."""

    def values(thing: KubernetesObject) -> tuple[str, ...]:
        value = thing.metadata.labels.get(name)
        return () if value is None else (value,)

    return values


def by_owner(thing: KubernetesObject) -> tuple[str, ...]:
    """Index objects by the uid of the owner that controls them."""
    owner = owner_of(thing)
    return (owner.uid,) if owner else ()


async def all_synced(*mirrors: Informer[Any]) -> None:
    """Wait until all are complete, then exclude their objects from garbage collection: they live as long as the process."""
    gc.set_threshold(50_000, 20, 100)
    await asyncio.gather(*(mirror.synced() for mirror in mirrors))
    gc.collect()
    gc.freeze()
