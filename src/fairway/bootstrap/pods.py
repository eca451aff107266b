"""What the operator gives to pods, made of the registry and the record."""

from __future__ import annotations

from pathlib import Path

from starlette.types import ASGIApp

from fairway.api.given import Given, make_given
from fairway.app.application import Application
from fairway.app.tracking import Speaker
from fairway.engines.kubernetes.marks import BLOB
from fairway.registry.dataset import Datasets
from fairway.registry.handing import Handing
from fairway.registry.model import Models
from fairway.registry.remote import open_blobs
from fairway.state.job import JobKey
from fairway.state.service import ServiceKey

SERVICE = "service:"
"""Before the name of a service, where a token names a run."""


def given_to_pods(home: Path, application: Application, secret: bytes) -> ASGIApp:
    """The routes by which pods get code, models and datasets."""
    blobs = open_blobs(home / "blobs", "")
    contents = Handing(blobs, Models(home, blobs), Datasets(home, blobs))
    return make_given(Given(contents, lambda speaker: code_of(application, speaker), secret))


def code_of(application: Application, speaker: Speaker) -> tuple[str, ...]:
    """The digests of the code of a run, or of each revision of a service, the newest first; none: it has none in the blobs."""
    if speaker.run.startswith(SERVICE):
        key = ServiceKey(speaker.namespace, speaker.run.removeprefix(SERVICE))
        services = [record.service for record in application.store.services() if record.service.key == key]
        found = [revision.origin.code_digest for service in services for revision in reversed(service.revisions)]
    else:
        job = application.store.get_job(JobKey(speaker.namespace, speaker.run))
        found = [job.origin.code_digest] if job is not None else []
    return tuple(digest.removeprefix(BLOB) for digest in found if digest)
