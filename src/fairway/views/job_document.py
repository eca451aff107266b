"""The document of a run in the flat spelling, with secrets masked."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from fairway.spec.job import DocumentMetadata, JobSpec, TrainingJob
from fairway.spec.text.writer import flat_data
from fairway.state.job import JobState

MASK = "********"

_SECRET = re.compile(
    r"(^|_)(TOKEN|SECRET|PASSWORD|PASSWD|PASSPHRASE|CREDENTIALS?|APIKEY|(API|ACCESS|PRIVATE|AUTH)_KEY)(_|$)", re.I
)


def flat_spec(job: JobState) -> dict[str, Any]:
    """Return the requested document without defaults, with values that look secret masked."""
    metadata = DocumentMetadata(name=job.series, namespace=job.key.namespace, labels=job.labels)
    return flat_data(TrainingJob(metadata=metadata, spec=_masked(job.spec)))


def looks_secret(variable: str) -> bool:
    """Whether a variable's name suggests that its value is secret: `HF_TOKEN`, `AWS_SECRET_ACCESS_KEY`."""
    return _SECRET.search(variable) is not None


def _masked(spec: JobSpec) -> JobSpec:
    environments: list[Mapping[str, str]] = [spec.env, *(role.env for role in spec.roles.values())]
    if not any(looks_secret(name) for env in environments for name in env):
        return spec
    roles = {name: role.model_copy(update={"env": _mask(role.env)}) for name, role in spec.roles.items()}
    return spec.model_copy(update={"env": _mask(spec.env), "roles": roles})


def _mask(env: Mapping[str, str]) -> dict[str, str]:
    return {name: MASK if looks_secret(name) else value for name, value in env.items()}
