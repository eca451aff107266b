"""The objects of a service."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from fairway.engines.kubernetes import annotation
from fairway.engines.kubernetes.objects import Pod
from fairway.engines.kubernetes.operator.installation import FrameworkRuntime, InstallationSettings
from fairway.engines.kubernetes.serving import manifest as serving_manifest
from fairway.engines.kubernetes.serving import naming
from fairway.errors import RefusedError
from fairway.plan.service import service_command
from fairway.runtime.pod import samples
from fairway.runtime.secured.pod_peer import PodPeer
from fairway.spec.service import ServiceSpec
from fairway.state.job import SubmissionOrigin
from fairway.state.service import ServiceKey, ServiceState

KEY = ServiceKey("team", "adds")
AROUND = serving_manifest.PodSurroundings(InstallationSettings(image="fairway:1"), "http://operator:8080", "adds-1234")


def service(model_format: str = "onnx", **spec: Any) -> ServiceState:
    asked = ServiceSpec.model_validate(spec or {"model": "adds@3"})
    model = "adds@3" if asked.model else ""
    return service_command.applied(None, KEY, asked, model, model_format if model else "", SubmissionOrigin(), {}, 0.0)


def made(found: ServiceState, count: int = 2) -> dict[str, Any]:
    return serving_manifest.deployment(found, found.revisions[0], count, AROUND)


def container(body: dict[str, Any]) -> dict[str, Any]:
    (found,) = body["spec"]["template"]["spec"]["containers"]
    return dict(found)


def test_a_revision_is_a_deployment_that_fetches_its_model_and_listens_to_its_whole_network() -> None:
    body = made(service())
    assert (body["metadata"]["name"], body["spec"]["replicas"]) == ("adds-r1", 2)
    assert body["spec"]["selector"]["matchLabels"] == naming.replica_labels(KEY, 1)
    pod = body["spec"]["template"]["spec"]
    (fetch,) = pod["initContainers"]
    assert fetch["command"][-4:] == ["--url", "http://operator:8080/v1/given/models/adds@3", "--into", "/fairway/model"]
    assert fetch["env"][0]["valueFrom"]["secretKeyRef"] == {"name": "adds-1234", "key": "token"}
    words = container(body)["command"]
    assert words[:4] == ["python3", "-I", "-m", "fairway.serving.replica"]
    assert words[words.index("--folder") + 1] == "/fairway/model"
    assert words[words.index("--port") + 1] == "20000"
    assert words[-2:] == ["--host", "0.0.0.0"]
    assert pod["schedulerName"] == "fairway"
    assert container(body)["readinessProbe"]["httpGet"] == {"path": "/v2/health/ready", "port": 20000}


def test_the_template_is_the_same_whatever_the_count_and_the_digest_says_so() -> None:
    one, two = made(service(), 1), made(service(), 7)
    assert one["spec"]["template"] == two["spec"]["template"]
    assert one["metadata"]["annotations"] == two["metadata"]["annotations"]
    other = made(service(model="adds@3", env={"A": "b"}))
    assert other["metadata"]["annotations"] != one["metadata"]["annotations"]


def test_gpus_come_from_whoever_the_installation_says_and_shares_from_us() -> None:
    own, theirs = InstallationSettings(image="f", gpus="fairway"), InstallationSettings(image="f")
    for installation, asked, by_us in ((own, "1", True), (theirs, "1", False), (theirs, "0.5", True)):
        found = service(model="adds@3", resources={"gpu": asked})
        body = serving_manifest.deployment(found, found.revisions[0], 1, replace(AROUND, installation=installation))
        assert (annotation.GPUS in body["spec"]["template"]["metadata"]["annotations"]) is by_us
        assert ("nvidia.com/gpu" in container(body)["resources"]["limits"]) is not by_us


def test_amounts_graces_queues_and_secrets_are_told() -> None:
    asked = {"cpu": "2", "memory": "1Gi"}
    body = made(service(model="adds@3", resources=asked, limits={"memory": "2Gi"}, grace="20s", queue="team-a", secrets=["KEY"]))
    amounts = {"requests": {"cpu": "2000m", "memory": str(1 << 30)}, "limits": {"memory": "2Gi"}}
    assert container(body)["resources"] == amounts
    template = body["spec"]["template"]
    assert template["spec"]["terminationGracePeriodSeconds"] == 20 + serving_manifest.LINGER + serving_manifest.KILL_MARGIN
    told = template["metadata"]["annotations"]
    assert told[annotation.QUEUE] == "team-a"
    assert {"name": "KEY", "valueFrom": {"secretKeyRef": {"name": "fairway-secrets", "key": "KEY"}}} in container(body)["env"]


def test_a_command_runs_in_its_image_with_its_port() -> None:
    body = made(service(command=["serve", "--port", "{{port}}"], environment={"image": "mine:1"}, ready="/up"))
    found = container(body)
    assert (found["image"], found["command"]) == ("mine:1", ["serve", "--port", "20000"])
    assert {"name": "FAIRWAY_PORT", "value": "20000"} in found["env"]
    assert found["readinessProbe"]["httpGet"]["path"] == "/up"
    assert body["spec"]["template"]["spec"]["initContainers"] == []


def test_a_command_gets_the_code_that_was_sent_with_it_and_no_other() -> None:
    found = service(command=["python", "serve.py"], environment={"image": "mine:1"})
    sent = replace(found.revisions[0], origin=SubmissionOrigin(code_digest="blob:abc"))
    body = serving_manifest.deployment(found, sent, 1, AROUND)
    (fetch,) = body["spec"]["template"]["spec"]["initContainers"]
    assert "http://operator:8080/v1/given/code?digest=abc" in fetch["command"]
    assert container(body)["workingDir"] == "/fairway/code"
    with pytest.raises(RefusedError, match="uploaded with it"):
        serving_manifest.deployment(found, replace(sent, origin=SubmissionOrigin(code_digest="a-config-map")), 1, AROUND)


def test_pods_of_our_own_image_are_admitted_where_pods_must_be_restricted() -> None:
    for body in (made(service()), serving_manifest.router(KEY, 2, AROUND)):
        pod = body["spec"]["template"]["spec"]
        assert pod["securityContext"]["runAsNonRoot"]
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        for one in (*pod.get("initContainers", ()), *pod["containers"]):
            assert not one["securityContext"]["allowPrivilegeEscalation"]
            assert one["securityContext"]["capabilities"] == {"drop": ["ALL"]}


def test_a_service_that_samples_has_a_sidecar_that_brings_the_samples_to_the_operator() -> None:
    plain, commanded = made(service()), made(service(command=["serve"], environment={"image": "mine:1"}, sampling={"rate": "1%"}))
    for body in (plain, commanded):
        pod = body["spec"]["template"]["spec"]
        assert all(one["name"] != naming.SAMPLES for one in (*pod["initContainers"], *pod["volumes"]))
    body = made(service(model="adds@3", sampling={"rate": "5%", "dataset": "asked"}, grace="20s"))
    pod, words = body["spec"]["template"]["spec"], container(body)["command"]
    _, sidecar = pod["initContainers"]
    assert sidecar["restartPolicy"] == "Always", "it begins before the replica and is told to end after it"
    assert sidecar["image"] == "fairway:1"
    assert sidecar["command"][-4:] == [
        *("--folder", words[words.index("--sample-folder") + 1]),
        *("--url", "http://operator:8080/v1/given/samples/$(FAIRWAY_POD)"),
    ]
    assert [one["name"] for one in sidecar["env"][:2]] == ["FAIRWAY_POD", "FAIRWAY_GIVEN_TOKEN"]
    mount = {"name": "samples", "mountPath": "/fairway/run/requests"}
    assert sidecar["volumeMounts"] == [mount]
    assert mount in container(body)["volumeMounts"]
    assert {"name": "samples", "emptyDir": {"sizeLimit": "1Gi"}} in pod["volumes"]
    assert (
        pod["terminationGracePeriodSeconds"]
        == 20 + serving_manifest.LINGER + serving_manifest.KILL_MARGIN + serving_manifest.SENDING
    )
    assert serving_manifest.SENDING > samples.PATIENCE
    for one in pod["initContainers"]:
        assert one["securityContext"]["capabilities"] == {"drop": ["ALL"]}


def test_other_formats_run_in_what_the_table_says_or_are_refused_in_words() -> None:
    found = service("torch-export")
    with pytest.raises(RefusedError, match="none that serves torch-export") as refused:
        made(found)
    assert "serve-torch-export" in refused.value.fix
    table = InstallationSettings(
        image="fairway:1", runtimes={"serve-torch-export": FrameworkRuntime("torch:2", "/venv/bin/python")}
    )
    around = replace(AROUND, installation=table)
    body = serving_manifest.deployment(found, found.revisions[0], 1, around)
    assert container(body)["image"] == "torch:2"
    assert container(body)["command"][0] == "/venv/bin/python"


def test_the_router_begins_with_the_plan_that_the_cluster_keeps_and_lingers_when_it_goes() -> None:
    body = serving_manifest.router(KEY, 2, AROUND)
    pod = body["spec"]["template"]["spec"]
    (found,) = pod["containers"]
    assert found["command"][found["command"].index("--plan") + 1] == "/fairway/plan/plan.json"
    assert pod["volumes"] == [{"name": "plan", "configMap": {"name": "adds-router"}}]
    assert found["env"][0]["valueFrom"]["secretKeyRef"] == {"name": "adds-1234", "key": "router"}
    assert found["lifecycle"] == {"preStop": {"sleep": {"seconds": serving_manifest.LINGER}}}
    front = serving_manifest.front_service(KEY, "adds", 80)
    assert front["spec"]["selector"] == body["spec"]["selector"]["matchLabels"]
    assert naming.url(KEY, "adds", 80, "cluster.local") == "http://adds.team.svc.cluster.local"
    assert naming.url(KEY, "adds", 8000, "cluster.local") == "http://adds.team.svc.cluster.local:8000"


def test_what_speaks_to_the_operator_knows_it_by_its_authority() -> None:
    found = service(model="adds@3", sampling={"rate": "50%", "dataset": "rows"})
    known = replace(AROUND, authority="PEM")
    pod = serving_manifest.deployment(found, found.revisions[0], 1, known)["spec"]["template"]["spec"]
    assert [one["name"] for one in pod["initContainers"]] == ["model", "load", "samples"]
    for one in pod["initContainers"]:
        assert {"name": "FAIRWAY_OPERATOR_CA", "value": "PEM"} in one["env"]
    assert "FAIRWAY_OPERATOR_CA" not in str(made(found))


def seen(template: dict[str, Any]) -> Pod:
    """Return a pod of a template, as the operator sees it."""
    body = {"metadata": {"name": "a", "uid": "uid-a"}, "spec": template["spec"], "status": {"podIP": "10.0.0.7"}}
    return msgspec.convert(body, Pod)


def test_a_pod_made_with_an_authority_is_asked_by_tls_under_its_own_name() -> None:
    found, known = service(), replace(AROUND, authority="PEM", endpoint="https://operator:8080")
    replica = serving_manifest.deployment(found, found.revisions[0], 1, known)["spec"]["template"]
    router = serving_manifest.router(KEY, 2, known)["spec"]["template"]
    assert naming.load_peer(seen(replica)) == PodPeer("10.0.0.7:20010", "uid-a.pod.fairway.internal")
    assert naming.router_peer(seen(router)) == PodPeer("10.0.0.7:8081", "uid-a.pod.fairway.internal")
    words = router["spec"]["containers"][0]["command"]
    assert words[words.index("--operator") + 1] == "https://operator:8080"


def test_a_pod_made_without_an_authority_is_asked_as_before() -> None:
    replica, router = made(service())["spec"]["template"], serving_manifest.router(KEY, 2, AROUND)["spec"]["template"]
    assert naming.load_peer(seen(replica)) == PodPeer("10.0.0.7:20000")
    assert naming.router_peer(seen(router)) == PodPeer("10.0.0.7:8081")
    assert "--operator" not in router["spec"]["containers"][0]["command"]


def test_the_token_of_a_pod_is_in_no_container_that_runs_what_users_wrote() -> None:
    known = replace(AROUND, authority="PEM")
    for found in (service(), service(command=["serve"], environment={"image": "theirs"})):
        pod = serving_manifest.deployment(found, found.revisions[0], 1, known)["spec"]["template"]["spec"]
        (task,) = pod["containers"]
        assert "operator" not in {one["name"] for one in task["volumeMounts"]}
    assert "load" not in {one["name"] for one in pod["initContainers"]}, "a command of a user does not say how busy it is"


def test_ports_say_which_protocol_they_speak() -> None:
    def ports(**spec: Any) -> list[tuple[str, int, str]]:
        asked = ServiceSpec.model_validate(spec)
        found = serving_manifest.revision_service(ServiceKey("team", "adds"), 1, asked)["spec"]["ports"]
        return [(port["name"], port["port"], port.get("appProtocol", "")) for port in found]

    assert ports(model="adds@1") == [("http", 80, ""), ("grpc", 8001, "kubernetes.io/h2c")]
    assert ports(command=("serve",)) == [("http", 80, "")]
    assert ports(command=("serve",), protocol="grpc") == [("http", 80, "kubernetes.io/h2c")]


def test_a_command_of_grpc_is_asked_by_the_kubelet_over_grpc() -> None:
    def probe(**spec: Any) -> dict[str, Any]:
        manifest = serving_manifest._probe(ServiceSpec.model_validate({"command": ("serve",), **spec}))
        return dict(manifest)

    port = naming.REPLICA_PORT
    assert probe() == {"httpGet": {"path": "/", "port": port}}
    assert probe(protocol="http2") == {"tcpSocket": {"port": port}}
    assert probe(protocol="grpc") == {"grpc": {"port": port}}
