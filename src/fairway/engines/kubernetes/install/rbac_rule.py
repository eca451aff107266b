"""The RBAC rules of our processes: each has its own account, with only the rights that it uses."""

from __future__ import annotations

from typing import Any

from fairway.spec.custom_resource import GROUP

Rule = dict[str, Any]


def _rule(group: str, resources: tuple[str, ...], *verbs: str) -> Rule:
    return {"apiGroups": [group], "resources": list(resources), "verbs": list(verbs)}


FOLLOW = ("list", "watch")

CLUSTER_RULES: dict[str, tuple[Rule, ...]] = {
    "operator": (
        _rule(GROUP, ("trainingjobs",), *FOLLOW),
        # Children name their owner with `blockOwnerDeletion`, which requires this right.
        _rule(GROUP, ("trainingjobs/finalizers",), "update"),
        _rule(GROUP, ("trainingjobs/status",), "patch"),
        # An existing pod is read before it is adopted: it may not be the run's.
        _rule("", ("pods",), *FOLLOW, "get", "create", "delete", "patch"),
        _rule("", ("pods/log",), "get"),
        # A command in the container signals its program to end.
        _rule("", ("pods/exec",), "get", "create"),
        _rule("", ("services",), *FOLLOW, "get", "create", "patch", "delete"),
        _rule("", ("secrets",), "create"),
        # The plan with which a service's router starts.
        _rule("", ("configmaps",), "create", "patch"),
        # The revisions of a service, and its router.
        _rule("apps", ("deployments",), *FOLLOW, "get", "create", "patch", "delete"),
        # The route to services through a gateway, where there is one.
        _rule("gateway.networking.k8s.io", ("gateways", "gatewayclasses"), "get"),
        _rule("gateway.networking.k8s.io", ("httproutes",), "get", "create", "patch", "delete"),
        # The labels of namespaces decide whose routes a gateway accepts.
        _rule("", ("namespaces",), "get"),
        # Where the Service of a service leads, when it is not to our router; otherwise previous targets would remain.
        _rule("discovery.k8s.io", ("endpointslices",), "list", "create", "patch", "delete"),
        _rule("", ("endpoints",), "delete"),
        _rule(GROUP, ("modelservices",), *FOLLOW),
        _rule(GROUP, ("modelservices/status",), "patch"),
        # Events of a run are written for its object; Events of a pod show why it does not start.
        _rule("events.k8s.io", ("events",), "create", "list"),
        _rule("", ("nodes",), *FOLLOW),
        # What pods use, where metrics-server is installed.
        _rule("metrics.k8s.io", ("pods",), "list"),
        # Which GPUs nodes have, and what allocates them.
        _rule(GROUP, ("gpunodes",), "list", "watch"),
        # Changes through the record are made in objects, after the API server has authorized the caller.
        _rule(GROUP, ("trainingjobs", "modelservices"), "create", "patch", "delete"),
        _rule(GROUP, ("jobqueues",), *FOLLOW, "create", "patch", "delete"),
        _rule("authorization.k8s.io", ("subjectaccessreviews",), "create"),
        # A pod sends a token to get its certificate, and the API server reports for which pod the token was made.
        _rule("authentication.k8s.io", ("tokenreviews",), "create"),
        # The API server must trust our certificate.
        {**_rule("apiregistration.k8s.io", ("apiservices",), "patch"), "resourceNames": ["v1alpha1.record.fairway.dev"]},
    ),
    "scheduler": (
        _rule(GROUP, ("jobqueues", "gpunodes"), *FOLLOW),
        # The state of a queue is written to its status.
        _rule(GROUP, ("jobqueues/status",), "patch"),
        # The result of an unconfirmed binding is looked up.
        _rule("", ("pods",), *FOLLOW, "get", "patch", "delete"),
        _rule("", ("pods/status",), "patch"),
        _rule("", ("pods/binding", "pods/eviction"), "create"),
        _rule("", ("nodes",), *FOLLOW),
        # Rules of pods about other pods select namespaces by their labels.
        _rule("", ("namespaces",), *FOLLOW),
        # A claim that waits for its first consumer gets the node; an existing volume is bound to its claim.
        _rule("", ("persistentvolumeclaims", "persistentvolumes"), *FOLLOW, "patch"),
        _rule("storage.k8s.io", ("storageclasses", "csinodes"), *FOLLOW),
        _rule("events.k8s.io", ("events",), "create"),
    ),
    # Only for its own node: an admission policy enforces that (`install/node_agent.py`).
    "agent": (
        _rule(GROUP, ("gpunodes",), "list", "watch", "create"),
        _rule(GROUP, ("gpunodes/status",), "patch"),
        _rule("", ("nodes",), "list", "watch", "patch"),
        _rule("", ("nodes/status",), "patch"),
        # A request for GPU usage has a token, which the API server reviews.
        _rule("authentication.k8s.io", ("tokenreviews",), "create"),
    ),
}
"""By process: its rights in the whole cluster."""

OWN_RULES: dict[str, tuple[Rule, ...]] = {
    process: (_rule("coordination.k8s.io", ("leases",), "get", "create", "update"),)
    for process in CLUSTER_RULES
    if process != "agent"  # There is one on every node, and each acts.
}
"""By process: its rights in its own namespace, where its lease is."""
# The scheduler's persistent state is in a ConfigMap.
OWN_RULES["scheduler"] += (_rule("", ("configmaps",), "get", "create", "patch"),)

NEIGHBOUR_RULES: dict[str, tuple[Rule, ...]] = {
    # The Workload shows why a group of pods is not admitted.
    "kueue": (_rule("kueue.x-k8s.io", ("workloads",), *FOLLOW),),
    # A gang is an object that we create, and that shows why the gang waits.
    "volcano": (_rule("scheduling.volcano.sh", ("podgroups",), *FOLLOW, "create", "patch"),),
    "kai": (_rule("scheduling.run.ai", ("podgroups",), *FOLLOW, "create", "patch"),),
}
"""By neighbour: the operator's further rights where that neighbour is used for queueing and placement."""
