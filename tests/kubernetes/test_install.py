"""`fairway install kubernetes` against a real API server, as an administrator and as a user without rights."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from cluster.control_plane import ControlPlane
from cluster.fixtures import skipping_what_is_missing
from cluster.process import wait_for

from fairway.engines.kubernetes.install.manifest import everything, manifests
from fairway.engines.kubernetes.operator.installation import InstallationSettings

DEPLOYMENTS = "/apis/apps/v1/namespaces/fairway-system/deployments"
CLASSES = "/apis/storage.k8s.io/v1/storageclasses"
DEFAULT_CLASS = {
    "apiVersion": "storage.k8s.io/v1",
    "kind": "StorageClass",
    "metadata": {"name": "plain", "annotations": {"storageclass.kubernetes.io/is-default-class": "true"}},
    "provisioner": "example.org/none",
}
LEFT_ALONE = {"events", "leases", "endpoints", "endpointslices", "componentstatuses"}
"""Objects that the control plane itself creates and renews."""


@pytest.fixture(scope="module")
def plane() -> Iterator[ControlPlane]:
    """A separate control plane, because these tests delete what other tests have installed."""
    found = ControlPlane()
    with skipping_what_is_missing():
        found.start()
    found.apply(DEFAULT_CLASS, f"{CLASSES}/plain")
    yield found
    found.stop()


Fairway = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def fairway(plane: ControlPlane) -> Fairway:
    def run(*words: str, user: str = "admin") -> subprocess.CompletedProcess[str]:
        """Run `fairway`. No node could run the programs, so it does not wait unless `--timeout` is given."""
        if words[0] == "install" and "--timeout" not in words:
            words = (*words, "--timeout", "0")
        groups = ["system:masters"] if user == "admin" else []
        config = plane.kubeconfig() if user == "admin" else plane.kubeconfig(user, groups)
        env = {**os.environ, "KUBECONFIG": str(config)}
        command = [sys.executable, "-c", "import sys; from fairway.cli.main import main; sys.exit(main())", *words]
        return subprocess.run(command, env=env, capture_output=True, text=True, timeout=100, check=False)

    return run


def everything_there(plane: ControlPlane) -> set[str]:
    """Return all objects of all kinds, by kind, namespace and name."""
    groups = [f"/apis/{each['preferredVersion']['groupVersion']}" for each in plane.get("/apis")[1]["groups"]]
    found = set()
    for path in ("/api/v1", *groups):
        # A group may disappear while it is read.
        for kind in listed(plane, path, "resources"):
            if "list" in kind["verbs"] and kind["name"] not in LEFT_ALONE:
                for one in listed(plane, f"{path}/{kind['name']}", "items"):
                    found.add(f"{kind['name']} {one['metadata'].get('namespace', '')}/{one['metadata']['name']}")
    return found


def listed(plane: ControlPlane, path: str, name: str) -> list[dict[str, Any]]:
    status, answer = plane.get(path)
    return answer[name] if status == 200 else []


def installed_versions(plane: ControlPlane) -> dict[str, str]:
    """Return our objects with the versions by which the API server counts their changes."""
    asked = [one for one in everything(InstallationSettings(image="x")) if one["kind"] != "PodMonitor"]
    told = plane.kubectl(
        "get",
        "-f",
        "-",
        "--ignore-not-found",
        "-o",
        "json",
        given=json.dumps({"kind": "List", "apiVersion": "v1", "items": asked}),
    )
    # Controllers write status; changes of applied objects are counted by generation, where there is one.
    return {
        f"{one['kind']} {one['metadata']['name']}": str(one["metadata"].get("generation") or one["metadata"]["resourceVersion"])
        for one in json.loads(told)["items"]
    }


def test_the_plan_changes_nothing_and_kubectl_takes_it_in_one_go(plane: ControlPlane, fairway: Fairway) -> None:
    told = fairway("install", "kubernetes", "--image", "fairway:1", "--plan", "-o", "yaml")
    assert told.returncode == 0, told.stderr
    objects = list(yaml.safe_load_all(told.stdout))
    assert objects == json.loads(json.dumps(manifests(InstallationSettings(image="fairway:1"))))
    assert "nothing was changed" in told.stderr
    assert plane.get("/api/v1/namespaces/fairway-system")[0] == 404
    before = everything_there(plane)
    plane.kubectl("apply", "--server-side", "-f", "-", given=told.stdout)
    assert {one["metadata"]["name"] for one in plane.get(DEPLOYMENTS)[1]["items"]} == {"fairway-operator", "fairway-scheduler"}
    # `fairway` adopts and deletes the objects that kubectl created: nothing remains.
    adopted = fairway("install", "kubernetes", "--image", "fairway:1")
    assert adopted.returncode == 0, adopted.stderr
    gone = fairway("uninstall", "kubernetes", "--all")
    assert gone.returncode == 0, gone.stderr
    assert "CustomResourceDefinition gpunodes.fairway.dev is deleted" in gone.stderr
    assert "Namespace fairway-system is deleted" in gone.stderr
    # The API server itself removes what it created for our kinds.
    wait_for("nothing is left", lambda: everything_there(plane) == before, 60.0, lambda: str(everything_there(plane) ^ before))


def test_it_is_installed_again_without_change_and_taken_away(plane: ControlPlane, fairway: Fairway, tmp_path: Path) -> None:
    settings = tmp_path / "installation.yaml"
    settings.write_text("image: fairway:1\nruntimes: {pytorch: {image: 'torch:2'}}\nallowed: {host_paths: [/data]}\n")
    first = fairway("install", "kubernetes", "-f", str(settings))
    assert first.returncode == 0, first.stderr
    before = installed_versions(plane)
    again = fairway("install", "kubernetes", "-f", str(settings))
    assert again.returncode == 0, again.stderr
    assert installed_versions(plane) == before
    assert " applied\n" not in again.stderr
    assert "Namespace fairway-system applied" in first.stderr
    assert "Namespace fairway-system unchanged" in again.stderr
    waited = fairway("install", "kubernetes", "-f", str(settings), "--timeout", "2s")
    assert waited.returncode == 4
    assert "Deployment fairway-system/fairway-operator is not up yet: 0 of 1 ready" in waited.stderr
    assert "fairway: everything is applied, but this is not up after 2 s:" in waited.stderr
    assert "APIService v1alpha1.record.fairway.dev: " in waited.stderr
    assert "  fix: correct that and run the command again, or wait longer (--timeout)" in waited.stderr
    head = {"apiVersion": "fairway.dev/v1alpha1", "kind": "TrainingJob", "metadata": {"name": "kept"}}
    job = {**head, "spec": {"roles": {"worker": {"command": ["x"]}}}}
    status, answer = plane.request("POST", "/apis/fairway.dev/v1alpha1/namespaces/default/trainingjobs", job)
    assert status == 201, answer
    # Another choice removes the objects of the first.
    theirs = fairway("install", "kubernetes", "-f", str(settings), "--scheduler", "cluster")
    assert theirs.returncode == 0, theirs.stderr
    assert "Deployment fairway-system/fairway-scheduler is deleted" in theirs.stderr
    gone = fairway("uninstall", "kubernetes")
    assert gone.returncode == 0, gone.stderr
    assert plane.get(DEPLOYMENTS)[1]["items"] == []
    assert plane.get("/apis/rbac.authorization.k8s.io/v1/clusterroles/fairway-operator")[0] == 404
    assert plane.get("/apis/fairway.dev/v1alpha1/namespaces/default/trainingjobs/kept")[0] == 200
    assert plane.get("/api/v1/namespaces/fairway-system/persistentvolumeclaims/fairway-record")[0] == 200
    whole = fairway("uninstall", "kubernetes", "--all")
    assert whole.returncode == 0, whole.stderr
    assert "CustomResourceDefinition trainingjobs.fairway.dev is being deleted with 1 object\n" in whole.stderr
    assert plane.get("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/trainingjobs.fairway.dev")[0] == 404
    assert plane.get("/api/v1/namespaces/fairway-system")[0] == 404


def test_all_our_pods_are_admitted_where_pods_must_be_restricted(plane: ControlPlane) -> None:
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    answer = plane.request("POST", "/api/v1/namespaces", {"metadata": {"generateName": "strict-", "labels": labels}})[1]
    name = answer["metadata"]["name"]
    wait_for("its account", lambda: plane.get(f"/api/v1/namespaces/{name}/serviceaccounts/default")[0] == 200)
    templates = {
        one["metadata"]["name"]: one["spec"]["template"]
        for one in everything(InstallationSettings(image="fairway:1", namespace=name))
        if one["kind"] in ("Deployment", "DaemonSet")
    }
    assert {"fairway-operator", "fairway-scheduler"} <= set(templates)
    for process, template in templates.items():
        spec = {**template["spec"], "serviceAccountName": "default"}
        pod = {"metadata": {"name": process, "labels": template["metadata"]["labels"]}, "spec": spec}
        status, answer = plane.request("POST", f"/api/v1/namespaces/{name}/pods?dryRun=All", pod)
        assert status == 201, f"{process}: {answer['message']}"
    loose: dict[str, Any] = {"metadata": {"name": "loose"}, "spec": {"containers": [{"name": "a", "image": "x"}]}}
    status, answer = plane.request("POST", f"/api/v1/namespaces/{name}/pods?dryRun=All", loose)
    assert (status, "violates PodSecurity" in answer["message"]) == (403, True)
    plane.request("DELETE", f"/api/v1/namespaces/{name}")


def test_a_record_without_a_volume_is_refused_and_an_emptydir_only_taken_when_said(
    plane: ControlPlane, fairway: Fairway, tmp_path: Path
) -> None:
    plane.request("DELETE", f"{CLASSES}/plain")
    try:
        refused = fairway("install", "kubernetes", "--image", "fairway:1")
        assert refused.returncode == 5
        assert "no default storage class" in refused.stderr
        assert plane.get("/api/v1/namespaces/fairway-system")[0] == 404
        settings = tmp_path / "installation.yaml"
        settings.write_text("image: fairway:1\nrecord: {emptyDir: {}}\n")
        planned = fairway("install", "kubernetes", "-f", str(settings), "--plan", "-o", "name")
        assert planned.returncode == 0
        assert "warning: the record is in an emptyDir" in planned.stderr
        assert "PersistentVolumeClaim" not in planned.stdout
    finally:
        plane.apply(DEFAULT_CLASS, f"{CLASSES}/plain")


def test_one_object_that_is_refused_leaves_nothing_half_done(plane: ControlPlane, fairway: Fairway) -> None:
    """A policy of the cluster refuses Deployments: nothing at all is installed, and the error gives the reason."""
    group = "admissionregistration.k8s.io/v1"
    rule = {"apiGroups": ["apps"], "apiVersions": ["v1"], "operations": ["CREATE", "UPDATE"], "resources": ["deployments"]}
    policy = {
        "apiVersion": group,
        "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": "no-deployments"},
        "spec": {
            "matchConstraints": {"resourceRules": [rule]},
            "validations": [{"expression": "false", "message": "no Deployments on Sundays"}],
        },
    }
    binding = {
        "apiVersion": group,
        "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": "no-deployments"},
        "spec": {"policyName": "no-deployments", "validationActions": ["Deny"]},
    }
    paths = [f"/apis/{group}/validatingadmissionpolic{end}/no-deployments" for end in ("ies", "ybindings")]
    probe = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "probe"}, "spec": template("probe")}
    for path, body in zip(paths, (policy, binding), strict=True):
        plane.apply(body, path)
    created = "/apis/apps/v1/namespaces/default/deployments?dryRun=All"
    wait_for("the rule holds", lambda: plane.request("POST", created, probe)[0] == 422, 60.0)
    try:
        refused = fairway("install", "kubernetes", "--image", "fairway:1")
    finally:
        for path in paths:
            plane.request("DELETE", path)
    assert refused.returncode == 5
    assert "nothing was changed: Deployment fairway-system/fairway-operator" in refused.stderr
    assert "no Deployments on Sundays" in refused.stderr
    wait_for("its namespace goes again", lambda: plane.get("/api/v1/namespaces/fairway-system")[0] == 404, 60.0)
    assert plane.get("/apis/rbac.authorization.k8s.io/v1/clusterroles/fairway-operator")[0] == 404


def template(name: str) -> dict[str, Any]:
    pod = {"metadata": {"labels": {"app": name}}, "spec": {"containers": [{"name": "a", "image": "x"}]}}
    return {"selector": {"matchLabels": {"app": name}}, "template": pod}


def test_who_has_no_rights_gets_the_servers_own_refusal(plane: ControlPlane, fairway: Fairway) -> None:
    refused = fairway("install", "kubernetes", "--image", "fairway:1", user="bob")
    assert refused.returncode == 5
    assert 'User "bob" cannot list resource "storageclasses"' in refused.stderr
    assert "ask the administrator of the cluster" in refused.stderr
    rules = [{"apiGroups": ["storage.k8s.io"], "resources": ["storageclasses"], "verbs": ["list"]}]
    plane.kubectl("apply", "-f", "-", given=json.dumps(role("bob-looks", rules)))
    plane.kubectl("create", "clusterrolebinding", "bob-looks", "--clusterrole=bob-looks", "--user=bob")
    refused = fairway("install", "kubernetes", "--image", "fairway:1", user="bob")
    assert refused.returncode == 5
    assert "nothing was changed: Namespace fairway-system: " in refused.stderr
    assert 'User "bob" cannot patch resource "namespaces"' in refused.stderr


def role(name: str, rules: list[dict[str, Any]]) -> dict[str, Any]:
    return {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": name}, "rules": rules}
