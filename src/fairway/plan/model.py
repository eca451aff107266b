"""Decisions about model versions: the facts and lineage recorded for a run's version, and which versions to delete."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType

from fairway.spec.job import JobSpec
from fairway.state.job import JobState
from fairway.state.metric import best_values
from fairway.state.model import ModelFacts, ModelLineage, ModelVersion
from fairway.units.role import leader

OUTPUT = "model"
"""`outputs: {model: mnist}`: when the run has succeeded, the content of this output becomes a version of `mnist`."""


DATASET_OUTPUT = "dataset"
"""`outputs: {dataset: scored}`: when the run has succeeded, the content of this output becomes a version of the dataset."""


def leaves_something(spec: JobSpec) -> bool:
    """Return whether a run's outputs are to be registered as a version of a model or dataset."""
    return OUTPUT in spec.outputs or DATASET_OUTPUT in spec.outputs


def registered_name(spec: JobSpec) -> str:
    """Return the name under which the run's model is registered; empty when its document names none."""
    return spec.outputs.get(OUTPUT, "")


def facts_of(job: JobState, data: Mapping[str, str], logged: Mapping[str, str] = MappingProxyType({})) -> ModelFacts:
    """Return the facts of a model version that follow from the run that produced it.

    `data` are the run's inputs, each resolved to a version; `logged` are the parameters that its program reported.
    """
    metrics = {name: value for name, value in job.progress.last.items() if math.isfinite(value)}
    best = best_values(job.progress.summaries, job.spec.stop.goals)
    return ModelFacts(metrics=metrics, best=best, lineage=lineage_of(job, data, logged))


def lineage_of(job: JobState, data: Mapping[str, str], logged: Mapping[str, str] = MappingProxyType({})) -> ModelLineage:
    """Return run, code, inputs, environment and parameters. None of them contains the value of a secret."""
    requested, git = job.spec.environment, job.spec.code.git
    environment = {
        "python": requested.python or ("" if requested.image else job.origin.interpreter),
        "requirements": requested.requirements,
        "image": requested.image,
    }
    return ModelLineage(
        run=str(job.key),
        code=job.origin.code_digest or (f"{git.url}@{git.ref}" if git is not None else ""),
        data=dict(data),
        environment={name: value for name, value in environment.items() if value},
        parameters={**_parameters(job.spec), **logged},
    )


def must_stay(version: ModelVersion, used_by: str) -> str:
    """Return why a version must not be deleted; empty when it may be."""
    reasons = [f"it is {alias}" for alias in version.aliases]
    if used_by:
        reasons.append(f"it is served by {used_by}")
    return " and ".join(reasons)


def superfluous(versions: Sequence[ModelVersion], keep: int, staying: Iterable[int]) -> list[ModelVersion]:
    """Return the versions to delete so that the newest `keep` remain, oldest first, without the versions in `staying`."""
    newest = sorted(versions, key=lambda version: version.version)
    protected = set(staying)
    return [version for version in newest[: max(0, len(newest) - keep)] if version.version not in protected]


def _parameters(spec: JobSpec) -> dict[str, str]:
    """Return the environment variables of the document and the `--name value` options of the leader's command line."""
    role = spec.roles[leader(tuple(spec.roles)).rpartition("-")[0]]
    parameters = {**spec.env, **role.env}
    words = list(role.command)
    for index, word in enumerate(words):
        name, separator, value = word.lstrip("-").partition("=")
        if not word.startswith("--") or not name:
            continue
        following = words[index + 1] if index + 1 < len(words) else ""
        if separator:
            parameters[name] = value
        elif following and not following.startswith("--"):
            parameters[name] = following
    return parameters
