"""Write documents as YAML: the Kubernetes spelling as it is, the flat one with its short forms."""

from __future__ import annotations

import re
from typing import Any

import yaml

from fairway.errors import UsageError
from fairway.spec import field
from fairway.spec.job import JobSpec, TaskRole, TrainingJob
from fairway.spec.kind import Document
from fairway.spec.queue import JobQueue, QueueSpec, ResourceQuota, UserLimits
from fairway.spec.resource import ResourceAmounts
from fairway.spec.service import ModelService, ServiceSpec
from fairway.spec.spec_model import SpecModel
from fairway.spec.text import flat_spelling
from fairway.spec.text.syntax_tree import YamlScalar, resolve
from fairway.units import suggestion

SPELLINGS = ("flat", "kubernetes")

_BARE = re.compile(r"0|[1-9][0-9]{0,8}|[0-9]{1,9}\.[0-9]{1,9}")
_GPU_TYPE = re.compile(r"[A-Za-z0-9._-]+")
_WIDTH = 120


def write(document: Document, to: str) -> str:
    """Return the document as YAML text. Default values are left out, except where an explicit value has a meaning."""
    if to not in SPELLINGS:
        message = f"{to!r} is not a spelling"
        raise UsageError(message, fix=suggestion.did_you_mean(to, SPELLINGS) or "use flat or kubernetes")
    data = flat_data(document) if to == "flat" else kubernetes_data(document)
    if isinstance(document, TrainingJob) and "priority" in document.spec.model_fields_set:
        # An explicit priority of 0 differs from none, which means the queue's default.
        (data if to == "flat" else data["spec"])["priority"] = document.spec.priority
    return str(
        yaml.dump(data, Dumper=_DocumentDumper, sort_keys=False, default_flow_style=False, allow_unicode=True, width=_WIDTH)
    )


def kubernetes_data(document: Document) -> dict[str, Any]:
    """Return the document in the Kubernetes spelling, as plain data."""
    data = document.model_dump(mode="json", by_alias=True, exclude_defaults=True)
    for name, role in document.spec.roles.items() if isinstance(document, TrainingJob) else ():
        _restore_replicas(data["spec"]["roles"][name], role)
    if isinstance(document, ModelService):
        _restore_replicas(data["spec"], document.spec)
    return {
        "apiVersion": document.api_version,
        "kind": document.kind,
        "metadata": data["metadata"],
        "spec": data.get("spec", {}),
    }


def flat_data(document: Document) -> dict[str, Any]:
    """Return the document in the flat spelling, as plain data."""
    data = document.model_dump(mode="json", exclude_defaults=True)
    spec = data.get("spec", {})
    if isinstance(document, JobQueue):
        return {"kind": document.kind, **data["metadata"], **_flat_queue(spec)}
    if isinstance(document, ModelService):
        return {"kind": document.kind, **data["metadata"], **_flat_service(document.spec, spec)}
    for name, role in document.spec.roles.items():
        spec["roles"][name] = _flat_role(role, spec["roles"][name])
    for name, short in (
        ("environment", "python"),
        ("restart", "max"),
        ("checkpoint", "every"),
        ("tensorboard", "dir"),
    ):
        if name in spec:
            spec[name] = _short(spec[name], short)
    if "code" in spec:
        spec["code"] = _flat_code(spec["code"])
    ordered = {name: spec[name] for name in field.fields_of(JobSpec) if name in spec}
    return {"kind": document.kind, **data["metadata"], **_lifted(ordered)}


def _lifted(spec: dict[str, Any]) -> dict[str, Any]:
    """Write a single role `worker` without variables of its own at the top level."""
    role = spec["roles"].get(flat_spelling.SHORTHAND_ROLE)
    if len(spec["roles"]) != 1 or role is None or "env" in role:
        return spec
    lifted: dict[str, Any] = {}
    for name, value in spec.items():
        lifted.update(role if name == "roles" else {name: value})
    return lifted


def _flat_role(role: TaskRole | ServiceSpec, data: dict[str, Any]) -> dict[str, Any]:
    _restore_replicas(data, role)
    counts = data.get("replicas")
    if counts and counts["min"] == counts["max"]:
        data["replicas"] = counts["max"]
    if role.command:
        text = flat_spelling.join_command(role.command)
        data["command"] = text if text.isprintable() else list(role.command)
    for name in ("resources", "limits"):
        if name in data:
            data[name] = _flat_resources(data[name])
    return data


def _flat_service(spec: ServiceSpec, data: dict[str, Any]) -> dict[str, Any]:
    data = _flat_role(spec, data)
    if "code" in data:
        data["code"] = _flat_code(data["code"])
    rollout = data.get("rollout", {})
    if "steps" in rollout:
        steps = [{field.flat_name(name): value for name, value in step.items()} for step in rollout["steps"]]
        rollout["steps"] = [_short(step, "to") for step in steps]
    if "metric" in rollout.get("guard", {}):
        rollout["guard"]["metric"] = _short(rollout["guard"]["metric"], "name")
    if "outputs" in rollout.get("guard", {}):
        rollout["guard"]["outputs"] = _short(rollout["guard"]["outputs"], "differ")
    if "tls" in data.get("endpoint", {}):
        data["endpoint"]["tls"] = _short(data["endpoint"]["tls"], "mode")
    for name, short in (
        ("environment", "python"),
        ("endpoint", "bind"),
        ("objective", "p95"),
        ("sampling", "rate"),
        ("logs", "access"),
        ("rollout", "strategy"),
    ):
        if name in data:
            data[name] = _short(data[name], short)
    return {name: data[name] for name in field.fields_of(ServiceSpec) if name in data}


def _short(data: dict[str, Any], name: str) -> Any:
    """Return the value of the field `name` if there is no other field, else the whole mapping."""
    return data[name] if list(data) == [name] else data


def _restore_replicas(data: dict[str, Any], role: TaskRole | ServiceSpec) -> None:
    """Write both bounds, also when one has its default value: `{max: 4}` alone would confuse the reader."""
    if "replicas" in data:
        data["replicas"] = {"min": role.replicas.min, "max": role.replicas.max}


def _flat_code(code: dict[str, Any]) -> Any:
    git = code.pop("git", None)
    if git:
        code["git"] = git["url"]
        code.update({"ref": git["ref"]} if "ref" in git else {})
    return code["path"] if list(code) == ["path"] else code


def _flat_queue(spec: dict[str, Any]) -> dict[str, Any]:
    if "weight" in spec:
        spec["weight"] = _number(spec["weight"])
    if "quota" in spec:
        spec["quota"] = _flat_allotment(ResourceQuota, spec["quota"])
    if "per_user" in spec.get("limits", {}):
        spec["limits"]["per_user"] = _flat_allotment(UserLimits, spec["limits"]["per_user"])
    return {name: spec[name] for name in field.fields_of(QueueSpec) if name in spec}


def _flat_allotment(model: type[SpecModel], data: dict[str, Any]) -> dict[str, Any]:
    """Write GPU types as `gpu: {A100: 8}` if there is no number for GPUs of any type."""
    data = {name: _number(value) if name in ("cpu", "memory", "gpu") else value for name, value in data.items()}
    if "gpu_types" in data:
        types = {name: _number(count) for name, count in data.pop("gpu_types").items()}
        data["gpu_types" if "gpu" in data else "gpu"] = types
    return _inlined(model, data)


def _flat_resources(data: dict[str, Any]) -> dict[str, Any]:
    types = data.get("gpu_type", [])
    if len(types) == 1:
        if "gpu" in data and _GPU_TYPE.fullmatch(types[0]) and _BARE.fullmatch(data["gpu"]):
            data["gpu"] = f"{data.pop('gpu_type')[0]}:{data['gpu']}"
        else:
            data["gpu_type"] = types[0]
    for name in ("cpu", "memory", "gpu", "gpu_share"):
        if name in data:
            data[name] = _number(data[name])
    return _inlined(ResourceAmounts, data)


def _inlined(model: type[SpecModel], data: dict[str, Any]) -> dict[str, Any]:
    """Write counted resources next to the others, except those whose names are ambiguous there."""
    other = data.pop("other", {})
    inline = {
        name: count for name, count in other.items() if name not in field.fields_of(model) and flat_spelling.is_open(model, name)
    }
    kept = {name: count for name, count in other.items() if name not in inline}
    return {**data, **inline, **({"other": kept} if kept else {})}


_Base: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)


class _DocumentDumper(_Base):  # type: ignore[misc]
    """YAML dumper: block style, scripts as `|`, and quotes wherever some YAML reader would not read text."""

    def ignore_aliases(self, data: object) -> bool:
        return True


def _text(dumper: Any, text: str) -> Any:
    style = None
    if "\n" in text and _is_tidy(text):
        style = "|"
    elif not isinstance(resolve(YamlScalar(text)), str):
        style = "'"
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


def _is_tidy(text: str) -> bool:
    """Return whether a literal block preserves the text exactly, in every reader."""
    return all(line == line.rstrip() and line.isprintable() for line in text.split("\n")) and text[:1] not in ("", " ", "\n", "#")


def _number(text: str) -> int | float | str:
    """Return the number if writing it gives the same text again, else the text."""
    if not _BARE.fullmatch(text):
        return text
    value = float(text) if "." in text else int(text)
    return value if str(value) == text else text


_DocumentDumper.add_representer(str, _text)
