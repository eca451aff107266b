"""Policies by which only Fairway writes the annotations that decide a pod's turn. Pure.

They are: queue, user, priority, submission, time limit. Pods of runs are created by the operator. Pods of services are created by
the cluster's own controllers from templates that the operator writes. So the templates are guarded like the pods, and the
controllers may copy them. Existing values may stay.
"""

from __future__ import annotations

from collections.abc import Mapping

from fairway.engines.kubernetes import annotation
from fairway.engines.kubernetes.install.section import Manifest, head

NAME = "fairway-pod-marks"
ADMISSION = "admissionregistration.k8s.io/v1"
MANAGER = "system:kube-controller-manager"
"""The user of controllers that have no accounts of their own."""
_CONTROLLERS = "system:serviceaccount:kube-system"
_TEMPLATED = {
    "": ("replicationcontrollers",),
    "apps": ("deployments", "replicasets", "statefulsets", "daemonsets"),
    "batch": ("jobs",),
}


def pod_marks(namespace: str) -> list[Manifest]:
    """Return the policies and their bindings."""
    operator = f"system:serviceaccount:{namespace}:fairway-operator"
    copying = {"replicaset-controller": "pods", "deployment-controller": "replicasets"}
    makers = {resource: f"{_CONTROLLERS}:{account}" for account, resource in copying.items()}
    pods = {"": ("pods",)}
    scheduled = {"batch": ("cronjobs",)}
    return [
        *_policy(NAME, pods, "metadata", (operator, makers["pods"], MANAGER)),
        *_policy(f"{NAME}-templates", _TEMPLATED, "spec.template.?metadata", (operator, makers["replicasets"], MANAGER)),
        *_policy(f"{NAME}-schedules", scheduled, "spec.jobTemplate.spec.template.?metadata", (operator,)),
    ]


def _policy(name: str, kinds: Mapping[str, tuple[str, ...]], place: str, makers: tuple[str, ...]) -> list[Manifest]:
    rules = [
        {"apiGroups": [group], "apiVersions": ["*"], "operations": ["CREATE", "UPDATE"], "resources": list(resources)}
        for group, resources in kinds.items()
    ]
    others = " && ".join(f"request.userInfo.username != '{user}'" for user in makers)
    spec = {
        "failurePolicy": "Fail",
        "matchConstraints": {"resourceRules": rules},
        "matchConditions": [{"name": "others", "expression": others}],
        "validations": [
            {
                "expression": f"{_said('object', place, mark)} == '' || {_before(place, mark)} == {_said('object', place, mark)}",
                "message": f"the annotation {mark} is reserved for pods that Fairway creates: remove it, or submit a "
                "TrainingJob, whose queue and priority are checked against the rights of its user",
            }
            for mark in annotation.TRUSTED
        ],
    }
    return [
        {**head("ValidatingAdmissionPolicy", name, api=ADMISSION), "spec": spec},
        {
            **head("ValidatingAdmissionPolicyBinding", name, api=ADMISSION),
            "spec": {"policyName": name, "validationActions": ["Deny"]},
        },
    ]


def _said(side: str, place: str, mark: str) -> str:
    return f"{side}.{place}.?annotations[?'{mark}'].orValue('')"


def _before(place: str, mark: str) -> str:
    return f"(request.operation == 'CREATE' ? '' : {_said('oldObject', place, mark)})"
