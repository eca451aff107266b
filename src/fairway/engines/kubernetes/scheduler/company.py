"""Who lies where, and beside whom nobody else may lie. Pure: kept in step by whoever follows the cluster.

Pods are counted by rules about their labels and namespaces. A rule is counted from the first time that somebody asks for it on,
and kept up to date from then; without pods that ask, nothing is counted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from fairway.engines.kubernetes.objects import LabelSelector, Node, Pod, PodAffinityTerm, Requirement
from fairway.engines.kubernetes.scheduler.fitting import meets


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule about labels, as a value that can be a key. It may match nothing at all."""

    equal: tuple[tuple[str, str], ...] = ()
    more: tuple[Requirement, ...] = ()
    nothing: bool = False

    def holds(self, labels: Mapping[str, str]) -> bool:
        """Whether the labels are so."""
        if self.nothing:
            return False
        return all(labels.get(name) == value for name, value in self.equal) and all(meets(one, labels) for one in self.more)


def rule_of(selector: LabelSelector | None) -> Rule:
    """A selector that is missing matches nothing; one that says nothing matches everything."""
    if selector is None:
        return Rule(nothing=True)
    return Rule(tuple(sorted(selector.match_labels.items())), selector.match_expressions)


@dataclass(frozen=True, slots=True)
class Kin:
    """Some pods: by their labels, in some namespaces."""

    labels: Rule
    namespaces: frozenset[str] = frozenset()
    spaces: Rule = Rule(nothing=True)
    """Besides those that are named: namespaces with such labels."""

    def holds(self, pod: Pod, spaces: Mapping[str, Mapping[str, str]]) -> bool:
        """Whether the pod is one of them."""
        own = pod.metadata.namespace
        if own not in self.namespaces and not self.spaces.holds(spaces.get(own, {})):
            return False
        return self.labels.holds(pod.metadata.labels)


@dataclass(frozen=True, slots=True)
class Term:
    """Beside these pods: in the same part of the cluster, by a label of its nodes."""

    key: str
    kin: Kin


def term_of(pod: Pod, asked: PodAffinityTerm) -> Term:
    """What a term means in this pod. Without any namespace, its own is meant."""
    named = frozenset(asked.namespaces)
    if not named and asked.namespace_selector is None:
        named = frozenset({pod.metadata.namespace})
    return Term(asked.topology_key, Kin(rule_of(asked.label_selector), named, rule_of(asked.namespace_selector)))


def attracted(pod: Pod) -> tuple[Term, ...]:
    """Beside whom the pod must lie."""
    affinity = pod.spec.affinity
    found = affinity.pod_affinity if affinity is not None else None
    return tuple(term_of(pod, term) for term in found.required) if found is not None else ()


def repelled(pod: Pod) -> tuple[Term, ...]:
    """Beside whom the pod must not lie."""
    affinity = pod.spec.affinity
    found = affinity.pod_anti_affinity if affinity is not None else None
    return tuple(term_of(pod, term) for term in found.required) if found is not None else ()


@dataclass(frozen=True, slots=True)
class Question:
    """How many pods lie on each node that are of all these kinds."""

    kin: tuple[Kin, ...]
    staying: bool = False
    """Whether those that are on their way out are left out."""


MOST_QUESTIONS = 2_000
"""So many rules are kept counted; with more, all are forgotten and counted anew when asked for."""


class Company:
    """All pods that lie somewhere, or are taken to."""

    def __init__(self) -> None:
        self.nodes: dict[str, Node] = {}
        self._lying: dict[str, tuple[Pod, str]] = {}
        self._spaces: dict[str, dict[str, str]] = {}
        self._counts: dict[Question, Counter[str]] = {}
        self._repelling: dict[Term, Counter[str]] = {}
        self.version = 0
        """Rises with every change."""
        self.terms = 0
        """Rises when somebody lies somewhere beside whom others may not lie, and nobody did who said the same."""

    # What is

    def node(self, name: str, found: Node | None) -> None:
        """A node is so, or is gone."""
        if found is None:
            self.nodes.pop(name, None)
        else:
            self.nodes[name] = found
        self.version += 1

    def space(self, name: str, labels: dict[str, str] | None) -> None:
        """A namespace has these labels, or is gone."""
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
        """The pod lies there; another value of it may have been known."""
        known = self._lying.get(key)
        if known is not None:
            if known[1] == node and _alike(known[0], pod):
                self._lying[key] = (pod, node)
                return
            self.drop(key)
        self._lying[key] = (pod, node)
        self._count(pod, node, 1)

    def drop(self, key: str) -> None:
        """It lies nowhere any more."""
        known = self._lying.pop(key, None)
        if known is not None:
            self._count(*known, -1)

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

    # What one may ask

    def where(self, question: Question) -> Mapping[str, int]:
        """By node: how many of them lie there."""
        found = self._counts.get(question)
        if found is None:
            if len(self._counts) >= MOST_QUESTIONS:
                self._counts.clear()
            found = self._counts[question] = Counter()
            for pod, node in self._lying.values():
                if self._is_meant(question, pod):
                    found[node] += 1
        return found

    def is_one_of(self, kin: tuple[Kin, ...], pod: Pod) -> bool:
        """Whether the pod itself is of all these kinds."""
        return all(one.holds(pod, self._spaces) for one in kin)

    def keeping_away(self, pod: Pod) -> Iterator[tuple[Term, Mapping[str, int]]]:
        """What others that lie somewhere say against this pod, and where they lie."""
        return ((term, where) for term, where in self._repelling.items() if term.kin.holds(pod, self._spaces))

    def domains(self, key: str, where: Mapping[str, int]) -> Counter[str]:
        """The same by the values of a label of the nodes."""
        found: Counter[str] = Counter()
        for name, count in where.items():
            node = self.nodes.get(name)
            value = node.metadata.labels.get(key) if node is not None else None
            if value is not None:
                found[value] += count
        return found

    def _is_meant(self, question: Question, pod: Pod) -> bool:
        if question.staying and pod.metadata.deletion_timestamp is not None:
            return False
        return self.is_one_of(question.kin, pod)


def _add(counts: Counter[str], node: str, times: int) -> None:
    counts[node] += times
    if not counts[node]:
        del counts[node]


def _alike(before: Pod, now: Pod) -> bool:
    """Whether nothing changed by which others count it; terms of a pod cannot change."""
    leaves = (before.metadata.deletion_timestamp is None) is not (now.metadata.deletion_timestamp is None)
    return not leaves and before.metadata.labels == now.metadata.labels and before.metadata.uid == now.metadata.uid
