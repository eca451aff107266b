"""The policy by which only the operator writes the submitter of an object. Pure.

The operator has the submitter's name from the API server, which authenticated the request.
"""

from __future__ import annotations

from fairway.engines.kubernetes import annotation
from fairway.engines.kubernetes.install.section import Manifest, head
from fairway.spec.custom_resource import GROUP

NAME = "fairway-vouching"
ADMISSION = "admissionregistration.k8s.io/v1"
VOUCHED = (annotation.USER, annotation.GROUPS)


def vouching(namespace: str) -> list[Manifest]:
    """Return the policy and its binding."""
    operator = f"system:serviceaccount:{namespace}:fairway-operator"
    kinds = ["trainingjobs", "modelservices"]
    spec = {
        "failurePolicy": "Fail",
        "matchConstraints": {
            "resourceRules": [
                {"apiGroups": [GROUP], "apiVersions": ["*"], "operations": ["CREATE", "UPDATE"], "resources": kinds}
            ]
        },
        "matchConditions": [{"name": "others", "expression": f"request.userInfo.username != '{operator}'"}],
        "validations": [
            {
                # Removing the annotation is harmless: an object without a user has fewer rights.
                "expression": f"{_said('object', name)} == '' || {_before(name)} == {_said('object', name)}",
                "message": f"the annotation {name} names the submitter, and only Fairway's operator may write it: "
                "remove it, or submit the document with `fairway submit`",
            }
            for name in VOUCHED
        ],
    }
    return [
        {**head("ValidatingAdmissionPolicy", NAME, api=ADMISSION), "spec": spec},
        {
            **head("ValidatingAdmissionPolicyBinding", NAME, api=ADMISSION),
            "spec": {"policyName": NAME, "validationActions": ["Deny"]},
        },
    ]


def _said(side: str, name: str) -> str:
    return f"{side}.metadata.?annotations[?'{name}'].orValue('')"


def _before(name: str) -> str:
    return f"(request.operation == 'CREATE' ? '' : {_said('oldObject', name)})"
