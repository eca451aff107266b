"""Third-party components on the cluster: what pods carry for them, and what their objects report."""

from __future__ import annotations

from typing import Any

import pytest

from fairway.engines.kubernetes import cluster_component
from fairway.engines.kubernetes.cluster_component import QueuedGang, dressed, found, group_named, group_of, reason

OWNER = {"kind": "TrainingJob", "name": "mnist", "uid": "1"}
GANG = QueuedGang("mnist", "team", attempt=2, size=4, queue="research", owner=OWNER)


def pod() -> dict[str, Any]:
    metadata = {"name": "mnist-worker-0-r2", "labels": {"a": "b"}, "annotations": {"c": "d"}, "ownerReferences": [OWNER]}
    return {"metadata": metadata, "spec": {"containers": []}}


def test_neighbours_are_known_by_their_groups() -> None:
    assert found({"apps"}) == cluster_component.ClusterComponents()
    assert found({"scheduling.volcano.sh"}).queueing == "volcano"
    assert found({"scheduling.run.ai"}).queueing == "kai"
    assert found({"kueue.x-k8s.io", "scheduling.volcano.sh"}).queueing == "kueue"
    rest = found({"cert-manager.io", "metrics.k8s.io"})
    assert (rest.cert_manager, rest.metrics, rest.prometheus) == (True, True, False)
    assert rest.said(theirs=False) == [
        "cert-manager is installed; it is not needed",
        "metrics-server is installed; it is not needed",
    ]


def test_where_nobody_queues_pods_are_as_they_were() -> None:
    assert dressed(pod(), GANG, "") == pod()
    assert group_of(GANG, "") is None


def test_kueue_admits_the_pods_of_an_attempt_as_one_group() -> None:
    made = dressed(pod(), GANG, "kueue")
    assert made["metadata"]["labels"] == {
        "a": "b",
        "kueue.x-k8s.io/queue-name": "research",
        "kueue.x-k8s.io/pod-group-name": "mnist-a2",
    }
    assert made["metadata"]["annotations"]["kueue.x-k8s.io/pod-group-total-count"] == "4"
    assert "schedulerName" not in made["spec"]
    assert group_of(GANG, "kueue") is None
    assert group_named(made["metadata"]["labels"], made["metadata"]["annotations"]) == "mnist-a2"


def test_volcano_gets_a_group_that_goes_with_the_job() -> None:
    made, group = dressed(pod(), GANG, "volcano"), group_of(GANG, "volcano")
    assert made["spec"]["schedulerName"] == "volcano"
    assert group is not None
    assert made["metadata"]["annotations"]["scheduling.k8s.io/group-name"] == group["metadata"]["name"] == "mnist-a2"
    assert group["spec"] == {"minMember": 4, "queue": "research"}
    assert group["metadata"]["ownerReferences"] == [OWNER]


def test_kai_takes_groups_of_pods_that_nobody_owns() -> None:
    made, group = dressed(pod(), GANG, "kai"), group_of(GANG, "kai")
    assert made["spec"]["schedulerName"] == "kai-scheduler"
    assert made["metadata"]["labels"]["kai.scheduler/queue"] == "research"
    assert made["metadata"]["annotations"]["pod-group-name"] == "mnist-a2"
    assert made["metadata"]["annotations"]["kai.scheduler/skip-podgrouper"] == "true"
    assert "ownerReferences" not in made["metadata"]
    assert group is not None
    assert group["apiVersion"] == "scheduling.run.ai/v2alpha2"


def condition(type_: str, status: str, message: str = "", reason: str = "") -> dict[str, str]:
    return {"type": type_, "status": status, "message": message, "reason": reason}


QUOTA = "couldn't assign flavors to pod set main: insufficient unused quota for cpu in flavor default, 2 more needed"


@pytest.mark.parametrize(
    ("who", "status", "words"),
    [
        ("kueue", {"conditions": [condition("QuotaReserved", "False", QUOTA)]}, f"Kueue: {QUOTA}"),
        (
            "kueue",
            {"conditions": [condition("QuotaReserved", "True"), condition("Admitted", "False", "checks")]},
            "Kueue: checks",
        ),
        (
            "kueue",
            {"conditions": [condition("Evicted", "True", "Preempted to accommodate a workload")]},
            "Kueue: Preempted to accom",
        ),
        ("kueue", {"conditions": [condition("QuotaReserved", "True"), condition("Admitted", "True")]}, ""),
        ("kueue", {}, "Kueue has not processed it yet"),
        (
            "volcano",
            {"phase": "Inqueue", "conditions": [condition("Unschedulable", "True", "3/3 unready")]},
            "Volcano: 3/3 unready",
        ),
        ("volcano", {"phase": "Pending"}, "Volcano: its queue has no room for it yet"),
        ("volcano", {"phase": "Running", "conditions": [condition("Scheduled", "True")]}, ""),
        ("kai", {"schedulingConditions": [{"reasons": [{"reason": "A", "message": "over quota"}]}]}, "KAI: over quota"),
        ("kai", {"schedulingConditions": [{"message": "no nodes"}]}, "KAI: no nodes"),
        ("kai", {}, ""),
    ],
)
def test_why_is_read_from_their_objects(who: str, status: dict[str, Any], words: str) -> None:
    said = reason(who, {"status": status})
    assert said.startswith(words) if words else said == ""
