"""The agent's manifest: it acts on its own node only, with no more rights than it needs."""

from __future__ import annotations

from typing import Any

from fairway.engines.kubernetes.agent.token_review import AUDIENCE, TOKEN_FOLDER
from fairway.engines.kubernetes.install.manifest import manifests
from fairway.engines.kubernetes.install.node_agent import agent
from fairway.engines.kubernetes.operator.installation import InstallationSettings

HERE = InstallationSettings(
    image="fairway:1", namespace="tools", gpus="fairway", gpu_runtime_class="nvidia", gpu_nodes={"gpu": "yes"}
)


def the(kind: str, installation: InstallationSettings = HERE) -> dict[str, Any]:
    (found,) = [one for one in agent(installation) if one["kind"] == kind]
    return found


def test_it_is_part_of_what_is_installed() -> None:
    assert all(one in manifests(HERE) for one in agent(HERE))


def test_it_has_no_privilege_and_sees_nothing_of_the_host() -> None:
    pod = the("DaemonSet")["spec"]["template"]["spec"]
    assert not {"hostPID", "hostNetwork", "hostIPC"} & set(pod)
    assert {name for volume in pod["volumes"] for name in volume} == {"name", "configMap", "projected"}
    context = pod["containers"][0]["securityContext"]
    assert context["capabilities"] == {"drop": ["ALL"]}
    assert (context["allowPrivilegeEscalation"], context.get("privileged", False)) == (False, False)


def test_it_runs_where_the_administrator_says_and_on_nodes_that_keep_others_away() -> None:
    pod = the("DaemonSet")["spec"]["template"]["spec"]
    assert pod["nodeSelector"] == {"kubernetes.io/os": "linux", "gpu": "yes"}
    assert pod["runtimeClassName"] == "nvidia"
    assert pod["tolerations"] == [{"operator": "Exists"}]
    assert "runtimeClassName" not in the("DaemonSet", InstallationSettings(image="f"))["spec"]["template"]["spec"]


def test_it_is_told_its_node_and_who_hands_out_gpus() -> None:
    for installation, managed in ((HERE, "true"), (InstallationSettings(image="f"), "false")):
        env = {one["name"]: one for one in the("DaemonSet", installation)["spec"]["template"]["spec"]["containers"][0]["env"]}
        assert env["FAIRWAY_AGENT_NODE"]["valueFrom"]["fieldRef"]["fieldPath"] == "spec.nodeName"
        assert env["FAIRWAY_AGENT_MANAGED"]["value"] == managed


def test_it_answers_the_operator_alone_who_has_a_token_for_nothing_else() -> None:
    env = {one["name"]: one for one in the("DaemonSet")["spec"]["template"]["spec"]["containers"][0]["env"]}
    assert env["FAIRWAY_AGENT_ASKED_BY"]["value"] == "system:serviceaccount:tools:fairway-operator"
    found = {(one["kind"], one["metadata"]["name"]): one for one in manifests(HERE)}
    pod = found["Deployment", "fairway-operator"]["spec"]["template"]["spec"]
    (volume,) = [one for one in pod["volumes"] if one["name"] == "agents"]
    (source,) = volume["projected"]["sources"]
    assert source == {"serviceAccountToken": {"audience": AUDIENCE, "path": "token"}}
    assert {"name": "agents", "mountPath": TOKEN_FOLDER} in pod["containers"][0]["volumeMounts"]


def test_the_policy_is_for_its_account_alone() -> None:
    (only,) = the("ValidatingAdmissionPolicy")["spec"]["matchConditions"]
    assert only["expression"] == "request.userInfo.username == 'system:serviceaccount:tools:fairway-agent'"
    assert the("ValidatingAdmissionPolicyBinding")["spec"] == {"policyName": "fairway-agent", "validationActions": ["Deny"]}
