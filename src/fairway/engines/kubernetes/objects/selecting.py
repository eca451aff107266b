"""How labels, nodes and amounts are spoken of."""

from __future__ import annotations

from fairway.engines.kubernetes.objects.meta import Part


class ResourceNeeds(Part, frozen=True):
    """Amounts by name, as text: what is promised and what is allowed."""

    requests: dict[str, str] = {}
    limits: dict[str, str] = {}


class Requirement(Part, frozen=True):
    """A rule about one label or field."""

    key: str
    operator: str
    values: tuple[str, ...] = ()


class NodeSelectorTerm(Part, frozen=True):
    """Rules that hold together."""

    match_expressions: tuple[Requirement, ...] = ()
    match_fields: tuple[Requirement, ...] = ()


class NodeSelector(Part, frozen=True):
    """Terms of which one must hold."""

    node_selector_terms: tuple[NodeSelectorTerm, ...] = ()


class LabelSelector(Part, frozen=True):
    """A rule about labels."""

    match_labels: dict[str, str] = {}
    match_expressions: tuple[Requirement, ...] = ()
