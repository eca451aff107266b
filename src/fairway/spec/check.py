"""What a document must keep to beyond the types of its fields. Pure functions from a document to its problems."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from pydantic.alias_generators import to_camel, to_snake

from fairway.errors import Mistake, SpecError
from fairway.spec import macros
from fairway.spec.job import Container, JobSpec, Role, SuccessPolicy
from fairway.spec.kinds import Document
from fairway.spec.queue import Allotment, QueueSpec
from fairway.spec.resources import Resources, gpu_ask
from fairway.spec.service import RolloutStrategy, ServiceProtocol, ServiceSpec
from fairway.units import quantity, suggest

TOTAL_REPLICAS = 10_000

_LABEL = re.compile(r"([A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?)?")
_LABEL_KEY = re.compile(r"([a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")
_OWN_NAMES = ("cpu", "memory", "gpu", "runs")
_VENDOR_GPUS = ("nvidia.com/gpu", "amd.com/gpu")


@dataclass(frozen=True, slots=True)
class Problem:
    """Something wrong in a document that has the right types."""

    at: tuple[str | int, ...]
    """Where, in the Kubernetes spelling."""
    message: str
    fix: str = ""
    is_of_whole: bool = False
    """Said only of a document that has no other mistake, which could be its cause."""


def problems(document: Document) -> list[Problem]:
    """Everything that is wrong with it."""
    found = list(_labels(document))
    if isinstance(document.spec, JobSpec):
        found.extend(_job_problems(document.spec))
    else:
        found.extend(_queue_problems(document.spec) if isinstance(document.spec, QueueSpec) else _service_problems(document.spec))
    found.extend(_no_nul(document.model_dump(mode="json", by_alias=True, exclude_defaults=True), ()))
    return found


def _job_problems(spec: JobSpec) -> Iterator[Problem]:
    for rule in _RULES:
        yield from rule(spec)
    for name, role in spec.roles.items():
        for role_rule in _ROLE_RULES:
            yield from role_rule(spec, role, ("spec", "roles", name))


def refuse_problems(document: Document) -> None:
    """Raises `SpecError` when anything is wrong; for documents that were made by a program."""
    found = problems(document)
    if found:
        raise SpecError([Mistake(one.message, path=_dotted(one.at), fix=one.fix) for one in found])


def _dotted(at: tuple[str | int, ...]) -> str:
    return ".".join(to_snake(step) if isinstance(step, str) else str(step) for step in at if step not in ("spec", "metadata"))


def _labels(document: Document) -> Iterator[Problem]:
    for group in ("labels", "annotations"):
        for name, value in getattr(document.metadata, group).items():
            at = ("metadata", group, name)
            if not _LABEL_KEY.fullmatch(name):
                yield Problem(
                    at,
                    f"has a key that is no label name: {name[:80]!r}",
                    "at most 63 letters, digits, dots, dashes and underscores, perhaps after a domain and a slash",
                )
            elif group == "labels" and not _LABEL.fullmatch(value):
                yield Problem(
                    at, "is no label value", "at most 63 letters, digits, dots, dashes and underscores; or make it an annotation"
                )


def _success(spec: JobSpec) -> Iterator[Problem]:
    wanted = {SuccessPolicy.CHIEF: ("chief", "master"), SuccessPolicy.LAUNCHER: ("launcher",)}.get(spec.success, ())
    if wanted and not any(role in spec.roles for role in wanted):
        yield Problem(
            ("spec", "success"),
            f"needs a role `{wanted[0]}`, and there is none",
            f"add it to the roles, or choose {SuccessPolicy.AUTO}",
        )


def _secrets(spec: JobSpec | ServiceSpec) -> Iterator[Problem]:
    for index, name in enumerate(spec.secrets):
        if name in spec.secrets[:index]:
            yield Problem(("spec", "secrets", index), "is there twice", "keep one of them")
        elif name in spec.env:
            yield Problem(("spec", "secrets", index), "is a variable in `env` too", "keep one of them")


def _references(spec: JobSpec) -> Iterator[Problem]:
    for group in ("data", "outputs"):
        for name, value in getattr(spec, group).items():
            if not value.strip():
                fix = "write a dataset such as mnist@3, a path or a URI" if group == "data" else "write the name to keep it under"
                yield Problem(("spec", group, name), "is empty", fix)
    yield from _sources(spec)


def _sources(spec: JobSpec | ServiceSpec) -> Iterator[Problem]:
    if "://" in spec.code.path:
        yield Problem(("spec", "code", "path"), "is no folder", "for a repository write `code: {git: URL}`")
    if spec.environment.container is Container.ALWAYS and not spec.environment.image:
        yield Problem(("spec", "environment", "container"), "needs an image", "add `image`, or remove it")


def _total(spec: JobSpec) -> Iterator[Problem]:
    total = sum(role.replicas.max for role in spec.roles.values())
    if total > TOTAL_REPLICAS:
        yield Problem(
            ("spec", "roles"),
            f"have {total:,} replicas together, of at most {TOTAL_REPLICAS:,}",
            "make them fewer, or make several jobs",
        )


def _job_macros(spec: JobSpec) -> Iterator[Problem]:
    for name, value in spec.env.items():
        yield from _unknown_macros(spec, value, ("spec", "env", name))


def _role_macros(spec: JobSpec, role: Role, at: tuple[str, ...]) -> Iterator[Problem]:
    for index, word in enumerate(role.command):
        yield from _unknown_macros(spec, word, (*at, "command", index))
    for name, value in role.env.items():
        yield from _unknown_macros(spec, value, (*at, "env", name))


def _unknown_macros(spec: JobSpec, text: str, at: tuple[str | int, ...]) -> Iterator[Problem]:
    if "{{" not in text:
        return
    known = macros.known(spec.roles, spec.data, spec.outputs)
    for name in macros.find(text):
        if name not in known:
            fix = suggest.did_you_mean(name, known) or "for the literal text write {{{{" + name + "}}}}"
            yield Problem(at, f"uses the macro {{{{{name}}}}}, which does not exist", fix)


def _role_secrets(spec: JobSpec, role: Role, at: tuple[str, ...]) -> Iterator[Problem]:
    for name in spec.secrets:
        if name in role.env:
            yield Problem((*at, "env", name), "is a secret too", "keep one of them")


def _role_resources(_: JobSpec | ServiceSpec, role: Role | ServiceSpec, at: tuple[str, ...]) -> Iterator[Problem]:
    for group in ("resources", "limits"):
        given: Resources = getattr(role, group)
        if given.gpu is not None and (count := quantity.number(given.gpu)) > 1 and count != int(count):
            yield Problem(
                (*at, group, "gpu"), "is more than one GPU and not a whole number", f"write {int(count)} or {int(count) + 1}"
            )
        yield from _vendor_gpus(given.other, (*at, group))
        yield from _gpu_share(given, (*at, group))
    for name, parse in (("cpu", quantity.number), ("memory", quantity.byte_count), ("gpu", quantity.number)):
        asked, most = getattr(role.resources, name), getattr(role.limits, name)
        if asked is not None and most is not None and parse(most) < parse(asked):
            yield Problem((*at, "limits", name), f"is less than the {asked} that `resources` asks for", f"write {asked} or more")


def _vendor_gpus(other: dict[str, int], at: tuple[str, ...]) -> Iterator[Problem]:
    for name in other:
        if name in _VENDOR_GPUS:
            yield Problem((*at, "other", name), "is what Kubernetes calls GPUs", "write `gpu`; it works everywhere")


def _gpu_share(given: Resources, at: tuple[str, ...]) -> Iterator[Problem]:
    """A share is said once, is a part of a GPU, and there is a GPU to share."""
    count = quantity.number(given.gpu) if given.gpu is not None else None
    if given.gpu_share is not None:
        if not 0 < quantity.number(given.gpu_share) <= 1:
            yield Problem((*at, "gpuShare"), "is no part of a GPU", "write more than 0 and at most 1, for example 0.25")
        if count is not None and 0 < count < 1:
            fix = f"write `gpu: 1`, or remove `gpu_share` to get {given.gpu} of one GPU"
            yield Problem((*at, "gpu"), "is a share already, and so is `gpu_share`", fix)
    for name, value in (("gpu_share", given.gpu_share), ("gpu_memory", given.gpu_memory)):
        if count == 0 and value is not None:
            yield Problem((*at, to_camel(name)), "is of a GPU, and `gpu` is 0", f"remove it, or `gpu: {given.gpu}`")


def _role_placement(_: JobSpec | ServiceSpec, role: Role | ServiceSpec, at: tuple[str, ...]) -> Iterator[Problem]:
    where = role.placement
    if where.together and where.apart:
        yield Problem((*at, "placement"), "wants replicas together and apart", "keep one of them")
    if where.alone and not gpu_ask(role.resources).count:
        yield Problem((*at, "placement", "alone"), "is about GPUs, and it asks for none", "ask for one, or remove it")
    for index, taint in enumerate(where.tolerations):
        if not taint.strip():
            yield Problem((*at, "placement", "tolerations", index), "is empty", "write the name of a taint, or * for all")


def _protocol(spec: ServiceSpec) -> Iterator[Problem]:
    if spec.model:
        message = f"is {spec.protocol}, and replicas of a model answer HTTP/1.1, HTTP/2 and gRPC in any case"
        yield Problem(("spec", "protocol"), message, "remove it")
    elif spec.protocol is ServiceProtocol.GRPC and spec.ready:
        message = "is a path, and a server of gRPC is asked by grpc.health.v1.Health/Check"
        yield Problem(("spec", "ready"), message, "remove it, or use protocol: http2")


def _service_problems(spec: ServiceSpec) -> Iterator[Problem]:
    if not spec.model and not spec.command:
        yield Problem(("spec",), "serves nothing", "add a model or a command", is_of_whole=True)
    if spec.model and spec.command:
        yield Problem(("spec", "command"), "stands beside a model", "keep one of them")
    if spec.protocol is not ServiceProtocol.HTTP:
        yield from _protocol(spec)
    yield from _secrets(spec)
    yield from _sources(spec)
    yield from _role_resources(spec, spec, ("spec",))
    yield from _role_placement(spec, spec, ("spec",))
    if spec.follow and not spec.model:
        yield Problem(("spec", "follow"), "follows a model, and there is none", "remove it, or name a model")
    if spec.follow and spec.model.partition("@")[2].isdecimal():
        name = spec.model.partition("@")[0]
        yield Problem(("spec", "follow"), f"follows an alias, and {spec.model} never moves", f"write `model: {name}@champion`")
    if not quantity.percent(spec.scaling.utilisation):
        yield Problem(("spec", "scaling", "utilisation"), "would need replicas without end", "write for example 75%")
    guard = spec.rollout.guard
    if guard.metric and spec.rollout.strategy is RolloutStrategy.SHADOW:
        message = "compares answers that users saw, and those of a shadow release are never shown"
        yield Problem(("spec", "rollout", "guard", "metric"), message, "use strategy: ab, or remove it")
    if guard.outputs and spec.rollout.strategy is not RolloutStrategy.SHADOW:
        message = f"compares answers of both versions to the same request, and {spec.rollout.strategy} sends each request to one"
        fix = "use strategy: shadow, or remove it; guard.non_finite and guard.metric judge the outputs of other releases"
        yield Problem(("spec", "rollout", "guard", "outputs"), message, fix)


def _queue_problems(spec: QueueSpec) -> Iterator[Problem]:
    if not spec.members:
        yield Problem(
            ("spec", "members"), "is empty", "add at least one, or leave it out for all users; to close a queue, delete it"
        )
    if quantity.number(spec.weight) <= 0:
        yield Problem(("spec", "weight"), "is no weight", "write more than 0, for example 1; to close a queue, delete it")
    for given, at in ((spec.quota, ("spec", "quota")), (spec.limits.per_user, ("spec", "limits", "perUser"))):
        yield from _vendor_gpus(given.other, at)
        yield from _gpu_type_over_all(given, at)
        for name in given.other:
            if name in _OWN_NAMES or name.startswith("gpu:"):
                yield Problem((*at, "other", name), "is no other resource", f"write `{name.partition(':')[0]}` beside `other`")
    limits, defaults = spec.limits, spec.defaults
    for group, timeout in (("limits", limits.timeout), ("defaults", defaults.timeout)):
        if timeout is not None and not quantity.seconds(timeout):
            yield Problem(("spec", group, "timeout"), "leaves no time at all", "write for example 72h, or leave it out")
    if limits.timeout and defaults.timeout and quantity.seconds(defaults.timeout) > quantity.seconds(limits.timeout):
        message = f"is longer than the {limits.timeout} that `limits` allows"
        yield Problem(("spec", "defaults", "timeout"), message, f"write {limits.timeout} or less")
    if limits.priority is not None and defaults.priority is not None and defaults.priority > limits.priority:
        message = f"is higher than the {limits.priority} that `limits` allows"
        yield Problem(("spec", "defaults", "priority"), message, f"write {limits.priority} or less")


def _gpu_type_over_all(given: Allotment, at: tuple[str, ...]) -> Iterator[Problem]:
    for kind, count in given.gpu_types.items():
        if given.gpu is not None and quantity.number(count) > quantity.number(given.gpu):
            message = f"is more than the {given.gpu} GPUs of any type"
            yield Problem((*at, "gpuTypes", kind), message, f"write {given.gpu} or less, or more for `gpu`")


def _no_nul(data: object, at: tuple[str | int, ...]) -> Iterator[Problem]:
    """No text may hold NUL: neither a path nor a variable nor an argument can."""
    if isinstance(data, str) and "\0" in data:
        yield Problem(at, "holds a NUL character", "remove it")
    elif isinstance(data, dict):
        for name, value in data.items():
            yield from _no_nul(value, (*at, name))
    elif isinstance(data, list):
        for index, value in enumerate(data):
            yield from _no_nul(value, (*at, index))


_RULES: tuple[Callable[[JobSpec], Iterator[Problem]], ...] = (_success, _secrets, _references, _total, _job_macros)
_ROLE_RULES: tuple[Callable[[JobSpec, Role, tuple[str, ...]], Iterator[Problem]], ...] = (
    _role_macros,
    _role_secrets,
    _role_resources,
    _role_placement,
)
