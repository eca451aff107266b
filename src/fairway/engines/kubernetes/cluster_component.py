"""Third-party components on the cluster: detected by the API groups that it serves, used where they help, never required.

Pure. Where Kueue, Volcano or KAI is responsible for queueing and placement, it stays so: pods get the labels and annotations
that it reads, and the reason why they wait is read from its objects.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

Manifest = dict[str, Any]

KUEUE, VOLCANO, KAI = "kueue", "volcano", "kai"
QUEUEING = {KUEUE: "kueue.x-k8s.io", VOLCANO: "scheduling.volcano.sh", KAI: "scheduling.run.ai"}
"""Queueing systems by the API group that reveals them; the first one that is present is used."""
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
"""API version of the gang object that we create, for systems that need one; its kind is PodGroup for both."""
TELLING = {KUEUE: ("kueue.x-k8s.io/v1beta1", "Workload"), **{name: (api, "PodGroup") for name, api in GROUP_OBJECTS.items()}}
"""The object that holds the reason why a gang waits: API version and kind."""


@dataclass(frozen=True, slots=True)
class ClusterComponents:
    """The components that were detected."""

    queueing: str = ""
    """The queueing system: a key of `QUEUEING`; empty when there is none."""
    prometheus: bool = False
    cert_manager: bool = False
    metrics: bool = False

    def said(self, *, theirs: bool) -> list[str]:
        """Return messages about what their presence changes. `theirs`: whether the cluster places pods, and not Fairway."""
        words = []
        if self.queueing and theirs:
            words.append(
                f"{self.queueing} is installed: it keeps queueing and placing pods (--scheduler fairway makes Fairway do both)"
            )
        elif self.queueing:
            words.append(f"{self.queueing} is installed; Fairway still queues and places its own pods, as requested")
        if self.prometheus:
            words.append("a Prometheus operator is installed: a PodMonitor makes it scrape Fairway")
        if self.cert_manager:
            words.append("cert-manager is installed; it is not needed")
        if self.metrics:
            words.append("metrics-server is installed; it is not needed")
        return words


def found(groups: Collection[str]) -> ClusterComponents:
    """Detect components by the API groups of a cluster."""
    queueing = next((name for name, group in QUEUEING.items() if group in groups), "")
    return ClusterComponents(queueing, PROMETHEUS in groups, CERT_MANAGER in groups, METRICS in groups)


@dataclass(frozen=True, slots=True)
class QueuedGang:
    """What a queueing system must know of the pods of one attempt."""

    name: str
    """The run's name."""
    namespace: str
    attempt: int
    size: int
    queue: str
    owner: Manifest | None = None

    @property
    def group(self) -> str:
        """The group's name, different for each attempt: pods of an ended attempt no longer count."""
        return f"{self.name}-a{self.attempt}"


def dressed(pod: Manifest, gang: QueuedGang, queueing: str) -> Manifest:
    """Return the pod with the labels and annotations of that queueing system; unchanged where there is none."""
    if not queueing:
        return pod
    metadata, spec = pod["metadata"], pod["spec"]
    labels, annotations = dict(metadata.get("labels", {})), dict(metadata.get("annotations", {}))
    if queueing == KUEUE:
        labels |= {KUEUE_QUEUE: gang.queue, KUEUE_GROUP: gang.group}
        # Failed pods are not replaced one by one: the next attempt is another group.
        annotations |= {KUEUE_COUNT: str(gang.size), KUEUE_RETRIABLE: "false"}
        return {**pod, "metadata": {**metadata, "labels": labels, "annotations": annotations}}
    if queueing == VOLCANO:
        annotations |= {VOLCANO_GROUP: gang.group}
        spec = {**spec, "schedulerName": VOLCANO_SCHEDULER}
        return {**pod, "metadata": {**metadata, "annotations": annotations}, "spec": spec}
    labels |= {KAI_QUEUE: gang.queue}
    annotations |= {KAI_GROUP: gang.group, KAI_GROUPED: "true"}
    # Before KAI had that annotation, it put each pod with an owner into a group of its own. For pods without an owner it used the
    # given group.
    kept = {name: value for name, value in metadata.items() if name != "ownerReferences"}
    spec = {**spec, "schedulerName": KAI_SCHEDULER}
    return {**pod, "metadata": {**kept, "labels": labels, "annotations": annotations}, "spec": spec}


def group_of(gang: QueuedGang, queueing: str) -> Manifest | None:
    """Return the object that groups the pods into a gang; None where labels do."""
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
    """Return the group that a pod was put into; empty when there is none."""
    return pod_labels.get(KUEUE_GROUP, "") or pod_annotations.get(VOLCANO_GROUP, "") or pod_annotations.get(KAI_GROUP, "")


def reason(queueing: str, told: Mapping[str, Any]) -> str:
    """Return why a gang waits, from the object in `TELLING`; empty when it does not wait."""
    status = told.get("status") or {}
    if queueing == KUEUE:
        return _of_kueue(status.get("conditions") or ())
    if queueing == VOLCANO:
        return _of_volcano(status)
    return _of_kai(status)


def _of_kueue(conditions: Iterable[Mapping[str, Any]]) -> str:
    by_type = {condition.get("type"): condition for condition in conditions}
    for name in ("Evicted", "QuotaReserved", "Admitted"):
        condition = by_type.get(name)
        if condition is None:
            continue
        waits = condition.get("status") == ("True" if name == "Evicted" else "False")
        if waits and not (name == "Evicted" and by_type.get("Admitted", {}).get("status") == "True"):
            return f"Kueue: {condition.get('message') or condition.get('reason')}"
    return "" if by_type else "Kueue has not processed it yet"


def _of_volcano(status: Mapping[str, Any]) -> str:
    waits = [
        condition
        for condition in status.get("conditions") or ()
        if condition.get("type") == "Unschedulable" and condition.get("status") == "True"
    ]
    if waits:
        return f"Volcano: {waits[-1].get('message') or waits[-1].get('reason')}"
    return "Volcano: its queue has no room for it yet" if status.get("phase") == "Pending" else ""


def _of_kai(status: Mapping[str, Any]) -> str:
    waits = status.get("schedulingConditions") or ()
    if not waits:
        return ""
    last = waits[-1]
    words = [item["message"] for item in last.get("reasons") or () if item.get("message")]
    return f"KAI: {'; '.join(words) or last.get('message') or last.get('reason')}"
