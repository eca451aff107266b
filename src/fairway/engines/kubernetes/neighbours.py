"""Who else is on the cluster: found by the API groups that it serves, used where they help, never needed. Pure.

Where Kueue, Volcano or KAI queue and place, that stays theirs: pods carry what they read, and why they wait is read from their
objects.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

Manifest = dict[str, Any]

KUEUE, VOLCANO, KAI = "kueue", "volcano", "kai"
QUEUEING = {KUEUE: "kueue.x-k8s.io", VOLCANO: "scheduling.volcano.sh", KAI: "scheduling.run.ai"}
"""Whoever queues, by the group that says that it is there; the first that is found is asked."""
PROMETHEUS = "monitoring.coreos.com"
CERT_MANAGER = "cert-manager.io"
METRICS = "metrics.k8s.io"

KUEUE_QUEUE = "kueue.x-k8s.io/queue-name"
KUEUE_GROUP = "kueue.x-k8s.io/pod-group-name"
KUEUE_COUNT = "kueue.x-k8s.io/pod-group-total-count"
KUEUE_RETRIABLE = "kueue.x-k8s.io/retriable-in-group"
VOLCANO_GROUP = "scheduling.k8s.io/group-name"
VOLCANO_SCHEDULER = "volcano"
KAI_QUEUE = "kai.scheduler/queue"
KAI_GROUP = "pod-group-name"
KAI_GROUPED = "kai.scheduler/skip-podgrouper"
KAI_SCHEDULER = "kai-scheduler"

GROUP_OBJECTS = {VOLCANO: "scheduling.volcano.sh/v1beta1", KAI: "scheduling.run.ai/v2alpha2"}
"""Where a gang is an object that we make: its API version; the kind is PodGroup for both."""
TELLING = {KUEUE: ("kueue.x-k8s.io/v1beta1", "Workload"), **{name: (api, "PodGroup") for name, api in GROUP_OBJECTS.items()}}
"""Which of their objects says why a gang waits."""


@dataclass(frozen=True, slots=True)
class Neighbours:
    """Who was found."""

    queueing: str = ""
    """Who queues: a key of `QUEUEING`; empty: nobody."""
    prometheus: bool = False
    cert_manager: bool = False
    metrics: bool = False

    def said(self, *, theirs: bool) -> list[str]:
        """What their being there changes, in words. `theirs`: whether the cluster places, and not Fairway."""
        words = []
        if self.queueing and theirs:
            words.append(f"{self.queueing} is there: queueing and placing stay its own (--scheduler fairway takes them over)")
        elif self.queueing:
            words.append(f"{self.queueing} is there; Fairway queues and places its own pods all the same, as was said")
        if self.prometheus:
            words.append("a Prometheus operator is there: a PodMonitor tells it of our processes")
        if self.cert_manager:
            words.append("cert-manager is there; it is not needed")
        if self.metrics:
            words.append("metrics-server is there; it is not needed")
        return words


def found(groups: Collection[str]) -> Neighbours:
    """Who the groups of a cluster's API tell of."""
    queueing = next((name for name, group in QUEUEING.items() if group in groups), "")
    return Neighbours(queueing, PROMETHEUS in groups, CERT_MANAGER in groups, METRICS in groups)


@dataclass(frozen=True, slots=True)
class Gang:
    """What a neighbour must know of the pods of one attempt."""

    name: str
    """The run's."""
    namespace: str
    attempt: int
    size: int
    queue: str
    owner: Manifest | None = None

    @property
    def group(self) -> str:
        """The group's name, anew for each attempt: pods of an attempt that has ended count no more."""
        return f"{self.name}-a{self.attempt}"


def dressed(pod: Manifest, gang: Gang, queueing: str) -> Manifest:
    """The pod as that neighbour reads it; untouched where nobody queues."""
    if not queueing:
        return pod
    metadata, spec = pod["metadata"], pod["spec"]
    labels, annotations = dict(metadata.get("labels", {})), dict(metadata.get("annotations", {}))
    if queueing == KUEUE:
        labels |= {KUEUE_QUEUE: gang.queue, KUEUE_GROUP: gang.group}
        # Who failed is not replaced one by one: the next attempt is another group.
        annotations |= {KUEUE_COUNT: str(gang.size), KUEUE_RETRIABLE: "false"}
        return {**pod, "metadata": {**metadata, "labels": labels, "annotations": annotations}}
    if queueing == VOLCANO:
        annotations |= {VOLCANO_GROUP: gang.group}
        spec = {**spec, "schedulerName": VOLCANO_SCHEDULER}
        return {**pod, "metadata": {**metadata, "annotations": annotations}, "spec": spec}
    labels |= {KAI_QUEUE: gang.queue}
    annotations |= {KAI_GROUP: gang.group, KAI_GROUPED: "true"}
    # Before it knew that annotation KAI grouped pods that somebody owns itself, each alone; those of nobody it took as they say.
    kept = {name: value for name, value in metadata.items() if name != "ownerReferences"}
    spec = {**spec, "schedulerName": KAI_SCHEDULER}
    return {**pod, "metadata": {**kept, "labels": labels, "annotations": annotations}, "spec": spec}


def group_of(gang: Gang, queueing: str) -> Manifest | None:
    """The object that makes a gang of the pods; None where labels do."""
    if queueing not in GROUP_OBJECTS:
        return None
    metadata: Manifest = {"name": gang.group, "namespace": gang.namespace}
    return {
        "apiVersion": GROUP_OBJECTS[queueing],
        "kind": "PodGroup",
        "metadata": {**metadata, **({"ownerReferences": [gang.owner]} if gang.owner else {})},
        "spec": {"minMember": gang.size, "queue": gang.queue},
    }


def group_named(pod_labels: Mapping[str, str], pod_annotations: Mapping[str, str]) -> str:
    """The group that a pod was put into; empty: none."""
    return pod_labels.get(KUEUE_GROUP, "") or pod_annotations.get(VOLCANO_GROUP, "") or pod_annotations.get(KAI_GROUP, "")


def reason(queueing: str, told: Mapping[str, Any]) -> str:
    """Why a gang waits, from the object that says it; empty when it does not."""
    status = told.get("status") or {}
    if queueing == KUEUE:
        return _of_kueue(status.get("conditions") or ())
    if queueing == VOLCANO:
        return _of_volcano(status)
    return _of_kai(status)


def _of_kueue(conditions: Iterable[Mapping[str, Any]]) -> str:
    by_type = {one.get("type"): one for one in conditions}
    for name in ("Evicted", "QuotaReserved", "Admitted"):
        one = by_type.get(name)
        if one is None:
            continue
        waits = one.get("status") == ("True" if name == "Evicted" else "False")
        if waits and not (name == "Evicted" and by_type.get("Admitted", {}).get("status") == "True"):
            return f"Kueue: {one.get('message') or one.get('reason')}"
    return "" if by_type else "Kueue has not looked at it yet"


def _of_volcano(status: Mapping[str, Any]) -> str:
    waits = [one for one in status.get("conditions") or () if one.get("type") == "Unschedulable" and one.get("status") == "True"]
    if waits:
        return f"Volcano: {waits[-1].get('message') or waits[-1].get('reason')}"
    return "Volcano: its queue has no room for it yet" if status.get("phase") == "Pending" else ""


def _of_kai(status: Mapping[str, Any]) -> str:
    waits = status.get("schedulingConditions") or ()
    if not waits:
        return ""
    last = waits[-1]
    words = [one["message"] for one in last.get("reasons") or () if one.get("message")]
    return f"KAI: {'; '.join(words) or last.get('message') or last.get('reason')}"
