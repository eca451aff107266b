"""What the operator gives to pods, made of the registry and the record."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from starlette.types import ASGIApp

from fairway.api.brought import Brought
from fairway.api.given import Given, make_given
from fairway.api.plain import OlderPlain
from fairway.api.sampled import Sampled
from fairway.app.application import Application
from fairway.app.tracking import Speaker
from fairway.bootstrap.tracked import tracked
from fairway.engines.kubernetes.authority import Authority
from fairway.engines.kubernetes.operator.manifests.data import MODEL, Find, Version
from fairway.errors import NotFoundError
from fairway.plan.service.replica import SERVICE_LABEL
from fairway.registry.carried import Carried
from fairway.registry.dataset import Datasets
from fairway.registry.handing import Handing
from fairway.registry.model import Models
from fairway.registry.remote import open_blobs
from fairway.serving.samples import ReceivedSamples
from fairway.state.job import Job, JobKey
from fairway.state.service import ServiceKey

SERVICE = "service:"
"""Before the name of a service, where a token names a run."""


def given_to_pods(home: Path, application: Application, carried: Carried, sampled: Sampled, secret: bytes) -> ASGIApp:
    """The routes by which pods get code, models and datasets, bring checkpoints, outputs and samples, and speak MLflow."""
    blobs = open_blobs(home / "blobs", "")
    contents = Handing(blobs, Models(home, blobs), Datasets(home, blobs))
    given = Given(contents, lambda speaker: code_of(application, speaker), secret)
    carried.tidy()
    brought = Brought(carried, application.store.get_job, newest_of(application), application.loop.report, secret)
    return make_given([*given.routes(), *brought.routes(), *sampled.routes()], tracked(home, application, secret))


def samples_of(
    application: Application,
    samples: ReceivedSamples,
    replica_in: Callable[[ServiceKey, str], tuple[JobKey, bool]],
    secret: bytes,
) -> Sampled:
    """Takes the samples of services."""

    def replica(speaker: Speaker, pod: str) -> tuple[Job, bool]:
        key = ServiceKey(speaker.namespace, speaker.run.removeprefix(SERVICE))
        run, going = replica_in(key, pod) if speaker.run.startswith(SERVICE) else (None, False)
        job = application.store.get_job(run) if run is not None else None
        if job is None or job.labels.get(SERVICE_LABEL) != key.name:
            message = f"{speaker.namespace}/{speaker.run} has no replica in {pod}"
            raise NotFoundError(message, fix="use the token that the service's pods were given")
        return job, going

    def came(job: Job, last: bool) -> None:
        if application.samples is not None:
            application.samples.came(job, last=last)

    samples.tidy()
    return Sampled(samples, replica, came, secret)


def plain_of_older(app: ASGIApp, application: Application, authority: Authority | None, secret: bytes) -> ASGIApp:
    """The same, and plain HTTP for those alone whose pods may have been made before there was TLS; all where there is none."""
    if authority is None:
        return app
    since = authority.since

    def older(speaker: Speaker) -> bool:
        if speaker.run.startswith(SERVICE):
            key = ServiceKey(speaker.namespace, speaker.run.removeprefix(SERVICE))
            return any(one.service.key == key and one.service.created < since for one in application.store.services())
        job = application.store.get_job(JobKey(speaker.namespace, speaker.run))
        return job is not None and job.created < since

    return OlderPlain(app, secret, older)


def newest_of(application: Application) -> Callable[[Job, str], int]:
    """Knows the newest attempt of each task of a run."""
    return lambda job, task: max((one.key.attempt for one in application.tasks(job) if one.key.task == task), default=0)


def output_place(carried: Carried, runs: Path, key: JobKey, name: str) -> str:
    """Where an output of a run lies: brought here by its pods, else on the volume that they share."""
    brought = carried.output(key.namespace, key.name, name)
    return str(brought if brought.is_dir() else runs / key.namespace / key.name / "outputs" / name)


def code_of(application: Application, speaker: Speaker) -> tuple[str, ...]:
    """The digests of the code of a run, or of each revision of a service, the newest first; none: it has none in the blobs."""
    if speaker.run.startswith(SERVICE):
        key = ServiceKey(speaker.namespace, speaker.run.removeprefix(SERVICE))
        services = [record.service for record in application.store.services() if record.service.key == key]
        found = [revision.origin.code_digest for service in services for revision in reversed(service.revisions)]
    else:
        job = application.store.get_job(JobKey(speaker.namespace, speaker.run))
        found = [job.origin.code_digest] if job is not None else []
    return tuple(digest for digest in found if digest)


def finder(home: Path) -> Find:
    """Looks up what the inputs of runs name."""
    blobs = open_blobs(home / "blobs", "")
    models, datasets = Models(home, blobs), Datasets(home, blobs)

    def find(reference: str) -> Version:
        if reference.startswith(MODEL):
            return Version(f"/v1/given/models/{models.get(reference.removeprefix(MODEL))}")
        version = datasets.get(reference)
        inner = datasets.files(version)[0].path if version.is_file and not version.reference else ""
        return Version(f"/v1/given/datasets/{version}", inner, version.reference)

    return find
