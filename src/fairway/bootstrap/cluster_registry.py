"""The operator's registry: models and datasets of all namespaces, and the migration of a registry without namespaces."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from fairway.app.port.port import Clock, JobFilter, Store
from fairway.app.service import ServiceRequest
from fairway.app.submission import Submission
from fairway.engines.kubernetes.annotation import BLOB
from fairway.engines.kubernetes.client.api import ApiClient
from fairway.engines.kubernetes.operator.manifest.input import MODEL, Find, InputVersion, versions_in
from fairway.engines.kubernetes.record.access_right import AccessReviewer, asking
from fairway.launch.launcher_check import examine
from fairway.plan.service.replica import OWN_NAMESPACE
from fairway.registry.blob import BlobStore
from fairway.registry.dataset import DatasetRegistry
from fairway.registry.model import ModelRegistry
from fairway.registry.registry_namespace import DATASETS, DEFAULT, MODELS, RegistryNamespaces
from fairway.registry.remote_blob import open_blobs
from fairway.registry.upload.content_ownership import ContentOwnership, is_digest, namespace_owner
from fairway.state.job import JobKey, JobState, SubmissionOrigin

_PAGE = 1000


@dataclass(frozen=True, slots=True)
class ClusterRegistry:
    """All parts of the registry, on the same files."""

    blobs: BlobStore
    namespaces: RegistryNamespaces
    models: ModelRegistry
    datasets: DatasetRegistry
    possession: ContentOwnership

    @classmethod
    def open(cls, home: Path) -> ClusterRegistry:
        """Open the registry of the operator's home."""
        blobs, namespaces = open_blobs(home / "blobs", ""), RegistryNamespaces(home, several=True)
        models, datasets = ModelRegistry(home, blobs, namespaces), DatasetRegistry(home, blobs, namespaces)
        return cls(blobs, namespaces, models, datasets, ContentOwnership(home, blobs, namespaces))

    def rights(self, client: ApiClient, clock: Clock) -> AccessReviewer:
        """Return the permissions on models and datasets."""
        return AccessReviewer(client, {MODELS: self.models, DATASETS: self.datasets}, self.possession, clock)

    def finder(self, namespace: str) -> Find:
        """Return a function that resolves the inputs of a namespace's runs; permissions were checked before."""

        def find(reference: str) -> InputVersion:
            if reference.startswith(MODEL):
                model = self.models.get(self.models.meant(reference.removeprefix(MODEL), namespace))
                return InputVersion(f"/v1/given/models/{self.models.relative(str(model), namespace)}")
            version = self.datasets.get(self.datasets.meant(reference, namespace))
            inner = self.datasets.files(version)[0].path if version.is_file and not version.reference else ""
            return InputVersion(f"/v1/given/datasets/{self.datasets.relative(str(version), namespace)}", inner, version.reference)

        return find

    def take_up(self, store: Store) -> None:
        """Record once which content of a registry without namespaces was used, and which code each namespace has had.

        The content of that registry belongs to the namespace `default` from then on.
        """
        if self.namespaces.knows_earlier():
            return
        kinds: dict[str, dict[str, set[str]]] = {MODELS: {}, DATASETS: {}}
        known_names = {kind: set(self.namespaces.names(kind, DEFAULT)) for kind in kinds}
        for namespace, data, code in _used(store):
            if is_digest(code):
                self.possession.note_code([namespace_owner(namespace)], code)
            for kind, reference in versions_in(data).values():
                name = reference.partition("@")[0]
                if namespace != DEFAULT and name in known_names[kind]:
                    kinds[kind].setdefault(name, set()).add(namespace)
        self.namespaces.keep_earlier({kind: {name: sorted(used[name]) for name in sorted(used)} for kind, used in kinds.items()})


class ClusterSubmissions:
    """The `Submissions` port: the object, and what it references, contains everything. Checks the permissions of its user."""

    def __init__(self, rights: AccessReviewer) -> None:
        self._rights = rights

    async def receive(self, submission: Submission) -> SubmissionOrigin:
        """Check permissions and code. Nothing is read from the caller's folder; every task gets its own pod."""
        document, origin = submission.document, submission.origin
        namespace = document.metadata.namespace
        self._rights.check_code(origin.user, namespace, origin.code_digest.removeprefix(BLOB))
        await self._rights.check_reads(asking(namespace), namespace, document.spec.data)
        report = examine(document.spec, lambda _file: None)
        return replace(origin, spread=True, starters=report.starters, cautions=report.cautions)

    async def check_service(self, ask: ServiceRequest) -> None:
        """Refuse a service whose user may not read its model."""
        model, namespace = ask.document.spec.model, ask.key.namespace
        if model:
            await self._rights.check_reads(asking(namespace), namespace, {"model": f"{MODEL}{model}"})

    async def missing(self, submission: Submission, port: int = 0) -> Sequence[str]:
        """Return nothing: the images and volumes of future pods are unknown here."""
        return ()

    def keep(self, key: JobKey, submission: Submission) -> None:
        """Do nothing: there is nothing to store."""

    async def fingerprint(self, job: JobState) -> str:
        """Return the digest from the code's ConfigMap."""
        return job.origin.code_digest


def _used(store: Store) -> Iterator[tuple[str, dict[str, str], str]]:
    """Yield what services and runs use: namespace, inputs, code."""
    for record in store.services():
        service = record.service
        references = [service.spec.model, *(revision.model for revision in service.revisions)]
        yield service.key.namespace, {str(number): f"{MODEL}{model}" for number, model in enumerate(references) if model}, ""
        for revision in service.revisions:
            yield service.key.namespace, {}, revision.origin.code_digest.removeprefix(BLOB)
    page = store.list_jobs(JobFilter(limit=_PAGE))
    while True:
        for job in page.jobs:
            yield job.key.namespace.removesuffix(OWN_NAMESPACE), dict(job.spec.data), job.origin.code_digest
        if not page.next:
            return
        page = store.list_jobs(JobFilter(limit=_PAGE, before=page.next))
