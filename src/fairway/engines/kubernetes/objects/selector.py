"""Selectors of labels and nodes, and amounts of resources."""

from __future__ import annotations

from fairway.engines.kubernetes.objects.meta import ObjectPart


class ResourceRequirements(ObjectPart, frozen=True):
    """Amounts by name, as text: requests and limits."""

    requests: dict[str, str] = {}
    limits: dict[str, str] = {}


class SelectorRequirement(ObjectPart, frozen=True):
    """A requirement on a label or a field."""

    key: str
    operator: str
    values: tuple[str, ...] = ()


class NodeSelectorTerm(ObjectPart, frozen=True):
    """Requirements that must all be met."""

    match_expressions: tuple[SelectorRequirement, ...] = ()
    match_fields: tuple[SelectorRequirement, ...] = ()


class NodeSelector(ObjectPart, frozen=True):
    """Terms of which at least one must be met."""

    node_selector_terms: tuple[NodeSelectorTerm, ...] = ()


class LabelSelector(ObjectPart, frozen=True):
    """A selector of objects by labels."""

    match_labels: dict[str, str] = {}
    match_expressions: tuple[SelectorRequirement, ...] = ()
