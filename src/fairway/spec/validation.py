"""Rules for documents beyond the types of their fields: pure functions that return a document's problems."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from pydantic.alias_generators import to_camel, to_snake

from fairway.errors import DocumentMistake, SpecError
from fairway.spec import macro
from fairway.spec.job import ContainerUse, JobSpec, SuccessPolicy, TaskRole
from fairway.spec.kind import Document
from fairway.spec.queue import QueueSpec, ResourceQuota
from fairway.spec.resource import ResourceAmounts, gpu_ask
from fairway.spec.service import RolloutStrategy, ServiceProtocol, ServiceSpec
from fairway.units import quantity, suggestion

TOTAL_REPLICAS = 10_000

_LABEL = re.compile(r"([A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?)?")
_LABEL_KEY = re.compile(r"([a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")
_OWN_NAMES = ("cpu", "memory", "gpu", "runs")
_VENDOR_GPUS = ("nvidia.com/gpu", "amd.com/gpu")


@dataclass(frozen=True, slots=True)
class SpecProblem:
    """A problem in a document whose fields have the right types."""

    at: tuple[str | int, ...]
    """Path of the field, in the Kubernetes spelling."""
    message: str
    fix: str = ""
    is_of_whole: bool = False
    """Reported only when the document has no other mistake, which could be the cause of this problem."""


def problems(document: Document) -> list[SpecProblem]:
    """Return all problems of the document."""
    result = list(_labels(document))
    if isinstance(document.spec, JobSpec):
        result.extend(_job_problems(document.spec))
    else:
        result.extend(
            _queue_problems(document.spec) if isinstance(document.spec, QueueSpec) else _service_problems(document.spec)
        )
    result.extend(_no_nul(document.model_dump(mode="json", by_alias=True, exclude_defaults=True), ()))
    return result


def _job_problems(spec: JobSpec) -> Iterator[SpecProblem]:
    for rule in _RULES:
        yield from rule(spec)
    for name, role in spec.roles.items():
        for role_rule in _ROLE_RULES:
            yield from role_rule(spec, role, ("spec", "roles", name))


def refuse_problems(document: Document) -> None:
    """Raise `SpecError` if the document has problems; for documents made by a program."""
    remaining = problems(document)
    if remaining:
        raise SpecError([DocumentMistake(problem.message, path=_dotted(problem.at), fix=problem.fix) for problem in remaining])


def _dotted(at: tuple[str | int, ...]) -> str:
    return ".".join(to_snake(step) if isinstance(step, str) else str(step) for step in at if step not in ("spec", "metadata"))


def _labels(document: Document) -> Iterator[SpecProblem]:
    for group in ("labels", "annotations"):
        for name, value in getattr(document.metadata, group).items():
            at = ("metadata", group, name)
            if not _LABEL_KEY.fullmatch(name):
                yield SpecProblem(
                    at,
                    f"has a key that is not a valid label name: {name[:80]!r}",
                    "use at most 63 letters, digits, dots, dashes and underscores, optionally after a domain and a slash",
                )
            elif group == "labels" and not _LABEL.fullmatch(value):
                yield SpecProblem(
                    at,
                    "is not a valid label value",
                    "use at most 63 letters, digits, dots, dashes and underscores; or make it an annotation",
                )


def _success(spec: JobSpec) -> Iterator[SpecProblem]:
    required_roles = {SuccessPolicy.CHIEF: ("chief", "master"), SuccessPolicy.LAUNCHER: ("launcher",)}.get(spec.success, ())
    if required_roles and not any(role in spec.roles for role in required_roles):
        yield SpecProblem(
            ("spec", "success"),
            f"needs a role `{required_roles[0]}`, which is not defined",
            f"add it to the roles, or choose {SuccessPolicy.AUTO}",
        )


def _secrets(spec: JobSpec | ServiceSpec) -> Iterator[SpecProblem]:
    for index, name in enumerate(spec.secrets):
        if name in spec.secrets[:index]:
            yield SpecProblem(("spec", "secrets", index), "is listed twice", "keep one of them")
        elif name in spec.env:
            yield SpecProblem(("spec", "secrets", index), "is also a variable in `env`", "keep one of them")


def _references(spec: JobSpec) -> Iterator[SpecProblem]:
    for group in ("data", "outputs"):
        for name, value in getattr(spec, group).items():
            if not value.strip():
                fix = "write a dataset such as mnist@3, a path or a URI" if group == "data" else "write the name to keep it under"
                yield SpecProblem(("spec", group, name), "is empty", fix)
    yield from _sources(spec)


def _sources(spec: JobSpec | ServiceSpec) -> Iterator[SpecProblem]:
    if "://" in spec.code.path:
        yield SpecProblem(("spec", "code", "path"), "is not a folder", "for a repository write `code: {git: URL}`")
    if spec.environment.container is ContainerUse.ALWAYS and not spec.environment.image:
        yield SpecProblem(("spec", "environment", "container"), "needs an image", "add `image`, or remove it")


def _total(spec: JobSpec) -> Iterator[SpecProblem]:
    total = sum(role.replicas.max for role in spec.roles.values())
    if total > TOTAL_REPLICAS:
        yield SpecProblem(
            ("spec", "roles"),
            f"have {total:,} replicas in total, more than the limit of {TOTAL_REPLICAS:,}",
            "use fewer replicas, or several jobs",
        )


def _job_macros(spec: JobSpec) -> Iterator[SpecProblem]:
    for name, value in spec.env.items():
        yield from _unknown_macros(spec, value, ("spec", "env", name))


def _role_macros(spec: JobSpec, role: TaskRole, at: tuple[str, ...]) -> Iterator[SpecProblem]:
    for index, word in enumerate(role.command):
        yield from _unknown_macros(spec, word, (*at, "command", index))
    for name, value in role.env.items():
        yield from _unknown_macros(spec, value, (*at, "env", name))


def _unknown_macros(spec: JobSpec, text: str, at: tuple[str | int, ...]) -> Iterator[SpecProblem]:
    if "{{" not in text:
        return
    known_names = macro.known(spec.roles, spec.data, spec.outputs)
    for name in macro.find(text):
        if name not in known_names:
            fix = suggestion.did_you_mean(name, known_names) or "for the literal text write {{{{" + name + "}}}}"
            yield SpecProblem(at, f"uses the macro {{{{{name}}}}}, which does not exist", fix)


def _role_secrets(spec: JobSpec, role: TaskRole, at: tuple[str, ...]) -> Iterator[SpecProblem]:
    for name in spec.secrets:
        if name in role.env:
            yield SpecProblem((*at, "env", name), "is a secret too", "keep one of them")


def _role_resources(_: JobSpec | ServiceSpec, role: TaskRole | ServiceSpec, at: tuple[str, ...]) -> Iterator[SpecProblem]:
    for group in ("resources", "limits"):
        resources: ResourceAmounts = getattr(role, group)
        if resources.gpu is not None and (count := quantity.number(resources.gpu)) > 1 and count != int(count):
            yield SpecProblem(
                (*at, group, "gpu"), "is more than one GPU and not a whole number", f"write {int(count)} or {int(count) + 1}"
            )
        yield from _vendor_gpus(resources.other, (*at, group))
        yield from _gpu_share(resources, (*at, group))
    for name, parse in (("cpu", quantity.number), ("memory", quantity.byte_count), ("gpu", quantity.number)):
        requested, limit = getattr(role.resources, name), getattr(role.limits, name)
        if requested is not None and limit is not None and parse(limit) < parse(requested):
            yield SpecProblem(
                (*at, "limits", name), f"is less than the {requested} that `resources` requests", f"write {requested} or more"
            )


def _vendor_gpus(other: dict[str, int], at: tuple[str, ...]) -> Iterator[SpecProblem]:
    for name in other:
        if name in _VENDOR_GPUS:
            yield SpecProblem((*at, "other", name), "is the Kubernetes name for GPUs", "write `gpu`; it works everywhere")


def _gpu_share(given: ResourceAmounts, at: tuple[str, ...]) -> Iterator[SpecProblem]:
    """Check that the share is given once, is a fraction of a GPU, and that `gpu` is not 0."""
    count = quantity.number(given.gpu) if given.gpu is not None else None
    if given.gpu_share is not None:
        if not 0 < quantity.number(given.gpu_share) <= 1:
            yield SpecProblem(
                (*at, "gpuShare"), "is not a valid share of a GPU", "write more than 0 and at most 1, for example 0.25"
            )
        if count is not None and 0 < count < 1:
            fix = f"write `gpu: 1`, or remove `gpu_share` to get {given.gpu} of one GPU"
            yield SpecProblem((*at, "gpu"), "already requests a share of a GPU, and so does `gpu_share`", fix)
    for name, value in (("gpu_share", given.gpu_share), ("gpu_memory", given.gpu_memory)):
        if count == 0 and value is not None:
            yield SpecProblem((*at, to_camel(name)), "needs a GPU, but `gpu` is 0", f"remove it, or remove `gpu: {given.gpu}`")


def _role_placement(_: JobSpec | ServiceSpec, role: TaskRole | ServiceSpec, at: tuple[str, ...]) -> Iterator[SpecProblem]:
    placement = role.placement
    if placement.together and placement.apart:
        yield SpecProblem((*at, "placement"), "sets both `together` and `apart`", "keep one of them")
    if placement.alone and not gpu_ask(role.resources).count:
        yield SpecProblem((*at, "placement", "alone"), "applies to GPUs, but no GPU is requested", "request a GPU, or remove it")
    for index, taint in enumerate(placement.tolerations):
        if not taint.strip():
            yield SpecProblem((*at, "placement", "tolerations", index), "is empty", "write the name of a taint, or * for all")


def _protocol(spec: ServiceSpec) -> Iterator[SpecProblem]:
    if spec.model:
        message = f"is {spec.protocol}, but replicas of a model always answer HTTP/1.1, HTTP/2 and gRPC"
        yield SpecProblem(("spec", "protocol"), message, "remove it")
    elif spec.protocol is ServiceProtocol.GRPC and spec.ready:
        message = "is a path, but a gRPC server is checked with grpc.health.v1.Health/Check"
        yield SpecProblem(("spec", "ready"), message, "remove it, or use protocol: http2")


def _service_problems(spec: ServiceSpec) -> Iterator[SpecProblem]:
    if not spec.model and not spec.command:
        yield SpecProblem(("spec",), "has neither a model nor a command", "add a model or a command", is_of_whole=True)
    if spec.model and spec.command:
        yield SpecProblem(("spec", "command"), "is set together with a model", "keep one of them")
    if spec.protocol is not ServiceProtocol.HTTP:
        yield from _protocol(spec)
    yield from _secrets(spec)
    yield from _sources(spec)
    yield from _role_resources(spec, spec, ("spec",))
    yield from _role_placement(spec, spec, ("spec",))
    if spec.follow and not spec.model:
        yield SpecProblem(("spec", "follow"), "needs a model to follow, but no model is set", "remove it, or set `model`")
    if spec.follow and spec.model.partition("@")[2].isdecimal():
        name = spec.model.partition("@")[0]
        yield SpecProblem(
            ("spec", "follow"),
            f"needs an alias to follow, but {spec.model} is a fixed version",
            f"write `model: {name}@champion`",
        )
    if not quantity.percent(spec.scaling.utilisation):
        yield SpecProblem(("spec", "scaling", "utilisation"), "must be more than 0%", "write for example 75%")
    guard = spec.rollout.guard
    if guard.metric and spec.rollout.strategy is RolloutStrategy.SHADOW:
        message = "compares answers that users saw, but users never see the answers of a shadow release"
        yield SpecProblem(("spec", "rollout", "guard", "metric"), message, "use strategy: ab, or remove it")
    if guard.outputs and spec.rollout.strategy is not RolloutStrategy.SHADOW:
        message = f"compares answers of both versions to the same request, but {spec.rollout.strategy} sends it to one of them"
        fix = "use strategy: shadow, or remove it; guard.non_finite and guard.metric judge the outputs of other releases"
        yield SpecProblem(("spec", "rollout", "guard", "outputs"), message, fix)


def _queue_problems(spec: QueueSpec) -> Iterator[SpecProblem]:
    if not spec.members:
        yield SpecProblem(
            ("spec", "members"), "is empty", "add at least one, or leave it out for all users; to close a queue, delete it"
        )
    if quantity.number(spec.weight) <= 0:
        yield SpecProblem(
            ("spec", "weight"), "is not a valid weight", "write more than 0, for example 1; to close a queue, delete it"
        )
    for amounts, at in ((spec.quota, ("spec", "quota")), (spec.limits.per_user, ("spec", "limits", "perUser"))):
        yield from _vendor_gpus(amounts.other, at)
        yield from _gpu_type_over_all(amounts, at)
        for name in amounts.other:
            if name in _OWN_NAMES or name.startswith("gpu:"):
                yield SpecProblem(
                    (*at, "other", name), "does not belong in `other`", f"write `{name.partition(':')[0]}` outside `other`"
                )
    limits, defaults = spec.limits, spec.defaults
    for group, timeout in (("limits", limits.timeout), ("defaults", defaults.timeout)):
        if timeout is not None and not quantity.seconds(timeout):
            yield SpecProblem(("spec", group, "timeout"), "must be more than 0", "write for example 72h, or leave it out")
    if limits.timeout and defaults.timeout and quantity.seconds(defaults.timeout) > quantity.seconds(limits.timeout):
        message = f"is longer than the {limits.timeout} that `limits` allows"
        yield SpecProblem(("spec", "defaults", "timeout"), message, f"write {limits.timeout} or less")
    if limits.priority is not None and defaults.priority is not None and defaults.priority > limits.priority:
        message = f"is higher than the {limits.priority} that `limits` allows"
        yield SpecProblem(("spec", "defaults", "priority"), message, f"write {limits.priority} or less")


def _gpu_type_over_all(given: ResourceQuota, at: tuple[str, ...]) -> Iterator[SpecProblem]:
    for kind, count in given.gpu_types.items():
        if given.gpu is not None and quantity.number(count) > quantity.number(given.gpu):
            message = f"is more than the {given.gpu} GPUs of any type"
            yield SpecProblem((*at, "gpuTypes", kind), message, f"write {given.gpu} or less, or more for `gpu`")


def _no_nul(data: object, at: tuple[str | int, ...]) -> Iterator[SpecProblem]:
    """Reject text with NUL: no path, variable or argument can contain it."""
    if isinstance(data, str) and "\0" in data:
        yield SpecProblem(at, "contains a NUL character", "remove it")
    elif isinstance(data, dict):
        for name, value in data.items():
            yield from _no_nul(value, (*at, name))
    elif isinstance(data, list):
        for index, value in enumerate(data):
            yield from _no_nul(value, (*at, index))


_RULES: tuple[Callable[[JobSpec], Iterator[SpecProblem]], ...] = (_success, _secrets, _references, _total, _job_macros)
_ROLE_RULES: tuple[Callable[[JobSpec, TaskRole, tuple[str, ...]], Iterator[SpecProblem]], ...] = (
    _role_macros,
    _role_secrets,
    _role_resources,
    _role_placement,
)
