"""Node filters by selector, affinity and taint. Pure.

The core matches node names, equal labels and taints as text. The richer expressions of the Kubernetes API are reduced to that
here: to the names of the matching nodes, and to the texts of the tolerated taints, among those that exist.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from fairway.engines.kubernetes.objects import (
    KubernetesNode,
    NodeSelector,
    NodeSelectorTerm,
    NodeTaint,
    Pod,
    SelectorRequirement,
    Toleration,
)

KEEPS_AWAY = ("NoSchedule", "NoExecute")
UNSCHEDULABLE = "node.kubernetes.io/unschedulable"
MIRROR = "kubernetes.io/config.mirror"


def taint_text(taint: NodeTaint) -> str:
    """Return the taint as the text that the core compares."""
    return f"{taint.key}={taint.value}:{taint.effect}"


def taints_of(node: KubernetesNode) -> tuple[NodeTaint, ...]:
    """Return the taints that keep pods away. A cordoned node gets the `unschedulable` taint even if it is not set yet."""
    taints = [taint for taint in node.spec.taints if taint.effect in KEEPS_AWAY]
    if node.spec.unschedulable and not any(taint.key == UNSCHEDULABLE for taint in taints):
        taints.append(NodeTaint(UNSCHEDULABLE, "", "NoSchedule"))
    return tuple(taints)


def tolerated(pod: Pod, taints: Collection[NodeTaint]) -> tuple[str, ...]:
    """Return the texts of those of the taints that the pod tolerates."""
    return tuple(
        sorted(taint_text(taint) for taint in taints if any(tolerates(toleration, taint) for toleration in pod.spec.tolerations))
    )


def tolerates(one: Toleration, taint: NodeTaint) -> bool:
    """Return whether the toleration matches the taint."""
    if one.effect and one.effect != taint.effect:
        return False
    if not one.key:
        return one.operator == "Exists"
    return one.key == taint.key and (one.operator == "Exists" or one.value == taint.value)


def matches(pod: Pod, node: KubernetesNode) -> bool:
    """Return whether the node matches the pod's required node affinity. Without one every node does."""
    affinity = pod.spec.affinity
    required = affinity.node_affinity.required if affinity is not None and affinity.node_affinity is not None else None
    return required is None or selects(required, node)


def selects(selector: NodeSelector, node: KubernetesNode) -> bool:
    """Return whether the selector matches the node. Terms are alternatives; an empty term matches no node."""
    return any(_term(term, node) for term in selector.node_selector_terms)


def has_affinity(pod: Pod) -> bool:
    """Return whether the pod has a required node affinity."""
    affinity = pod.spec.affinity
    return affinity is not None and affinity.node_affinity is not None and affinity.node_affinity.required is not None


def _term(term: NodeSelectorTerm, node: KubernetesNode) -> bool:
    if not term.match_expressions and not term.match_fields:
        return False
    labels, fields = node.metadata.labels, {"metadata.name": node.metadata.name}
    return _all(term.match_expressions, labels) and _all(term.match_fields, fields)


def _all(requirements: Iterable[SelectorRequirement], labels: Mapping[str, str]) -> bool:
    return all(meets(requirement, labels) for requirement in requirements)


def meets(requirement: SelectorRequirement, labels: Mapping[str, str]) -> bool:
    """Return whether the labels meet one requirement of a selector."""
    value = labels.get(requirement.key)
    match requirement.operator:
        case "In":
            return value in requirement.values
        case "NotIn":
            return value not in requirement.values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case "Gt" | "Lt":
            return _compared(requirement, value)
        case _:
            return False


def _compared(requirement: SelectorRequirement, value: str | None) -> bool:
    try:
        number, bound = int(value or ""), int(requirement.values[0])
    except (ValueError, IndexError):
        return False
    return number > bound if requirement.operator == "Gt" else number < bound


class NodeNames(tuple[str, ...]):
    """Node names, possibly many, with fast membership tests and hashing."""

    _set: frozenset[str]
    _number: int

    def __new__(cls, names: Iterable[str]) -> NodeNames:
        """Return a tuple of these names, in this order."""
        self = super().__new__(cls, names)
        self._set = frozenset(self)
        self._number = tuple.__hash__(self)
        return self

    def __contains__(self, name: object) -> bool:
        return name in self._set

    def __hash__(self) -> int:
        return self._number


def unsupported(pod: Pod) -> str:
    """Return why this scheduler does not support the pod; empty when it does."""
    spec = pod.spec
    if spec.resource_claims:
        return "it requests resource claims (DRA), which this scheduler does not support"
    if any(toleration.operator in ("Lt", "Gt") for toleration in spec.tolerations):
        return "it tolerates taints by comparing numbers (operator Lt or Gt), which this scheduler does not support"
    return ""
