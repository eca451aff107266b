"""Only Fairway may mark pods as admitted."""

from __future__ import annotations

from fairway.engines.kubernetes import annotation
from fairway.engines.kubernetes.install.pod_annotation_policy import pod_marks


def test_every_way_to_a_pod_is_guarded_and_each_policy_is_bound() -> None:
    manifests = pod_marks("tools")
    policies = {one["metadata"]["name"]: one["spec"] for one in manifests if one["kind"] == "ValidatingAdmissionPolicy"}
    bindings = {one["spec"]["policyName"]: one["spec"] for one in manifests if one["kind"] == "ValidatingAdmissionPolicyBinding"}
    assert policies.keys() == bindings.keys()
    assert all(one["validationActions"] == ["Deny"] for one in bindings.values())
    guarded = {
        kind for spec in policies.values() for rule in spec["matchConstraints"]["resourceRules"] for kind in rule["resources"]
    }
    assert guarded == {
        *("pods", "replicationcontrollers", "deployments", "replicasets", "statefulsets", "daemonsets", "jobs", "cronjobs"),
    }
    for spec in policies.values():
        assert spec["failurePolicy"] == "Fail"
        assert "system:serviceaccount:tools:fairway-operator" in spec["matchConditions"][0]["expression"]
        for mark in annotation.TRUSTED:
            assert any(f"'{mark}'" in one["expression"] for one in spec["validations"])


def test_the_marks_are_those_that_the_scheduler_believes() -> None:
    assert {annotation.QUEUE, annotation.USER, annotation.PRIORITY} < set(annotation.TRUSTED)
