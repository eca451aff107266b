"""A copy of everything of a kind, kept in step by a watch: typed objects by key, indexes, and callbacks on every change.

What is read here may be a moment old; whoever writes on the strength of it states what it must still be (a uid, a version).
"""

from __future__ import annotations

import asyncio
import gc
import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any, Generic

from fairway.engines.kubernetes.client import errors
from fairway.engines.kubernetes.client.api import Client
from fairway.engines.kubernetes.client.paths import Resource
from fairway.engines.kubernetes.client.watch import Happening, Scope, Unreadable, Whole, follow
from fairway.engines.kubernetes.objects.meta import T, Thing, key_of, owner_of

Index = Callable[[T], Iterable[str]]
"""Under which values an object is found."""
Listener = Callable[[str, T | None, T | None], None]
"""Told of a change: the key, what was, what is. One of the two may be missing."""

RESTART_AFTER = 1.0
"""Seconds until a copy whose reading failed is read anew."""

_log = logging.getLogger(__name__)


class Mirror(Generic[T]):
    """A copy of everything of a kind."""

    def __init__(
        self, client: Client, resource: Resource[T], scope: Scope = Scope(), indexes: Mapping[str, Index[T]] | None = None
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
        """Why it is not in step, while it is not."""
        self.unreadable: dict[str, Unreadable] = {}
        """Objects that cannot be decoded, by key. Of one that could be before, the last readable state is kept."""
        self.noted: list[Callable[[Unreadable], None]] = []
        """Called with every object that cannot be decoded."""

    # Reading.

    def get(self, key: str) -> T | None:
        """The object with this key (`NAMESPACE/NAME`, or `NAME`), if it is there."""
        return self._things.get(key)

    def __len__(self) -> int:
        return len(self._things)

    def __iter__(self) -> Iterator[T]:
        return iter(self._things.values())

    def keys(self) -> Collection[str]:
        """The keys of everything."""
        return self._things.keys()

    def indexed(self, index: str, value: str) -> Collection[T]:
        """Everything that this index finds under the value."""
        return self._found[index].get(value, {}).values()

    @property
    def complete(self) -> bool:
        """Whether everything that was there when it began is here."""
        return self._complete.is_set()

    async def synced(self) -> None:
        """Wait until it is complete."""
        await self._complete.wait()

    def listen(self, listener: Listener[T]) -> None:
        """Tell of every change from now on; of what is here already, at once."""
        self._listeners.append(listener)
        for key, thing in self._things.items():
            listener(key, None, thing)

    # Keeping in step.

    async def run(self) -> None:
        """Keep in step until it is cancelled. What fails is tried again; `trouble` says why it is behind."""
        while True:
            try:
                await self._follow()
            except Exception:  # noqa: BLE001 - a copy that stopped would be taken for the truth.
                _log.exception("following %s failed; it is followed anew in %g s", self.resource.plural, RESTART_AFTER)
                await asyncio.sleep(RESTART_AFTER)

    async def _follow(self) -> None:
        async for found in follow(self._client, self.resource, self._scope, self._trouble):
            self.trouble = None
            if isinstance(found, Whole):
                self.reset(found.things, found.unreadable)
                self._complete.set()
                continue
            for change in found:
                if isinstance(change, Unreadable):
                    self._note(change)
                else:
                    self.put(change.thing, gone=change.what is Happening.DELETED)

    def reset(self, things: Iterable[T], unreadable: Iterable[Unreadable] = ()) -> None:
        """This is everything now. Only what differs is told."""
        fresh = {key_of(thing): thing for thing in things}
        self.unreadable.clear()
        for found in unreadable:
            self._note(found)
        for key in self._things.keys() - fresh.keys() - self.unreadable.keys():
            self._set(key, None)
        for key, thing in fresh.items():
            known = self._things.get(key)
            if known is None or known.metadata.resource_version != thing.metadata.resource_version:
                self._set(key, thing)

    def put(self, thing: T, *, gone: bool = False) -> None:
        """One change."""
        self.unreadable.pop(key_of(thing), None)
        self._set(key_of(thing), None if gone else thing)

    def _note(self, found: Unreadable) -> None:
        key = key_of(found.head)
        self.unreadable[key] = found
        _log.warning("%s %s cannot be read and is left as it was: %s", self.resource.plural, key, found.cause)
        for call in self.noted:
            call(found)

    def _set(self, key: str, thing: T | None) -> None:
        known = self._things.pop(key, None) if thing is None else self._things.get(key)
        if thing is not None:
            self._things[key] = thing
        for name, index in self._indexes.items():
            found = self._found[name]
            for value in index(known) if known is not None else ():
                entries = found[value]
                entries.pop(key, None)
                if not entries:
                    del found[value]
            if thing is not None:
                for value in index(thing):
                    found.setdefault(value, {})[key] = thing
        for listener in self._listeners:
            try:
                listener(key, known, thing)
            except Exception:  # noqa: BLE001 - the copy stays in step, and the other listeners hear of it.
                _log.exception("a listener to %s failed for %s", self.resource.plural, key)

    def _trouble(self, error: errors.ApiError) -> None:
        if type(error) is not type(self.trouble):
            _log.warning("%s; trying again", error.message)
        self.trouble = error


def by_label(name: str) -> Index[Thing]:
    """Find objects by the value of a label."""

    def values(thing: Thing) -> tuple[str, ...]:
        value = thing.metadata.labels.get(name)
        return () if value is None else (value,)

    return values


def by_owner(thing: Thing) -> tuple[str, ...]:
    """Find objects by the uid of the owner that controls them."""
    owner = owner_of(thing)
    return (owner.uid,) if owner else ()


async def all_synced(*mirrors: Mirror[Any]) -> None:
    """Wait until all are complete, then keep the collector away from what they hold: it lives as long as the process."""
    gc.set_threshold(50_000, 20, 100)
    await asyncio.gather(*(mirror.synced() for mirror in mirrors))
    gc.collect()
    gc.freeze()
