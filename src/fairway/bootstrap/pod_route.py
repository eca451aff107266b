"""The operator's services for pods, built on the registry and the database."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

from starlette.types import ASGIApp

from fairway.api.pods.download import DownloadRoutes, Entitled, make_given
from fairway.api.pods.plain_http import PlainHttpGate
from fairway.api.pods.sample import SampleUploadRoutes
from fairway.api.pods.upload import UploadRoutes
from fairway.app.application import Application
from fairway.app.tracking.run import TokenCaller
from fairway.bootstrap.cluster_registry import ClusterRegistry
from fairway.bootstrap.tracked import tracked
from fairway.engines.kubernetes.annotation import BLOB
from fairway.engines.kubernetes.certificate_authority import CertificateAuthority
from fairway.engines.kubernetes.client.informer import Informer
from fairway.engines.kubernetes.objects import CustomObject
from fairway.engines.kubernetes.operator.manifest.input import MODEL
from fairway.engines.kubernetes.record.access_right import AccessReviewer, vouched
from fairway.errors import NotFoundError
from fairway.plan.service.replica import SERVICE_LABEL
from fairway.registry.content_export import ContentExport
from fairway.registry.upload.content_ownership import namespace_owner, user_owner
from fairway.registry.upload.run_upload import RunUploads
from fairway.serving.sample_folder import UploadedSampleFolder
from fairway.state.job import JobKey, JobState
from fairway.state.service import ServiceKey, ServiceState

SERVICE = "service:"
"""Prefix of a service's name where a token names a run."""


def given_to_pods(
    home: Path,
    application: Application,
    carried: RunUploads,
    sampled: SampleUploadRoutes,
    secret: bytes,
    registry: ClusterRegistry,
    entitled: Entitled,
) -> ASGIApp:
    """Build the routes for downloads of code, models and datasets, for uploads of pods, and for MLflow."""
    contents = ContentExport(registry.blobs, registry.models, registry.datasets)

    def own_code(speaker: TokenCaller) -> tuple[str, ...]:
        digests = [digest.removeprefix(BLOB) for digest in code_of(application, speaker)]
        return tuple(digest for digest in digests if registry.possession.has_code(_owners(application, speaker), digest))

    downloads = DownloadRoutes(contents, own_code, entitled, secret)
    carried.tidy()
    uploads = UploadRoutes(carried, application.store.get_job, newest_of(application), application.loop.report, secret)
    return make_given([*downloads.routes(), *uploads.routes(), *sampled.routes()], tracked(home, application, secret))


def entitling(
    application: Application, rights: AccessReviewer, jobs: Informer[CustomObject], services: Informer[CustomObject]
) -> Entitled:
    """Return a function that resolves versions for pods.

    A pod may read only versions that the document of its run or service names and that its user may read.
    """

    async def entitled(speaker: TokenCaller, kind: str, reference: str) -> str:
        namespace, name = speaker.namespace, speaker.run.removeprefix(SERVICE)
        is_service = speaker.run.startswith(SERVICE)
        custom = (services if is_service else jobs).get(f"{namespace}/{name}")
        caller = vouched(custom.metadata.annotations if custom is not None else {}, namespace)
        return await rights.entitled(caller, namespace, _inputs(application, speaker), kind, reference)

    return entitled


def following(rights: AccessReviewer, services: Informer[CustomObject]) -> Callable[[ServiceState], Awaitable[None]]:
    """Return a check that raises `DeniedError` if the user of a service may not read the model that it follows."""

    async def check(service: ServiceState) -> None:
        custom = services.get(str(service.key))
        caller = vouched(custom.metadata.annotations if custom is not None else {}, service.key.namespace)
        if service.spec.model:
            await rights.check_reads(caller, service.key.namespace, {"model": f"{MODEL}{service.spec.model}"})

    return check


def _inputs(application: Application, speaker: TokenCaller) -> dict[str, str]:
    """Return the inputs of a run; of a service, the models of its revisions."""
    if speaker.run.startswith(SERVICE):
        revisions = [revision for service in _services(application, speaker) for revision in service.revisions]
        return {str(revision.number): f"{MODEL}{revision.model}" for revision in revisions if revision.model}
    job = application.store.get_job(JobKey(speaker.namespace, speaker.run))
    return dict(job.spec.data) if job is not None else {}


def _owners(application: Application, speaker: TokenCaller) -> list[str]:
    """Return the possible uploaders of the code of a run or a service."""
    if speaker.run.startswith(SERVICE):
        users = {revision.origin.user for service in _services(application, speaker) for revision in service.revisions}
    else:
        job = application.store.get_job(JobKey(speaker.namespace, speaker.run))
        users = {job.origin.user} if job is not None else set()
    return [namespace_owner(speaker.namespace), *(user_owner(user) for user in sorted(users) if user)]


def _services(application: Application, speaker: TokenCaller) -> list[ServiceState]:
    key = ServiceKey(speaker.namespace, speaker.run.removeprefix(SERVICE))
    return [record.service for record in application.store.services() if record.service.key == key]


def samples_of(
    application: Application,
    samples: UploadedSampleFolder,
    replica_in: Callable[[ServiceKey, str], tuple[JobKey, bool]],
    secret: bytes,
) -> SampleUploadRoutes:
    """Build the handler for samples of services."""

    def replica(speaker: TokenCaller, pod: str) -> tuple[JobState, bool]:
        key = ServiceKey(speaker.namespace, speaker.run.removeprefix(SERVICE))
        run, ends = replica_in(key, pod) if speaker.run.startswith(SERVICE) else (None, False)
        job = application.store.get_job(run) if run is not None else None
        if job is None or job.labels.get(SERVICE_LABEL) != key.name:
            message = f"{speaker.namespace}/{speaker.run} has no replica in {pod}"
            raise NotFoundError(message, fix="use the token that the service's pods were given")
        return job, ends

    def came(job: JobState, last: bool) -> None:
        if application.samples is not None:
            application.samples.came(job, last=last)

    samples.tidy()
    return SampleUploadRoutes(samples, replica, came, secret)


def plain_of_older(app: ASGIApp, application: Application, authority: CertificateAuthority | None, secret: bytes) -> ASGIApp:
    """Wrap the application so that plain HTTP is accepted only for runs and services from before TLS; without TLS, for all."""
    if authority is None:
        return app
    since = authority.since

    def older(speaker: TokenCaller) -> bool:
        if speaker.run.startswith(SERVICE):
            key = ServiceKey(speaker.namespace, speaker.run.removeprefix(SERVICE))
            return any(record.service.key == key and record.service.created < since for record in application.store.services())
        job = application.store.get_job(JobKey(speaker.namespace, speaker.run))
        return job is not None and job.created < since

    return PlainHttpGate(app, secret, older)


def newest_of(application: Application) -> Callable[[JobState, str], int]:
    """Return a function for the newest attempt of a task of a run."""
    return lambda job, task: max((item.key.attempt for item in application.tasks(job) if item.key.task == task), default=0)


def output_place(carried: RunUploads, runs: Path, key: JobKey, name: str) -> str:
    """Return the folder of a run's output: uploaded by its pods, else on the volume that they share."""
    uploaded = carried.output(key.namespace, key.name, name)
    return str(uploaded if uploaded.is_dir() else runs / key.namespace / key.name / "outputs" / name)


def code_of(application: Application, speaker: TokenCaller) -> tuple[str, ...]:
    """Return the code digests of a run, or of each revision of a service, newest first.

    None if the code is not in the blob store.
    """
    if speaker.run.startswith(SERVICE):
        services = _services(application, speaker)
        digests = [revision.origin.code_digest for service in services for revision in reversed(service.revisions)]
    else:
        job = application.store.get_job(JobKey(speaker.namespace, speaker.run))
        digests = [job.origin.code_digest] if job is not None else []
    return tuple(digest for digest in digests if digest)
