"""Which nodes a pod may have: selectors, affinity, taints. Pure.

The core knows names, equal labels and taints by their text. What a pod says in the API's richer words comes to that here: the
names of the nodes that match, and the texts of the taints that it tolerates, among those that there are.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from fairway.engines.kubernetes.objects import Node, NodeSelector, NodeSelectorTerm, Pod, Requirement, Taint, Toleration

KEEPS_AWAY = ("NoSchedule", "NoExecute")
UNSCHEDULABLE = "node.kubernetes.io/unschedulable"
MIRROR = "kubernetes.io/config.mirror"


def taint_text(taint: Taint) -> str:
    """As the core knows it."""
    return f"{taint.key}={taint.value}:{taint.effect}"


def taints_of(node: Node) -> tuple[Taint, ...]:
    """Those that keep pods away. One that is cordoned keeps away whoever does not tolerate that."""
    found = [taint for taint in node.spec.taints if taint.effect in KEEPS_AWAY]
    if node.spec.unschedulable and not any(taint.key == UNSCHEDULABLE for taint in found):
        found.append(Taint(UNSCHEDULABLE, "", "NoSchedule"))
    return tuple(found)


def tolerated(pod: Pod, taints: Collection[Taint]) -> tuple[str, ...]:
    """The texts of the taints, among these, that do not keep the pod away."""
    return tuple(sorted(taint_text(taint) for taint in taints if any(tolerates(one, taint) for one in pod.spec.tolerations)))


def tolerates(one: Toleration, taint: Taint) -> bool:
    """Whether this toleration is meant for that taint."""
    if one.effect and one.effect != taint.effect:
        return False
    if not one.key:
        return one.operator == "Exists"
    return one.key == taint.key and (one.operator == "Exists" or one.value == taint.value)


def matches(pod: Pod, node: Node) -> bool:
    """Whether the node is one of those that the pod's required affinity names; without any, all are."""
    affinity = pod.spec.affinity
    required = affinity.node_affinity.required if affinity is not None and affinity.node_affinity is not None else None
    return required is None or selects(required, node)


def selects(selector: NodeSelector, node: Node) -> bool:
    """Whether the node is one of these. Terms are alternatives; one that says nothing names no node."""
    return any(_term(term, node) for term in selector.node_selector_terms)


def has_affinity(pod: Pod) -> bool:
    """Whether names must be looked for at all."""
    affinity = pod.spec.affinity
    return affinity is not None and affinity.node_affinity is not None and affinity.node_affinity.required is not None


def _term(term: NodeSelectorTerm, node: Node) -> bool:
    if not term.match_expressions and not term.match_fields:
        return False
    labels, fields = node.metadata.labels, {"metadata.name": node.metadata.name}
    return _all(term.match_expressions, labels) and _all(term.match_fields, fields)


def _all(requirements: Iterable[Requirement], labels: Mapping[str, str]) -> bool:
    return all(meets(requirement, labels) for requirement in requirements)


def meets(requirement: Requirement, labels: Mapping[str, str]) -> bool:
    """Whether labels meet one requirement of a selector."""
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


def _compared(requirement: Requirement, value: str | None) -> bool:
    try:
        own, wanted = int(value or ""), int(requirement.values[0])
    except (ValueError, IndexError):
        return False
    return own > wanted if requirement.operator == "Gt" else own < wanted


class Names(tuple[str, ...]):
    """Names of nodes, many of them perhaps: looked up and compared fast."""

    _set: frozenset[str]
    _number: int

    def __new__(cls, names: Iterable[str]) -> Names:
        """These, in this order."""
        found = super().__new__(cls, names)
        found._set = frozenset(found)
        found._number = tuple.__hash__(found)
        return found

    def __contains__(self, name: object) -> bool:
        return name in self._set

    def __hash__(self) -> int:
        return self._number


def unsupported(pod: Pod) -> str:
    """What the pod asks for and cannot have from this scheduler, in words; empty when there is nothing of that kind."""
    spec = pod.spec
    if spec.resource_claims:
        return "it asks for resource claims (DRA), which this scheduler does not hand out"
    if any(one.operator in ("Lt", "Gt") for one in spec.tolerations):
        return "it tolerates taints by comparing numbers (operator Lt or Gt), which this scheduler does not do"
    return ""
