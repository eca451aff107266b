"""What is installed: complete, in order, and with no more rights than are used."""

from __future__ import annotations

from typing import Any

import msgspec

from fairway.engines.kubernetes.install.manifests import endpoint, manifests
from fairway.engines.kubernetes.install.roles import CLUSTER_RULES
from fairway.engines.kubernetes.operator.installation import Installation

HERE = Installation(image="fairway:1", namespace="tools")


def named(kind: str, installation: Installation = HERE) -> dict[str, dict[str, Any]]:
    return {one["metadata"]["name"]: one for one in manifests(installation) if one["kind"] == kind}


def test_the_namespace_comes_first_and_accounts_before_those_who_use_them() -> None:
    kinds = [one["kind"] for one in manifests(HERE)]
    assert kinds[0] == "Namespace"
    assert kinds.index("ServiceAccount") < kinds.index("Deployment")
    assert kinds.index("CustomResourceDefinition") < kinds.index("Deployment")


def test_the_administrators_choices_can_be_read_back() -> None:
    text = named("ConfigMap")["fairway-installation"]["data"]["installation.json"]
    assert msgspec.json.decode(text, type=Installation) == HERE


def test_where_the_clusters_own_scheduler_places_ours_is_not_there() -> None:
    theirs = Installation(image="fairway:1", scheduler="")
    assert set(named("Deployment", theirs)) == {"fairway-operator"}
    accounts = {"fairway-operator", "fairway-agent"}
    assert set(named("ServiceAccount", theirs)) == accounts
    assert set(named("ClusterRole", theirs)) == accounts | {"fairway-view", "fairway-edit", "fairway-admin"}
    assert set(named("Deployment")) == {"fairway-operator", "fairway-scheduler"}


def test_no_account_may_do_everything_or_read_secrets() -> None:
    for rules in CLUSTER_RULES.values():
        for rule in rules:
            assert "*" not in [*rule["verbs"], *rule["resources"], *rule["apiGroups"]]
            if "secrets" in rule["resources"]:
                assert rule["verbs"] == ["create"]


def test_pods_find_the_operator_by_its_service() -> None:
    assert endpoint(HERE) == "http://fairway-operator.tools.svc.cluster.local:8080"
    template = named("Deployment")["fairway-operator"]["spec"]["template"]
    for service in named("Service").values():
        assert service["spec"]["selector"].items() <= template["metadata"]["labels"].items()
