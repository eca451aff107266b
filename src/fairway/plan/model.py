"""What is decided about models: what a run's version is said to come from, what stays, and what may go."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType

from fairway.spec.job import JobSpec
from fairway.state.job import Job
from fairway.state.metric import best_values
from fairway.state.model import Lineage, ModelFacts, ModelVersion
from fairway.units.roles import leader

OUTPUT = "model"
"""`outputs: {model: mnist}`: what lies in this output when the run has succeeded becomes a version of `mnist`."""


DATASET_OUTPUT = "dataset"
"""`outputs: {dataset: scored}`: what lies in this output when the run has succeeded becomes a version of the dataset."""


def leaves_something(spec: JobSpec) -> bool:
    """Whether a run's document says that a version of something is made of what it leaves behind."""
    return OUTPUT in spec.outputs or DATASET_OUTPUT in spec.outputs


def registered_name(spec: JobSpec) -> str:
    """The model that a run leaves behind; empty when its document names none."""
    return spec.outputs.get(OUTPUT, "")


def facts_of(job: Job, data: Mapping[str, str], logged: Mapping[str, str] = MappingProxyType({})) -> ModelFacts:
    """What is known of a model because a run made it.

    `data` are the run's inputs, each as the version that it meant; `logged` the parameters that its program told by itself.
    """
    metrics = {name: value for name, value in job.progress.last.items() if math.isfinite(value)}
    best = best_values(job.progress.summaries, job.spec.stop.goals)
    return ModelFacts(metrics=metrics, best=best, lineage=lineage_of(job, data, logged))


def lineage_of(job: Job, data: Mapping[str, str], logged: Mapping[str, str] = MappingProxyType({})) -> Lineage:
    """Run, code, inputs, environment and parameters. Values of secrets are in none of them."""
    asked, git = job.spec.environment, job.spec.code.git
    environment = {
        "python": asked.python or ("" if asked.image else job.origin.interpreter),
        "requirements": asked.requirements,
        "image": asked.image,
    }
    return Lineage(
        run=str(job.key),
        code=job.origin.code_digest or (f"{git.url}@{git.ref}" if git is not None else ""),
        data=dict(data),
        environment={name: value for name, value in environment.items() if value},
        parameters={**_parameters(job.spec), **logged},
    )


def must_stay(version: ModelVersion, used_by: str) -> str:
    """Why a version must not be deleted; empty when it may."""
    reasons = [f"it is {alias}" for alias in version.aliases]
    if used_by:
        reasons.append(f"it is served by {used_by}")
    return " and ".join(reasons)


def superfluous(versions: Sequence[ModelVersion], keep: int, staying: Iterable[int]) -> list[ModelVersion]:
    """The versions to delete so that the newest `keep` are left, oldest first; those that must stay are never among them."""
    newest = sorted(versions, key=lambda version: version.version)
    fixed = set(staying)
    return [version for version in newest[: max(0, len(newest) - keep)] if version.version not in fixed]


def _parameters(spec: JobSpec) -> dict[str, str]:
    """Variables of the document, and what the leader's command line gives as `--name value`."""
    role = spec.roles[leader(tuple(spec.roles)).rpartition("-")[0]]
    found = {**spec.env, **role.env}
    words = list(role.command)
    for place, word in enumerate(words):
        name, mark, value = word.lstrip("-").partition("=")
        if not word.startswith("--") or not name:
            continue
        following = words[place + 1] if place + 1 < len(words) else ""
        if mark:
            found[name] = value
        elif following and not following.startswith("--"):
            found[name] = following
    return found
