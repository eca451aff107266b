"""Use cases of datasets and their versions, and the events about them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace

from fairway.app.loop.loop import ReconcileLoop
from fairway.app.port.port import ChangeSet, DatasetStore
from fairway.app.upload import UploadedContent, not_here
from fairway.app.verification_progress import VerificationProgress
from fairway.errors import ConflictError, UsageError
from fairway.state.content_check import ContentVerification
from fairway.state.dataset import DatasetVersion
from fairway.state.event import RunEvent


@dataclass(frozen=True, slots=True)
class DatasetAddition:
    """A folder or file to store as a version of a dataset."""

    name: str
    path: str
    """Absolute path; for a dataset by reference, any URI."""
    reference: bool = False
    manifest: str = ""
    """The digest of the content uploaded before, if the path is one of another machine."""
    is_file: bool = False
    """Whether the uploaded content is a single file."""
    namespace: str = "default"
    """The namespace in which `name` is resolved."""


class DatasetUseCases:
    """The use cases that change datasets, on one loop; each records an event."""

    def __init__(self, loop: ReconcileLoop, store: DatasetStore) -> None:
        self._loop = loop
        self._store = store
        self.gone: Callable[[], None] = lambda: None
        """Called after a version was deleted; set by the code that frees disk space."""
        self.catch_up: Callable[[], Awaitable[None]] = _nothing_left
        """Awaited before a query is answered: stores the outputs of finished runs. Set by the code that stores them."""

    async def get(self, asked: str) -> DatasetVersion:
        """Return the version that `rows@2` or `rows` refers to, even if the run that created it has just ended."""
        await self.catch_up()
        return self._store.get(asked)

    async def list(self, namespace: str = "") -> list[DatasetVersion]:
        """List all versions of all datasets, or of those of a namespace, including those of runs that have just ended."""
        await self.catch_up()
        return [version for version in self._store.list() if not namespace or self._is_in(version.name, namespace)]

    def own(self, reference: str, namespace: str) -> str:
        """Return the absolute name of a bare name in a namespace."""
        return self._store.own(reference, namespace)

    def shown(self, version: DatasetVersion, namespace: str) -> DatasetVersion:
        """Return the version under its name in a namespace."""
        return replace(version, name=self._store.relative(version.name, namespace))

    async def verify(self, reference: str, namespace: str, course: VerificationProgress) -> ContentVerification:
        """Compare content with its digests: of one version, of all versions of a dataset, or of a namespace (no reference)."""
        if "@" in reference:
            versions = [await self.get(reference)]
        else:
            versions = [item for item in await self.list(namespace) if not reference or item.name == reference]
        result = await asyncio.to_thread(self._store.verify, versions, course)
        names = {str(version): str(self.shown(version, namespace)) for version in versions}
        return replace(result, damaged=tuple(replace(item, version=names[item.version]) for item in result.damaged))

    async def add(self, asked: DatasetAddition) -> DatasetVersion:
        """Store a folder or a file as the next version; adding the same content again returns the existing version."""
        name = self._store.own(asked.name, asked.namespace)
        now, content = self._loop.clock.now(), await self._content(asked)
        # Reading and copying may take long; other requests must not wait for it.
        version = await asyncio.to_thread(self._store.add, name, content, now, reference=asked.reference)
        if version.created == now:
            by = f", sent by {content.owner}" if isinstance(content, UploadedContent) else ""
            self.record(version, "DatasetAdded", f"{version} from {asked.path}{by}")
        return version

    async def _content(self, asked: DatasetAddition) -> str | UploadedContent:
        """Return the content to store: on one machine, the path of the user's files."""
        if asked.manifest:
            raise not_here()
        return asked.path

    async def check_delete(self, asked: str) -> DatasetVersion:
        """Return the version, or raise a refusal that names the run that uses it."""
        version = await self.get(asked)
        user = self.user_of(version.name)
        if user:
            message = f"{version} cannot be deleted: {user} uses {version.name}"
            raise ConflictError(message, fix=f"wait for it, or stop it: fairway stop {user}")
        return version

    async def delete(self, asked: str) -> DatasetVersion:
        """Delete a version; refused while an unfinished run uses the dataset."""
        version = await self.check_delete(asked)
        await asyncio.to_thread(self._store.delete, version)
        self.record(version, "DatasetDeleted", str(version))
        self.gone()
        return version

    def user_of(self, name: str) -> str:
        """Return an unfinished run that has a version of the dataset as an input; empty if there is none."""
        runs = self._loop.snapshot.jobs.values()
        users = (job.key.name for job in runs for text in job.spec.data.values() if self._names(text, job.key.namespace, name))
        return min(users, default="")

    def _names(self, text: str, namespace: str, name: str) -> bool:
        """Return whether an input of a run in a namespace is a version of a dataset."""
        reference, _, _ = text.partition("@")
        if ":" in text or reference.rpartition("/")[2] != name.rpartition("/")[2]:
            return False
        try:
            # Resolve the name together with its version: earlier versions of a name may belong to another namespace.
            return self._store.meant(text, namespace).partition("@")[0] == name
        except UsageError:
            return False  # A path of this machine.

    def _is_in(self, name: str, namespace: str) -> bool:
        return self._store.own(name.rpartition("/")[2], namespace) == name

    def record(self, version: DatasetVersion, reason: str, message: str) -> None:
        """Record an event about the version."""
        self._loop.store.commit(ChangeSet(events=(RunEvent(self._loop.clock.now(), subject(version.name), reason, message),)))


def subject(name: str) -> str:
    """Return the subject of events about a dataset; no run can have this name."""
    return f"dataset:{name}"


async def _nothing_left() -> None:
    """Default where outputs of runs are not stored."""
