"""Node filters that depend on other pods: required pod affinity, pod anti-affinity and topology spread. Pure.

The rules are those of the Kubernetes API: placed pods count whichever scheduler placed them, and the anti-affinity terms of
placed pods apply to a new pod, too.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass

from fairway.engines.kubernetes.objects import (
    KubernetesNode,
    LabelSelector,
    Pod,
    SelectorRequirement,
    TopologySpreadConstraint,
)
from fairway.engines.kubernetes.scheduler import node_filter
from fairway.engines.kubernetes.scheduler.filter.placed_pod import (
    PlacedPods,
    PodCountQuery,
    PodSelector,
    attracted,
    repelled,
    rule_of,
)

HARD = "DoNotSchedule"
HOSTNAME = "kubernetes.io/hostname"


@dataclass(frozen=True, slots=True)
class NodeCheck:
    """One condition on nodes, with the reason to report for the nodes that fail it."""

    words: str
    """The reason, for example `other pods keep it away`."""
    admits: Callable[[KubernetesNode], bool]


def asks(pod: Pod) -> bool:
    """Return whether the pod itself has constraints on other pods."""
    affinity = pod.spec.affinity
    if affinity is not None and (affinity.pod_affinity is not None or affinity.pod_anti_affinity is not None):
        return bool(attracted(pod) or repelled(pod))
    return any(constraint.when_unsatisfiable == HARD for constraint in pod.spec.topology_spread_constraints)


def is_kept_away(pod: Pod, company: PlacedPods) -> bool:
    """Return whether a placed pod has an anti-affinity term that matches this pod."""
    return next(company.keeping_away(pod), None) is not None


def checks(pod: Pod, company: PlacedPods) -> Iterator[NodeCheck]:
    """Yield the checks that a node must pass for this pod, given the pods placed now."""
    yield from _kept_away(pod, company)
    yield from _affinity(pod, company)
    yield from _anti_affinity(pod, company)
    yield from _spread(pod, company)


def _label(node: KubernetesNode, key: str) -> str | None:
    return node.metadata.labels.get(key)


def _not_in(key: str, taken: Collection[str]) -> Callable[[KubernetesNode], bool]:
    def admits(node: KubernetesNode) -> bool:
        return _label(node, key) not in taken

    return admits


def _kept_away(pod: Pod, company: PlacedPods) -> Iterator[NodeCheck]:
    for term, where in company.keeping_away(pod):
        taken = company.domains(term.key, where)
        yield NodeCheck("the anti-affinity of pods there excludes it", _not_in(term.key, taken))


def _affinity(pod: Pod, company: PlacedPods) -> Iterator[NodeCheck]:
    terms = attracted(pod)
    if not terms:
        return
    kin = tuple(term.kin for term in terms)
    where = company.where(PodCountQuery(kin))
    domains = {term.key: company.domains(term.key, where) for term in terms}
    # The first pod of a group with mutual affinity has no pod to be placed beside yet.
    first = not any(domains.values()) and company.is_one_of(kin, pod)

    def admits(node: KubernetesNode) -> bool:
        values = [(key, _label(node, key)) for key in domains]
        if any(value is None for _, value in values):
            return False
        return first or all(value in domains[key] for key, value in values)

    yield NodeCheck("the pods that its affinity requires are elsewhere", admits)


def _anti_affinity(pod: Pod, company: PlacedPods) -> Iterator[NodeCheck]:
    for term in repelled(pod):
        taken = company.domains(term.key, company.where(PodCountQuery((term.kin,))))
        yield NodeCheck("pods that its anti-affinity excludes are there", _not_in(term.key, taken))


def _spread(pod: Pod, company: PlacedPods) -> Iterator[NodeCheck]:
    hard = [constraint for constraint in pod.spec.topology_spread_constraints if constraint.when_unsatisfiable == HARD]
    if not hard:
        return
    keys = {constraint.topology_key for constraint in hard}
    counted = [node for node in company.nodes.values() if keys <= node.metadata.labels.keys()]
    for constraint in hard:
        yield _even(pod, constraint, company, [node for node in counted if _includes(constraint, pod, node)])


def _even(pod: Pod, one: TopologySpreadConstraint, company: PlacedPods, counted: list[KubernetesNode]) -> NodeCheck:
    kin = PodSelector(rule_of(_selector(one, pod)), frozenset({pod.metadata.namespace}))
    where = company.where(PodCountQuery((kin,), staying=True))
    by_domain: dict[str, int] = {}
    for node in counted:
        value = node.metadata.labels[one.topology_key]
        by_domain[value] = by_domain.get(value, 0) + where.get(node.metadata.name, 0)
    least = min(by_domain.values(), default=0)
    if len(by_domain) < (one.min_domains or 1):
        least = 0
    own_count = 1 if company.is_one_of((kin,), pod) else 0

    def admits(node: KubernetesNode) -> bool:
        value = _label(node, one.topology_key)
        return value is not None and by_domain.get(value, 0) + own_count - least <= one.max_skew

    return NodeCheck(f"its topology spread over {one.topology_key} would exceed maxSkew", admits)


def _selector(one: TopologySpreadConstraint, pod: Pod) -> LabelSelector | None:
    """Return the constraint's selector, extended by the pod's own values of `match_label_keys`."""
    if one.label_selector is None or not one.match_label_keys:
        return one.label_selector
    labels = pod.metadata.labels
    own_requirements = tuple(SelectorRequirement(key, "In", (labels[key],)) for key in one.match_label_keys if key in labels)
    return LabelSelector(one.label_selector.match_labels, one.label_selector.match_expressions + own_requirements)


def _includes(one: TopologySpreadConstraint, pod: Pod, node: KubernetesNode) -> bool:
    """Return whether the node counts when the spread is measured."""
    if one.node_affinity_policy != "Ignore" and not _is_selected(pod, node):
        return False
    if one.node_taints_policy != "Honor":
        return True
    taints = [taint for taint in node.spec.taints if taint.effect in node_filter.KEEPS_AWAY]
    return all(any(node_filter.tolerates(toleration, taint) for toleration in pod.spec.tolerations) for taint in taints)


def _is_selected(pod: Pod, node: KubernetesNode) -> bool:
    labels: Mapping[str, str] = node.metadata.labels
    return all(labels.get(name) == value for name, value in pod.spec.node_selector.items()) and node_filter.matches(pod, node)
