"""The node agent: its DaemonSet, its account, and the policy that restricts it to its own node. Pure."""

from __future__ import annotations

from fairway.engines.kubernetes.agent.gpu_node_report import CONDITION, TAINT
from fairway.engines.kubernetes.identity.pod_authenticator import projected
from fairway.engines.kubernetes.install.deployment import USER, endpoint
from fairway.engines.kubernetes.install.rbac_rule import CLUSTER_RULES
from fairway.engines.kubernetes.install.section import PART_OF, Manifest, head
from fairway.engines.kubernetes.install.service_account import cluster_role
from fairway.engines.kubernetes.operator.installation import InstallationSettings
from fairway.runtime.secured.pod_certificate import TOKEN_FOLDER
from fairway.spec.custom_resource import GROUP

NAME = "fairway-agent"
PORT = 8081
ADMISSION = "admissionregistration.k8s.io/v1"
AUTHORITY = "fairway-authority"
"""The ConfigMap with the operator's certificate authority. It is installed empty: the operator writes it."""
AUTHORITY_FILE = "ca.pem"
AUTHORITY_FOLDER = "/etc/fairway-authority"


def agent(installation: InstallationSettings) -> list[Manifest]:
    """Return all objects of the agents, in order."""
    authority = head("ConfigMap", AUTHORITY, installation.namespace)
    return [*account(installation.namespace), *policy(installation.namespace), authority, _daemon_set(installation)]


def account(namespace: str) -> list[Manifest]:
    """Return the service account of the agents and its cluster role.

    Roles cannot distinguish nodes, so it applies to all nodes.
    """
    return [_head("ServiceAccount", "v1", namespace), *cluster_role(NAME, CLUSTER_RULES["agent"], NAME, namespace)]


def policy(namespace: str) -> list[Manifest]:
    """Return the policy by which an agent may only write to the node of its token, and there only its condition and its taint."""
    user = f"system:serviceaccount:{namespace}:{NAME}"
    own = "request.userInfo.extra[?'authentication.kubernetes.io/node-name'][0].orValue('')"
    rules = [
        _rule(GROUP, ["CREATE", "UPDATE", "DELETE"], "gpunodes", "gpunodes/status"),
        _rule("", ["UPDATE"], "nodes", "nodes/status"),
    ]
    of_node = "request.resource.resource != 'nodes'"
    spec = {
        "failurePolicy": "Fail",
        "matchConstraints": {"resourceRules": rules},
        "matchConditions": [{"name": "agents", "expression": f"request.userInfo.username == '{user}'"}],
        "variables": [
            {"name": "own", "expression": own},
            {"name": "name", "expression": "(request.operation == 'DELETE' ? oldObject : object).metadata.name"},
        ],
        "validations": [
            {
                "expression": "variables.own != '' && variables.name == variables.own",
                "messageExpression": "'an agent may only write to its own node: ' + variables.own + ', not ' + variables.name",
            },
            {
                "expression": f"{of_node} || {_same_but('spec', 'taints', 'key', TAINT.key)}",
                "message": f"an agent may change no taint but {TAINT.key}",
            },
            {
                "expression": f"{of_node} || {_same_but('status', 'conditions', 'type', CONDITION)}",
                "message": f"an agent may change no condition but {CONDITION}",
            },
            {
                "expression": f"{of_node} || {_same('metadata', 'labels')} && {_same('spec', 'unschedulable')}"
                f" && {_same('status', 'capacity')} && {_same('status', 'allocatable')}",
                "message": "an agent may change nothing else of a node",
            },
        ],
    }
    binding = {"policyName": NAME, "validationActions": ["Deny"]}
    return [
        {**_head("ValidatingAdmissionPolicy", ADMISSION), "spec": spec},
        {**_head("ValidatingAdmissionPolicyBinding", ADMISSION), "spec": binding},
    ]


def _rule(group: str, operations: list[str], *resources: str) -> Manifest:
    return {"apiGroups": [group], "apiVersions": ["*"], "operations": operations, "resources": list(resources)}


def _same(part: str, field: str) -> str:
    """Return a CEL expression: the field is equal on both sides, or missing on both."""
    new, old = f"object.{part}", f"oldObject.{part}"
    return f"(has({new}.{field}) == has({old}.{field}) && (!has({new}.{field}) || {new}.{field} == {old}.{field}))"


def _same_but(part: str, field: str, key: str, own: str) -> str:
    """Return a CEL expression: the entries of a list are the same, except for ours."""
    sides = (
        f"(has({side}.{part}.{field}) ? {side}.{part}.{field} : []).filter(one, one.{key} != '{own}')"
        for side in ("object", "oldObject")
    )
    return " == ".join(sides)


def _daemon_set(installation: InstallationSettings) -> Manifest:
    labels = {"app.kubernetes.io/name": NAME}
    container = {
        "name": "agent",
        "image": installation.image,
        "command": ["python3", "-m", "fairway.engines.kubernetes.agent"],
        "env": _variables(installation),
        "ports": [{"containerPort": PORT, "name": "use"}],
        "resources": {"requests": {"cpu": "10m", "memory": "64Mi"}, "limits": {"memory": "256Mi"}},
        "volumeMounts": [
            {"name": name, "mountPath": path, "readOnly": True}
            for name, path in (("authority", AUTHORITY_FOLDER), ("operator", TOKEN_FOLDER))
        ],
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
    }
    pod: Manifest = {
        "serviceAccountName": NAME,
        "priorityClassName": "system-node-critical",
        "containers": [container],
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": USER,
            "runAsGroup": USER,
            "fsGroup": USER,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "volumes": [
            {"name": "authority", "configMap": {"name": AUTHORITY, "optional": True}},
            {"name": "operator", **projected()},
        ],
        # It must run on tainted nodes, too; its reports matter there most.
        "tolerations": [{"operator": "Exists"}],
        "nodeSelector": {"kubernetes.io/os": "linux", **installation.gpu_nodes},
        **({"runtimeClassName": installation.gpu_runtime_class} if installation.gpu_runtime_class else {}),
    }
    return {
        **_head("DaemonSet", "apps/v1", installation.namespace),
        "spec": {
            "selector": {"matchLabels": labels},
            "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "10%"}},
            "template": {"metadata": {"labels": {**labels, **PART_OF}}, "spec": pod},
        },
    }


def _variables(installation: InstallationSettings) -> list[Manifest]:
    return [
        {"name": "FAIRWAY_AGENT_NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
        {"name": "FAIRWAY_AGENT_ADDRESS", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
        {"name": "FAIRWAY_AGENT_PORT", "value": str(PORT)},
        {"name": "FAIRWAY_AGENT_ASKED_BY", "value": f"system:serviceaccount:{installation.namespace}:fairway-operator"},
        {"name": "FAIRWAY_AGENT_OPERATOR", "value": endpoint(installation)},
        {"name": "FAIRWAY_AGENT_AUTHORITY", "value": f"{AUTHORITY_FOLDER}/{AUTHORITY_FILE}"},
        {"name": "FAIRWAY_AGENT_MANAGED", "value": "true" if installation.gpus == "fairway" else "false"},
        # NVIDIA's runtime adds NVML, and nothing for computing: no privilege is needed.
        {"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"},
        {"name": "NVIDIA_DRIVER_CAPABILITIES", "value": "utility"},
    ]


def _head(kind: str, api: str, namespace: str = "") -> Manifest:
    return head(kind, NAME, namespace, api)
