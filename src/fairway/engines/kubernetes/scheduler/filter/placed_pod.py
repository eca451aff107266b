"""The placed pods, counted by node, and the anti-affinity terms among them. Pure: the caller keeps it in step with the cluster.

Pods are counted by selectors of labels and namespaces. A count starts with the first query for it and is kept up to date from
then on; without pods that need a count, none is kept.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from fairway.engines.kubernetes.objects import KubernetesNode, LabelSelector, Pod, PodAffinityTerm, SelectorRequirement
from fairway.engines.kubernetes.scheduler.node_filter import meets


@dataclass(frozen=True, slots=True)
class LabelRule:
    """A label selector as a hashable value. It may match nothing at all."""

    equal: tuple[tuple[str, str], ...] = ()
    more: tuple[SelectorRequirement, ...] = ()
    nothing: bool = False

    def holds(self, labels: Mapping[str, str]) -> bool:
        """Return whether the labels match."""
        if self.nothing:
            return False
        return all(labels.get(name) == value for name, value in self.equal) and all(
            meets(requirement, labels) for requirement in self.more
        )


def rule_of(selector: LabelSelector | None) -> LabelRule:
    """Return the rule of a selector. A missing selector matches nothing; an empty one matches everything."""
    if selector is None:
        return LabelRule(nothing=True)
    return LabelRule(tuple(sorted(selector.match_labels.items())), selector.match_expressions)


@dataclass(frozen=True, slots=True)
class PodSelector:
    """Selects pods by their labels, in some namespaces."""

    labels: LabelRule
    namespaces: frozenset[str] = frozenset()
    spaces: LabelRule = LabelRule(nothing=True)
    """Selects namespaces by their labels, besides those that are named."""

    def holds(self, pod: Pod, spaces: Mapping[str, Mapping[str, str]]) -> bool:
        """Return whether the pod is selected."""
        own = pod.metadata.namespace
        if own not in self.namespaces and not self.spaces.holds(spaces.get(own, {})):
            return False
        return self.labels.holds(pod.metadata.labels)


@dataclass(frozen=True, slots=True)
class AffinityTerm:
    """A pod (anti-)affinity term: the selected pods, and the node label that defines the topology domain."""

    key: str
    kin: PodSelector


def term_of(pod: Pod, asked: PodAffinityTerm) -> AffinityTerm:
    """Return the term as it applies to this pod. A term that names no namespace means the pod's own."""
    named = frozenset(asked.namespaces)
    if not named and asked.namespace_selector is None:
        named = frozenset({pod.metadata.namespace})
    return AffinityTerm(asked.topology_key, PodSelector(rule_of(asked.label_selector), named, rule_of(asked.namespace_selector)))


def attracted(pod: Pod) -> tuple[AffinityTerm, ...]:
    """Return the pod's required affinity terms."""
    affinity = pod.spec.affinity
    pod_affinity = affinity.pod_affinity if affinity is not None else None
    return tuple(term_of(pod, term) for term in pod_affinity.required) if pod_affinity is not None else ()


def repelled(pod: Pod) -> tuple[AffinityTerm, ...]:
    """Return the pod's required anti-affinity terms."""
    affinity = pod.spec.affinity
    anti_affinity = affinity.pod_anti_affinity if affinity is not None else None
    return tuple(term_of(pod, term) for term in anti_affinity.required) if anti_affinity is not None else ()


@dataclass(frozen=True, slots=True)
class PodCountQuery:
    """A query for the number of pods on each node that all these selectors match."""

    kin: tuple[PodSelector, ...]
    staying: bool = False
    """Whether to leave out pods that are being deleted."""


MOST_QUESTIONS = 2_000
"""Limit of counts kept; beyond it all are dropped and computed anew on demand."""


class PlacedPods:
    """All pods that are placed or assumed to be."""

    def __init__(self) -> None:
        self.nodes: dict[str, KubernetesNode] = {}
        self._lying: dict[str, tuple[Pod, str]] = {}
        self._spaces: dict[str, dict[str, str]] = {}
        self._counts: dict[PodCountQuery, Counter[str]] = {}
        self._repelling: dict[AffinityTerm, Counter[str]] = {}
        self.version = 0
        """Incremented on every change."""
        self.terms = 0
        """Incremented when a new anti-affinity term appears."""

    # Updates

    def node(self, name: str, found: KubernetesNode | None) -> None:
        """Add or replace a node; None removes it."""
        if found is None:
            self.nodes.pop(name, None)
        else:
            self.nodes[name] = found
        self.version += 1

    def space(self, name: str, labels: dict[str, str] | None) -> None:
        """Set the labels of a namespace; None removes it."""
        if self._spaces.get(name) == labels:
            return
        if labels is None:
            self._spaces.pop(name, None)
        else:
            self._spaces[name] = labels
        self._counts.clear()
        self.version += 1
        self.terms += 1

    def put(self, key: str, pod: Pod, node: str) -> None:
        """Record that the pod is on the node. Replaces what was recorded for its key."""
        placed = self._lying.get(key)
        if placed is not None:
            if placed[1] == node and _alike(placed[0], pod):
                self._lying[key] = (pod, node)
                return
            self.drop(key)
        self._lying[key] = (pod, node)
        self._count(pod, node, 1)

    def drop(self, key: str) -> None:
        """Remove the pod."""
        placed = self._lying.pop(key, None)
        if placed is not None:
            self._count(*placed, -1)

    def _count(self, pod: Pod, node: str, times: int) -> None:
        self.version += 1
        for question, counts in self._counts.items():
            if self._is_meant(question, pod):
                _add(counts, node, times)
        for term in repelled(pod):
            if term not in self._repelling:
                self._repelling[term] = Counter()
                self.terms += 1
            _add(self._repelling[term], node, times)
            if not self._repelling[term]:
                del self._repelling[term]

    # Queries

    def where(self, question: PodCountQuery) -> Mapping[str, int]:
        """Return how many of the pods are on each node."""
        counts = self._counts.get(question)
        if counts is None:
            if len(self._counts) >= MOST_QUESTIONS:
                self._counts.clear()
            counts = self._counts[question] = Counter()
            for pod, node in self._lying.values():
                if self._is_meant(question, pod):
                    counts[node] += 1
        return counts

    def is_one_of(self, kin: tuple[PodSelector, ...], pod: Pod) -> bool:
        """Return whether all these selectors match the pod."""
        return all(selector.holds(pod, self._spaces) for selector in kin)

    def keeping_away(self, pod: Pod) -> Iterator[tuple[AffinityTerm, Mapping[str, int]]]:
        """Yield the anti-affinity terms of placed pods that match this pod, with the number of pods that have each by node."""
        return ((term, where) for term, where in self._repelling.items() if term.kin.holds(pod, self._spaces))

    def domains(self, key: str, where: Mapping[str, int]) -> Counter[str]:
        """Return the counts by node summed up by the value of a node label."""
        totals: Counter[str] = Counter()
        for name, count in where.items():
            node = self.nodes.get(name)
            value = node.metadata.labels.get(key) if node is not None else None
            if value is not None:
                totals[value] += count
        return totals

    def _is_meant(self, question: PodCountQuery, pod: Pod) -> bool:
        if question.staying and pod.metadata.deletion_timestamp is not None:
            return False
        return self.is_one_of(question.kin, pod)


def _add(counts: Counter[str], node: str, times: int) -> None:
    counts[node] += times
    if not counts[node]:
        del counts[node]


def _alike(before: Pod, now: Pod) -> bool:
    """Return whether nothing changed that affects the counts; the terms of a pod cannot change."""
    leaves = (before.metadata.deletion_timestamp is None) is not (now.metadata.deletion_timestamp is None)
    return not leaves and before.metadata.labels == now.metadata.labels and before.metadata.uid == now.metadata.uid
