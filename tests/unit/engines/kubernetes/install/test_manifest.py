"""The manifests are complete, in order, and grant no rights that are not used."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from fairway.engines.kubernetes.install.manifest import SECTIONS, endpoint, everything, manifests
from fairway.engines.kubernetes.install.rbac_rule import CLUSTER_RULES, NEIGHBOUR_RULES
from fairway.engines.kubernetes.operator.installation import InstallationSettings

HERE = InstallationSettings(image="fairway:1", namespace="tools")


def named(kind: str, installation: InstallationSettings = HERE) -> dict[str, dict[str, Any]]:
    return {manifest["metadata"]["name"]: manifest for manifest in manifests(installation) if manifest["kind"] == kind}


def pod_of(deployment: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = deployment["spec"]["template"]["spec"]
    return found


def test_the_namespace_comes_first_and_accounts_before_those_who_use_them() -> None:
    kinds = [manifest["kind"] for manifest in manifests(HERE)]
    assert kinds[0] == "Namespace"
    assert kinds.index("ServiceAccount") < kinds.index("Deployment")
    assert kinds.index("CustomResourceDefinition") < kinds.index("Deployment")


def test_the_administrators_choices_can_be_read_back() -> None:
    text = named("ConfigMap")["fairway-installation"]["data"]["installation.json"]
    assert msgspec.json.decode(text, type=InstallationSettings) == HERE


def test_other_settings_start_the_operator_anew() -> None:
    others = InstallationSettings(image="fairway:1", namespace="tools", gpu_resource="amd.com/gpu")
    before, after = (named("Deployment", one)["fairway-operator"]["spec"]["template"]["metadata"] for one in (HERE, others))
    assert before["annotations"] != after["annotations"]


def test_where_the_clusters_own_scheduler_places_ours_is_not_there() -> None:
    theirs = InstallationSettings(image="fairway:1", scheduler="")
    assert set(named("Deployment", theirs)) == {"fairway-operator"}
    accounts = {"fairway-operator", "fairway-agent"}
    assert set(named("ServiceAccount", theirs)) == accounts
    assert set(named("ClusterRole", theirs)) == accounts | {
        "fairway-view", "fairway-edit", "fairway-admin", "fairway-registry-reader",
    }  # fmt: skip
    assert set(named("Deployment")) == {"fairway-operator", "fairway-scheduler"}


@pytest.mark.parametrize("name", list(NEIGHBOUR_RULES))
def test_a_neighbours_objects_are_read_only_where_it_queues(name: str) -> None:
    theirs = InstallationSettings(image="fairway:1", scheduler="", queueing=name)
    assert f"fairway-operator-{name}" in named("ClusterRole", theirs)
    assert f"fairway-operator-{name}" not in named("ClusterRole")


def test_the_record_is_a_claim_unless_a_volume_is_named() -> None:
    record = next(one for one in pod_of(named("Deployment")["fairway-operator"])["volumes"] if one["name"] == "record")
    assert record["persistentVolumeClaim"]["claimName"] in named("PersistentVolumeClaim")
    installation = InstallationSettings(image="fairway:1", record={"emptyDir": {}})
    assert named("PersistentVolumeClaim", installation) == {}
    assert {"name": "record", "emptyDir": {}} in pod_of(named("Deployment", installation)["fairway-operator"])["volumes"]


def test_the_record_has_one_writer_and_schedulers_stand_by_on_other_nodes() -> None:
    operator, scheduler = (named("Deployment")[f"fairway-{name}"]["spec"] for name in ("operator", "scheduler"))
    assert (operator["replicas"], operator["strategy"]["type"]) == (1, "Recreate")
    assert (scheduler["replicas"], scheduler["strategy"]["type"]) == (2, "RollingUpdate")
    wish = scheduler["template"]["spec"]["affinity"]["podAntiAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"][0]
    assert wish["podAffinityTerm"]["labelSelector"] == scheduler["selector"]
    for name, budget in named("PodDisruptionBudget").items():
        assert budget["spec"]["selector"] == named("Deployment")[name]["spec"]["selector"]


def test_every_process_is_asked_whether_it_lives_and_may_do_little() -> None:
    for deployment in named("Deployment").values():
        pod = pod_of(deployment)
        (container,) = pod["containers"]
        (port,) = (one["containerPort"] for one in container["ports"] if one["name"] == "health")
        assert {"name": "FAIRWAY_HEALTH_PORT", "value": str(port)} in container["env"]
        assert container["livenessProbe"]["httpGet"] == {"path": "/healthz", "port": "health"}
        assert container["readinessProbe"]["httpGet"] == {"path": "/readyz", "port": "health"}
        assert container["securityContext"]["readOnlyRootFilesystem"]
        assert container["resources"]["requests"]
        assert pod["priorityClassName"] == "system-cluster-critical"


def test_what_any_installation_may_have_left_is_known() -> None:
    names = {(one["kind"], one["metadata"]["name"]) for one in everything(HERE)}
    for queueing in ("", *NEIGHBOUR_RULES):
        other = InstallationSettings(image="x", scheduler="", queueing=queueing, monitoring=True, record={"emptyDir": {}})
        assert {(one["kind"], one["metadata"]["name"]) for one in manifests(other)} - names <= {("Namespace", "fairway-system")}


def test_every_section_has_a_name_of_its_own() -> None:
    assert len({section.name for section in SECTIONS}) == len(SECTIONS)


def test_objects_are_plain_data() -> None:
    assert json.loads(json.dumps(everything(HERE))) == everything(HERE)


def test_no_account_may_do_everything_or_read_secrets() -> None:
    for rules in (*CLUSTER_RULES.values(), *NEIGHBOUR_RULES.values()):
        for rule in rules:
            assert "*" not in [*rule["verbs"], *rule["resources"], *rule["apiGroups"]]
            if "secrets" in rule["resources"]:
                assert rule["verbs"] == ["create"]


def test_pods_find_the_operator_by_its_service() -> None:
    assert endpoint(HERE) == "https://fairway-operator.tools.svc.cluster.local:8080"
    template = named("Deployment")["fairway-operator"]["spec"]["template"]
    for service in named("Service").values():
        assert service["spec"]["selector"].items() <= template["metadata"]["labels"].items()
