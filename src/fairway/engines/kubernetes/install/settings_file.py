"""Reads the administrator's file and reports every mistake at once: its place, its value, what is wrong and the fix. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from msgspec import inspect

from fairway.engines.kubernetes import quantity
from fairway.engines.kubernetes.cluster_component import QUEUEING
from fairway.engines.kubernetes.operator.installation import PROCESS_RESOURCES, InstallationSettings
from fairway.errors import DocumentMistake, SpecError
from fairway.spec.job import TrainingFramework
from fairway.spec.text import syntax_tree
from fairway.spec.text.mistake_report import MistakeReport, in_words, show
from fairway.spec.text.reader import plain_data
from fairway.spec.text.syntax_tree import Node, YamlEntry, YamlScalar, is_nothing, resolve, step_into
from fairway.units import suggestion

Problem = tuple[str, str]
"""What is wrong, and the fix."""

_TYPES: dict[type[inspect.Type], tuple[type, str]] = {
    inspect.StrType: (str, "string_type"),
    inspect.IntType: (int, "int_type"),
    inspect.BoolType: (bool, "bool_type"),
    inspect.LiteralType: (str, "string_type"),
}
"""The Python type of a plain value, and the kind of mistake when the value has another type."""
_IMAGE_FIX = "write for example `image: registry.example/fairway:1`, or pass --image"
_RUNTIMES = (*(str(framework) for framework in TrainingFramework), "default", "tensorboard")
_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")


def read(text: str, file: str, *, image: str = "", required: bool = True) -> dict[str, Any]:
    """Return the file as plain data of an `InstallationSettings`.

    The file must name an image, unless `image` is given or `required` is false.

    Raises:
        SpecError: every mistake in the file.
    """
    nodes, malformed = syntax_tree.compose(text)
    for mistake in malformed:
        mistake.file = file
    report = MistakeReport(file)
    node = nodes[0] if nodes else YamlScalar("")
    if not isinstance(node, syntax_tree.YamlMapping) or len(nodes) > 1:
        if not malformed:
            report.add(
                "holds no settings", path="", place=node.place, fix="write one mapping, such as `image: registry/fairway:1`"
            )
        raise SpecError([*malformed, *report])
    _value(inspect.type_info(InstallationSettings), node, "", report)
    if required and not image and node.get("image") is None:
        report.add("is missing", path="image", place=node.place, fix=_IMAGE_FIX)
    mistakes: list[DocumentMistake] = [*malformed, *report]
    if mistakes:
        raise SpecError(mistakes)
    return {entry.name: plain_data(entry.value) for entry in node.entries if not is_nothing(entry.value)}


def _value(wanted: inspect.Type, node: Node, path: str, report: MistakeReport) -> None:
    if isinstance(wanted, inspect.StructType):
        _struct(wanted, node, path, report)
    elif isinstance(wanted, inspect.DictType):
        _mapping(wanted, node, path, report)
    elif isinstance(wanted, inspect.VarTupleType):
        _list(wanted, node, path, report)
    elif type(wanted) in _TYPES:
        _plain(wanted, node, path, report)


def _struct(wanted: inspect.StructType, node: Node, path: str, report: MistakeReport) -> None:
    if not isinstance(node, syntax_tree.YamlMapping):
        return _mistyped("dict_type", node, path, report)
    fields = {field.name: field for field in wanted.fields}
    for entry in node.entries:
        where = step_into(path, entry.name)
        if entry.name in fields:
            _field(fields[entry.name], entry, where, report)
            continue
        near = suggestion.did_you_mean(entry.name, fields)
        report.add("is no field here", path=where, place=entry.place, fix=near or f"use one of {', '.join(fields)}")
    for name, field in fields.items():
        # The image, a field of the whole installation, may be given elsewhere.
        if field.required and path and node.get(name) is None:
            report.add("is missing", path=step_into(path, name), place=node.place, fix="add it")
    return None


def _field(field: inspect.Field, entry: YamlEntry, path: str, report: MistakeReport) -> None:
    if is_nothing(entry.value):
        return  # A field that is given but empty counts as missing.
    _value(field.type, entry.value, path, report)
    check = _CHECKS.get(path)
    problem = check(plain_data(entry.value)) if check and not report.has(path) else None
    if problem is not None:
        report.add(problem[0], path=path, place=entry.value.place, value=_shown(entry.value), fix=problem[1])


def _mapping(wanted: inspect.DictType, node: Node, path: str, report: MistakeReport) -> None:
    if not isinstance(node, syntax_tree.YamlMapping):
        return _mistyped("dict_type", node, path, report)
    for entry in node.entries:
        where = step_into(path, entry.name)
        names = _NAMES.get(path)
        problem = names(entry.name) if names else None
        if problem is not None:
            report.add(problem[0], path=where, place=entry.place, fix=problem[1])
        _value(wanted.value_type, entry.value, where, report)
    return None


def _list(wanted: inspect.VarTupleType, node: Node, path: str, report: MistakeReport) -> None:
    if not isinstance(node, syntax_tree.YamlSequence):
        return _mistyped("list_type", node, path, report)
    check = _ITEMS.get(path)
    for index, item in enumerate(node.items):
        where = f"{path}[{index}]"
        _value(wanted.item_type, item, where, report)
        problem = check(plain_data(item)) if check and not report.has(where) else None
        if problem is not None:
            report.add(problem[0], path=where, place=item.place, value=_shown(item), fix=problem[1])
    return None


def _plain(wanted: inspect.Type, node: Node, path: str, report: MistakeReport) -> None:
    kind, name = _TYPES[type(wanted)]
    value = resolve(node) if isinstance(node, YamlScalar) else None
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        return _mistyped(name, node, path, report)
    if isinstance(wanted, inspect.LiteralType) and value not in wanted.values:
        message, fix = in_words("literal_error", {"expected": ", ".join(map(repr, wanted.values))}, value, "")
        report.add(message, path=path, place=node.place, value=show(value), fix=fix)
    return None


def _mistyped(kind: str, node: Node, path: str, report: MistakeReport) -> None:
    message, fix = in_words(kind, {}, plain_data(node), "")
    report.add(message, path=path, place=node.place, value=_shown(node), fix=fix)


def _shown(node: Node) -> str:
    return show(resolve(node)) if isinstance(node, YamlScalar) else ""


def _one_of(*choices: str) -> Callable[[str], Problem | None]:
    def check(value: str) -> Problem | None:
        if value in choices:
            return None
        listed = ", ".join(choice or repr(choice) for choice in choices)
        return f"is not one of {listed}", suggestion.did_you_mean(value, choices) or "choose one of them, or leave it out"

    return check


def _volume(value: dict[str, Any]) -> Problem | None:
    """Check that a volume is of exactly one type."""
    if len(value) <= 1:
        return None
    return f"names {len(value)} volumes: {', '.join(value)}", "keep one, such as `persistentVolumeClaim: {claimName: runs}`"


def _quantity(value: str) -> Problem | None:
    try:
        quantity.exact(value)
    except ValueError:
        return "is not an amount", "write for example 10Gi"
    return None


def _absolute(value: str) -> Problem | None:
    return None if value.startswith("/") else ("is not an absolute path", "begin it with /")


def _namespace(value: str) -> Problem | None:
    return None if _LABEL.fullmatch(value) else ("is not a name of a namespace", "use small letters, digits and dashes")


def _gateway(value: str) -> Problem | None:
    good = not value or (value.count("/") == 1 and all(value.split("/")))
    return None if good else ("names no Gateway", "write NAMESPACE/NAME, such as infra/front")


def _runtime(name: str) -> Problem | None:
    """Check the name of a runtime: one that no document uses would be a typo."""
    if name in _RUNTIMES or name.startswith("serve-"):
        return None
    fix = suggestion.did_you_mean(name, _RUNTIMES) or f"use one of {', '.join(_RUNTIMES)}, or serve-FORMAT"
    return "is not a framework", fix


def _process(name: str) -> Problem | None:
    fix = suggestion.did_you_mean(name, PROCESS_RESOURCES) or f"use {' or '.join(PROCESS_RESOURCES)}"
    return None if name in PROCESS_RESOURCES else ("is not a process of Fairway", fix)


_CHECKS: Mapping[str, Callable[[Any], Problem | None]] = {
    "image": lambda value: None if value.strip() else ("is empty", _IMAGE_FIX),
    "namespace": _namespace,
    "scheduler": _one_of("fairway", "cluster", ""),
    "queueing": _one_of("", *QUEUEING),
    "run_volume": _volume,
    "record": _volume,
    "cache_volume": _volume,
    "record_size": _quantity,
    "replicas": lambda value: None if value >= 1 else ("is less than 1", "write 1 or more"),
    "gateway": _gateway,
}
_ITEMS: Mapping[str, Callable[[Any], Problem | None]] = {"allowed.host_paths": _absolute}
_NAMES: Mapping[str, Callable[[str], Problem | None]] = {"runtimes": _runtime, "resources": _process}
