"""Who may do what: each process has its own account, and only what it uses."""

from __future__ import annotations

from typing import Any

from fairway.spec.crd import GROUP

Rule = dict[str, Any]


def _rule(group: str, resources: tuple[str, ...], *verbs: str) -> Rule:
    return {"apiGroups": [group], "resources": list(resources), "verbs": list(verbs)}


FOLLOW = ("list", "watch")

CLUSTER_RULES: dict[str, tuple[Rule, ...]] = {
    "operator": (
        _rule(GROUP, ("trainingjobs",), *FOLLOW),
        # Children name their owner with `blockOwnerDeletion`, which asks for this.
        _rule(GROUP, ("trainingjobs/finalizers",), "update"),
        _rule(GROUP, ("trainingjobs/status",), "patch"),
        # A pod that is there already is looked at: it may be somebody else's.
        _rule("", ("pods",), *FOLLOW, "get", "create", "delete", "patch"),
        _rule("", ("pods/log",), "get"),
        # A container is entered to tell its program that it should end.
        _rule("", ("pods/exec",), "get", "create"),
        _rule("", ("services",), *FOLLOW, "get", "create", "patch", "delete"),
        _rule("", ("secrets",), "create"),
        # The plan that a service's router begins with.
        _rule("", ("configmaps",), "create", "patch"),
        # A revision of a service, and its router.
        _rule("apps", ("deployments",), *FOLLOW, "get", "create", "patch", "delete"),
        # The way to services by a gateway, where there is one.
        _rule("gateway.networking.k8s.io", ("gateways", "gatewayclasses"), "get"),
        _rule("gateway.networking.k8s.io", ("httproutes",), "get", "create", "patch", "delete"),
        # Whose routes a gateway takes is said by labels of namespaces.
        _rule("", ("namespaces",), "get"),
        # Where the Service of a service leads, when it is not to our router; what it led to before is left behind otherwise.
        _rule("discovery.k8s.io", ("endpointslices",), "list", "create", "patch", "delete"),
        _rule("", ("endpoints",), "delete"),
        _rule(GROUP, ("modelservices",), *FOLLOW),
        _rule(GROUP, ("modelservices/status",), "patch"),
        # What happened to a run is told on its object; why a pod does not begin is read.
        _rule("events.k8s.io", ("events",), "create", "list"),
        _rule("", ("nodes",), *FOLLOW),
        # What pods use, where metrics-server is there.
        _rule("metrics.k8s.io", ("pods",), "list"),
        # Which GPUs nodes have, and who hands them out.
        _rule(GROUP, ("gpunodes",), "list", "watch"),
        # What callers change through the record is changed in objects, after the API server was asked whether they may.
        _rule(GROUP, ("trainingjobs", "modelservices"), "create", "patch", "delete"),
        _rule(GROUP, ("jobqueues",), *FOLLOW, "create", "patch", "delete"),
        _rule("authorization.k8s.io", ("subjectaccessreviews",), "create"),
        # A pod that asks for its certificate shows a token, and the API server says for which pod it was made.
        _rule("authentication.k8s.io", ("tokenreviews",), "create"),
        # The API server must know our certificate.
        {**_rule("apiregistration.k8s.io", ("apiservices",), "patch"), "resourceNames": ["v1alpha1.record.fairway.dev"]},
    ),
    "scheduler": (
        _rule(GROUP, ("jobqueues", "gpunodes"), *FOLLOW),
        # How queues stand is said on them.
        _rule(GROUP, ("jobqueues/status",), "patch"),
        # What became of a binding that nobody confirmed is looked up.
        _rule("", ("pods",), *FOLLOW, "get", "patch", "delete"),
        _rule("", ("pods/status",), "patch"),
        _rule("", ("pods/binding", "pods/eviction"), "create"),
        _rule("", ("nodes",), *FOLLOW),
        # Rules of pods about other pods name namespaces by their labels.
        _rule("", ("namespaces",), *FOLLOW),
        # A claim that waits for its first consumer is told the node; a volume that is there is promised to its claim.
        _rule("", ("persistentvolumeclaims", "persistentvolumes"), *FOLLOW, "patch"),
        _rule("storage.k8s.io", ("storageclasses", "csinodes"), *FOLLOW),
        _rule("events.k8s.io", ("events",), "create"),
    ),
    # Only for its own node: an admission policy sees to that (`install/agent.py`).
    "agent": (
        _rule(GROUP, ("gpunodes",), "list", "watch", "create"),
        _rule(GROUP, ("gpunodes/status",), "patch"),
        _rule("", ("nodes",), "list", "watch", "patch"),
        _rule("", ("nodes/status",), "patch"),
        # Who asks how busy GPUs are shows a token, which the API server judges.
        _rule("authentication.k8s.io", ("tokenreviews",), "create"),
    ),
}
"""By process: what it may do in the whole cluster."""

OWN_RULES: dict[str, tuple[Rule, ...]] = {
    process: (_rule("coordination.k8s.io", ("leases",), "get", "create", "update"),)
    for process in CLUSTER_RULES
    if process != "agent"  # There is one on every node, and each acts.
}
"""By process: what it may do in its own namespace, where its lease lies."""
# What the scheduler must not forget lies in a ConfigMap.
OWN_RULES["scheduler"] += (_rule("", ("configmaps",), "get", "create", "patch"),)

NEIGHBOUR_RULES: dict[str, tuple[Rule, ...]] = {
    # Why a group of pods is not admitted stands in its Workload.
    "kueue": (_rule("kueue.x-k8s.io", ("workloads",), *FOLLOW),),
    # A gang is an object that we make, and says itself why it waits.
    "volcano": (_rule("scheduling.volcano.sh", ("podgroups",), *FOLLOW, "create", "patch"),),
    "kai": (_rule("scheduling.run.ai", ("podgroups",), *FOLLOW, "create", "patch"),),
}
"""By neighbour: what the operator may do beside, where that neighbour queues and places."""
