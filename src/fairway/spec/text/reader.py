"""Convert a tree to the data from which a model is built, and record where each value was written."""

from __future__ import annotations

import collections.abc
from dataclasses import dataclass
from functools import cache

from fairway.spec import field as spec_field
from fairway.spec.field import FieldKind, FieldShape
from fairway.spec.spec_model import SpecModel
from fairway.spec.text import flat_spelling
from fairway.spec.text.mistake_report import MistakeReport
from fairway.spec.text.syntax_tree import (
    Node,
    TextPosition,
    YamlEntry,
    YamlMapping,
    YamlScalar,
    YamlSequence,
    is_nothing,
    resolve,
    step_into,
)
from fairway.units import suggestion

Location = tuple[str | int, ...]
"""A path in the Kubernetes spelling, as in pydantic's errors."""

_YES_NO = {word: truth for truth, words in ((True, "yes on y true"), (False, "no off n false")) for word in words.split()}
_SERVER_OWNED = {
    (): frozenset({"status"}),
    ("metadata",): frozenset(
        {"creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "finalizers", "generateName", "generation"}
        | {"managedFields", "ownerReferences", "resourceVersion", "selfLink", "uid"}
    ),
}
"""Fields that the API server adds to an object. They are skipped, so that the output of `kubectl get -o yaml` can be read."""
_HABITS = {
    **dict.fromkeys(("args", "arguments", "cmd", "entrypoint"), ("command",)),
    **dict.fromkeys(("num_workers", "workers", "num_nodes", "count"), ("replicas",)),
    **dict.fromkeys(("retries", "max_restarts", "backoff_limit", "backoffLimit"), ("restart", "max")),
    **dict.fromkeys(("workdir", "working_dir", "workingDir"), ("code",)),
    **dict.fromkeys(("volumes", "inputs", "datasets"), ("data",)),
    "nproc_per_node": ("processes",),
    "deadline": ("timeout",),
    **dict.fromkeys(("users", "groups", "allow"), ("members",)),
    "pip": ("requirements",),
}
"""Names that other tools use for a field."""
_LISTED = 12


@dataclass(frozen=True, slots=True)
class FieldLocation:
    """The position of a value, and its path as the user wrote it."""

    path: str
    node: Node
    key_place: TextPosition

    @property
    def value(self) -> object:
        """The value if it is a scalar; None for lists and mappings."""
        return resolve(self.node) if isinstance(self.node, YamlScalar) else None


class DocumentReader:
    """Reads one document."""

    def __init__(self, report: MistakeReport, *, is_flat: bool) -> None:
        self._report = report
        self._is_flat = is_flat
        self._homes: collections.abc.Mapping[str, str] = {}
        self.spots: dict[Location, FieldLocation] = {}

    def read(self, model: type[SpecModel], node: YamlMapping) -> object:
        """Return the data of the whole document, in the Kubernetes spelling. Unknown fields are reported and left out."""
        self._homes = spec_field.homes(model, flat=self._is_flat)
        self.spots[()] = FieldLocation("", node, node.place)
        return self._model(model, node, (), "")

    def _value(self, shape: FieldShape, node: Node, at: Location, path: str) -> object:
        if shape.kind is FieldKind.MODEL and shape.model:
            return self._model(shape.model, node, at, path)
        if shape.kind is FieldKind.MAP and shape.item and isinstance(node, YamlMapping):
            return {entry.name: self._entry(shape.item, entry, (*at, entry.name), path) for entry in node.entries}
        if shape.kind is FieldKind.LIST and shape.item:
            return self._list(shape.item, node, at, path)
        if shape.kind is FieldKind.TEXT and self._is_flat and isinstance(node, YamlScalar):
            return node.text
        if shape.kind is FieldKind.BOOLEAN and isinstance(node, YamlScalar) and node.plain and node.text.lower() in _YES_NO:
            return _YES_NO[node.text.lower()]
        return plain_data(node)

    def _list(self, item: FieldShape, node: Node, at: Location, path: str) -> object:
        if self._is_flat and isinstance(node, YamlScalar) and item.kind is FieldKind.TEXT and not self._report.has(path):
            node = YamlSequence((node,), node.place, written=False)
        if not isinstance(node, YamlSequence):
            return plain_data(node)
        values = []
        for index, element in enumerate(node.items):
            element_path = f"{path}[{index}]" if node.written else path
            self.spots[(*at, index)] = FieldLocation(element_path, element, element.place)
            values.append(plain_data(element) if is_nothing(element) else self._value(item, element, (*at, index), element_path))
        return values

    def _model(self, model: type[SpecModel], node: Node, at: Location, path: str) -> object:
        if isinstance(node, YamlMapping):
            node = self._settled(model, node, at, path)
        if self._is_flat:
            node = flat_spelling.without_sugar(model, node, path, self._report)
        if not isinstance(node, YamlMapping):
            return plain_data(node)
        by_name = _by_name(model, is_flat=self._is_flat)
        data: dict[str, object] = {}
        for entry in node.entries:
            field = by_name.get(entry.name)
            if field is not None and not is_nothing(entry.value):
                data[field.alias] = self._entry(field.shape, entry, (*at, field.alias), path)
        return data

    def _entry(self, shape: FieldShape, entry: YamlEntry, at: Location, path: str) -> object:
        path = path if entry.written is None else step_into(path, entry.written)
        self.spots[at] = FieldLocation(path, entry.value, entry.place)
        return self._value(shape, entry.value, at, path)

    def _settled(self, model: type[SpecModel], node: YamlMapping, at: Location, path: str) -> YamlMapping:
        """Return the mapping with known names only.

        An unknown name is reported, and read as the known name that was probably meant.
        """
        known_names = flat_spelling.known_names(model) if self._is_flat else tuple(_by_name(model, is_flat=False))
        if all(entry.name in known_names for entry in node.entries):
            return node
        kept: dict[str, YamlEntry] = {entry.name: entry for entry in node.entries if entry.name in known_names}
        for entry in node.entries:
            if entry.name in known_names or self._passes(model, entry, at):
                kept.setdefault(entry.name, entry)
                continue
            meant = self._report_unknown(model, entry, known_names, path)
            if meant and meant not in kept:
                kept[meant] = YamlEntry(meant, entry.value, entry.place, entry.written)
        return YamlMapping(tuple(kept.values()), node.place)

    def _passes(self, model: type[SpecModel], entry: YamlEntry, at: Location) -> bool:
        if self._is_flat:
            return flat_spelling.is_open(model, entry.name)
        return entry.name in _SERVER_OWNED.get(tuple(str(step) for step in at), frozenset())

    def _report_unknown(self, model: type[SpecModel], entry: YamlEntry, known: tuple[str, ...], path: str) -> str:
        """Report an unknown name, and return the known name that was probably meant."""
        field_path = step_into(path, entry.name)
        if self._report.is_full:
            self._report.add("is not a field here", path=field_path, place=entry.place)
            return ""
        meant = self._meant(model, entry.name, known)
        home = self._homes.get(entry.name, "")
        listed = ", ".join(known[:_LISTED]) + (", ..." if len(known) > _LISTED else "")
        fix = f"did you mean `{meant}`?" if meant else f"it belongs {home}" if home else f"use one of {listed}"
        self._report.add("is not a field here", path=field_path, place=entry.place, fix=fix)
        return meant

    def _meant(self, model: type[SpecModel], name: str, known: tuple[str, ...]) -> str:
        habit = next((known_name for known_name in _HABITS.get(name, ()) if known_name in known), "")
        if habit:
            return habit
        if name in self._homes:
            return ""
        slip = flat_spelling.resource_slip(model, name) if self._is_flat and flat_spelling.counts_resources(model) else ""
        return slip or suggestion.nearest(name, known)


def plain_data(node: Node) -> object:
    """Return the tree as plain data, without a model to determine types."""
    if isinstance(node, YamlScalar):
        return resolve(node)
    if isinstance(node, YamlSequence):
        return [plain_data(item) for item in node.items]
    return {entry.name: plain_data(entry.value) for entry in node.entries}


@cache
def _by_name(model: type[SpecModel], *, is_flat: bool) -> dict[str, spec_field.SpecField]:
    return {field.name if is_flat else field.alias: field for field in spec_field.fields_of(model).values()}
