"""Datasets: what may be asked of their versions, and what happened to them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace

from fairway.app.loop import Loop
from fairway.app.ports import Changes, DatasetStore
from fairway.app.sent import Sent, not_here
from fairway.app.verification import Course
from fairway.errors import ConflictError, UsageError
from fairway.state.content import Verified
from fairway.state.dataset import DatasetVersion
from fairway.state.event import Event


@dataclass(frozen=True, slots=True)
class Addition:
    """What to keep as a version of a dataset."""

    name: str
    path: str
    """Absolute; by reference any URI too."""
    reference: bool = False
    manifest: str = ""
    """The digest of what was sent ahead, where the path is one of another machine."""
    is_file: bool = False
    """Whether that is one file."""
    namespace: str = "default"
    """The namespace in which `name` is a name."""


class DatasetCommands:
    """The use cases that change datasets, over one loop; each leaves an event."""

    def __init__(self, loop: Loop, store: DatasetStore) -> None:
        self._loop = loop
        self._store = store
        self.gone: Callable[[], None] = lambda: None
        """Called after a version was deleted; whoever gives back space sets it."""
        self.catch_up: Callable[[], Awaitable[None]] = _nothing_left
        """Awaited before a question is answered: keeps what runs that are over have left; whoever keeps it sets it."""

    async def get(self, asked: str) -> DatasetVersion:
        """The version that `rows@2` or `rows` means, also when the run that made it ended just now."""
        await self.catch_up()
        return self._store.get(asked)

    async def list(self, namespace: str = "") -> list[DatasetVersion]:
        """Every version of every dataset, or of those of a namespace, also of runs that ended just now."""
        await self.catch_up()
        return [each for each in self._store.list() if not namespace or self._is_in(each.name, namespace)]

    def own(self, reference: str, namespace: str) -> str:
        """What a bare name means in a namespace, and in no other."""
        return self._store.own(reference, namespace)

    def shown(self, version: DatasetVersion, namespace: str) -> DatasetVersion:
        """The version under the name that it has in a namespace."""
        return replace(version, name=self._store.relative(version.name, namespace))

    async def verify(self, reference: str, namespace: str, course: Course) -> Verified:
        """Compare content with its digests: of a version, of all versions of a dataset, or of a namespace (no reference)."""
        if "@" in reference:
            versions = [await self.get(reference)]
        else:
            versions = [each for each in await self.list(namespace) if not reference or each.name == reference]
        found = await asyncio.to_thread(self._store.verify, versions, course)
        shown = {str(version): str(self.shown(version, namespace)) for version in versions}
        return replace(found, damaged=tuple(replace(each, version=shown[each.version]) for each in found.damaged))

    async def add(self, asked: Addition) -> DatasetVersion:
        """Keep a folder or a file as the next version; the same content again gives the version that it has."""
        name = self._store.own(asked.name, asked.namespace)
        now, content = self._loop.clock.now(), await self._content(asked)
        # Reading and copying may take long: others must not wait for it.
        made = await asyncio.to_thread(self._store.add, name, content, now, reference=asked.reference)
        if made.created == now:
            by = f", sent by {content.owner}" if isinstance(content, Sent) else ""
            self.record(made, "DatasetAdded", f"{made} from {asked.path}{by}")
        return made

    async def _content(self, asked: Addition) -> str | Sent:
        """What is to be kept: here everybody's files are this machine's."""
        if asked.manifest:
            raise not_here()
        return asked.path

    async def check_delete(self, asked: str) -> DatasetVersion:
        """The version, or the refusal with the run that needs it."""
        version = await self.get(asked)
        user = self.user_of(version.name)
        if user:
            message = f"{version} cannot be deleted: {user} uses {version.name}"
            raise ConflictError(message, fix=f"wait for it, or stop it: fairway stop {user}")
        return version

    async def delete(self, asked: str) -> DatasetVersion:
        """Let a version be gone; refused while a run that is not over uses the dataset."""
        version = await self.check_delete(asked)
        await asyncio.to_thread(self._store.delete, version)
        self.record(version, "DatasetDeleted", str(version))
        self.gone()
        return version

    def user_of(self, name: str) -> str:
        """A run that is not over and has a version of the dataset as an input; empty when there is none."""
        runs = self._loop.snapshot.jobs.values()
        users = (job.key.name for job in runs for text in job.spec.data.values() if self._names(text, job.key.namespace, name))
        return min(users, default="")

    def _names(self, text: str, namespace: str, name: str) -> bool:
        """Whether an input of a run in a namespace is a version of a dataset."""
        given, _, _ = text.partition("@")
        if ":" in text or given.rpartition("/")[2] != name.rpartition("/")[2]:
            return False
        try:
            # The version belongs to the name: an earlier version of it may be one of another namespace.
            return self._store.meant(text, namespace).partition("@")[0] == name
        except UsageError:
            return False  # A path of this machine.

    def _is_in(self, name: str, namespace: str) -> bool:
        return self._store.own(name.rpartition("/")[2], namespace) == name

    def record(self, version: DatasetVersion, reason: str, message: str) -> None:
        """Remember what happened."""
        self._loop.store.commit(Changes(events=(Event(self._loop.clock.now(), subject(version.name), reason, message),)))


def subject(name: str) -> str:
    """What events about a dataset are about: no run is called so."""
    return f"dataset:{name}"


async def _nothing_left() -> None:
    """Nobody keeps what runs leave behind."""
