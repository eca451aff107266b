"""The resources of the record API, and the rights that they need."""

from __future__ import annotations

from fairway.engines.kubernetes.install.api_service import caller_roles, record_objects
from fairway.engines.kubernetes.record import resource


def test_what_is_not_in_the_table_means_nothing() -> None:
    assert resource.meaning("jobs", "", "GET") == resource.READ
    assert resource.meaning("jobs", "stop", "POST") == resource.WRITE
    assert resource.meaning("models", "", "DELETE") == resource.REMOVE
    assert resource.meaning("models", "", "POST") == resource.WRITE
    assert resource.meaning("blobs", "", "POST") == resource.WRITE
    assert resource.meaning("models", "pull", "POST") == "", "it would write one"
    assert resource.meaning("secrets", "", "GET") == ""
    assert resource.meaning("jobs", "environment", "GET") == ""


def test_discovery_promises_nothing_that_controllers_would_delete_with() -> None:
    listed = resource.resources()
    assert (listed["kind"], listed["groupVersion"]) == ("APIResourceList", "record.fairway.dev/v1alpha1")
    for one in listed["resources"]:
        assert one["namespaced"]
        assert set(one["verbs"]) <= {"get", "create"}
    assert resource.groups()["groups"][0]["preferredVersion"]["version"] == "v1alpha1"


def test_who_may_view_may_change_nothing_and_each_role_adds_to_the_one_below() -> None:
    roles = {role["metadata"]["name"]: role for role in caller_roles({})}
    seen = [rule for rule in roles["fairway-view"]["rules"] if rule["apiGroups"] == [resource.GROUP]]
    assert {verb for rule in seen for verb in rule["verbs"]} <= {"get", "list", "create"}
    assert {name for rule in seen if "create" in rule["verbs"] for name in rule["resources"]} == {"render"}
    removing = [rule for rule in roles["fairway-admin"]["rules"] if "delete" in rule["verbs"]]
    assert {name for rule in removing for name in rule["resources"]} == {"models", "datasets"}
    labels = roles["fairway-edit"]["metadata"]["labels"]
    assert labels == {f"rbac.authorization.k8s.io/aggregate-to-{role}": "true" for role in ("edit", "admin")}


def test_no_role_has_stars() -> None:
    for role in caller_roles({}):
        for rule in role["rules"]:
            assert "*" not in [*rule["verbs"], *rule["resources"], *rule["apiGroups"]]


def test_the_way_from_the_api_server_to_the_operator_is_one_port() -> None:
    found = {one["kind"]: one for one in record_objects("tools", {})}
    service, way = found["Service"], found["APIService"]["spec"]["service"]
    assert (way["name"], way["namespace"]) == (service["metadata"]["name"], service["metadata"]["namespace"])
    assert way["port"] == service["spec"]["ports"][0]["port"]
    assert found["RoleBinding"]["metadata"]["namespace"] == "kube-system"
