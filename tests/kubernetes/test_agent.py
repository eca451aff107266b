"""Agents of nodes and their GPUs on a real control plane: all processes with their own rights, simulated nodes."""

from __future__ import annotations

import asyncio
import json
import socket
import ssl
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from cluster import kwok
from cluster.agents import Agents
from cluster.control_plane import ControlPlane
from cluster.installed import Installed, Jobs
from cluster.process import wait_for
from cluster.record import API_SERVICE, Person, start_operator
from cryptography import x509

from fairway.app.system.clock import SystemClock
from fairway.engines.kubernetes import annotation
from fairway.engines.kubernetes.agent import gpu_node_report, gpu_usage
from fairway.engines.kubernetes.agent.token_review import AUDIENCE
from fairway.engines.kubernetes.client import api, api_resource, errors, kubeconfig
from fairway.engines.kubernetes.identity import pod_authenticator
from fairway.engines.kubernetes.identity.pod_authenticator import agent_name
from fairway.engines.kubernetes.install.node_agent import policy
from fairway.engines.kubernetes.operator.installation import FrameworkRuntime, InstallationSettings
from fairway.runtime.secured.pod_certificate import PodCertificate

pytestmark = pytest.mark.timeout(400)  # the first waits for a control plane and six processes

Add = Callable[..., list[str]]
GPUS = "/apis/fairway.dev/v1alpha1/gpunodes"
PLURALS = {
    "ValidatingAdmissionPolicy": "validatingadmissionpolicies",
    "ValidatingAdmissionPolicyBinding": "validatingadmissionpolicybindings",
}


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


@pytest.fixture(scope="module")
def installed(control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installed]:
    found = Installed(control_plane, tmp_path_factory.mktemp("fairway"))
    found.installation = InstallationSettings(image="fairway:test", runtimes={"default": FrameworkRuntime("none")})
    found.install()
    policies = [
        (one, f"/apis/admissionregistration.k8s.io/v1/{PLURALS[one['kind']]}/{one['metadata']['name']}")
        for one in policy("fairway-system")
    ]
    for one, path in policies:
        control_plane.apply(one, path)
    port = free_port()
    start_operator(found, FAIRWAY_OPERATOR_PORT=str(port), FAIRWAY_OPERATOR_ENDPOINT=f"https://localhost:{port}")
    found.endpoint = f"https://localhost:{port}"
    found.start("scheduler")
    yield found
    found.stop()
    for path in (*(path for _, path in policies), API_SERVICE):
        control_plane.request("DELETE", path)


@pytest.fixture(scope="module")
def agents(installed: Installed) -> Iterator[Agents]:
    folder = installed.folder / "agents"
    folder.mkdir(exist_ok=True)
    found = Agents(installed.plane, folder, installed.endpoint)
    yield found
    found.stop()


@pytest.fixture(scope="module")
def nodes(installed: Installed, agents: Agents) -> Iterator[list[str]]:
    """Three nodes that Fairway manages, with eight GPUs each."""
    names = kwok.add_nodes(installed.plane, 3, prefix="gpu")
    for name in names:
        # One runs an earlier version, without TLS.
        agents.start(name, "8xA100-80GB", tls=name != names[2])
    for name in names:
        agents.until(name, count=8, healthy=8, type="A100")
    yield names
    kwok.remove_nodes(installed.plane, names)


@pytest.fixture
def jobs(installed: Installed, namespace: str, kwok_nodes: Add) -> Iterator[Jobs]:
    """Jobs in a separate namespace; all are deleted while the nodes still exist."""
    del kwok_nodes
    found = Jobs(installed, namespace)
    accounts = f"/api/v1/namespaces/{namespace}/serviceaccounts/default"
    wait_for("the service account", lambda: installed.plane.get(accounts)[0] == 200)
    yield found
    for name in [one["metadata"]["name"] for one in installed.plane.get(found.path)[1]["items"]]:
        found.delete(name)
    wait_for("nothing is left", lambda: not found.pods(), 60.0)


def submit(jobs: Jobs, name: str, workers: int = 1, *, placement: dict[str, Any] | None = None, **resources: Any) -> None:
    """Submit a job whose workers need GPUs."""
    role = {
        "replicas": {"min": workers, "max": workers},
        "command": ["python", "train.py"],
        "resources": {"cpu": "100m", **resources},
        "placement": placement or {},
    }
    jobs.submit(name, roles={"worker": role})


def ids(pod: dict[str, Any]) -> list[str]:
    return [one for one in pod["metadata"]["annotations"].get(annotation.GPU_IDS, "").split(",") if one]


def taken(jobs: Jobs) -> Counter[str]:
    """Return the thousandths of each device that pods hold, according to their bindings."""
    found: Counter[str] = Counter()
    for pod in jobs.pods():
        if pod["status"]["phase"] not in ("Succeeded", "Failed"):
            found.update(dict.fromkeys(ids(pod), int(pod["metadata"]["annotations"].get(annotation.GPU_SHARE, 1000))))
    return found


def uuids(agents: Agents, node: str) -> list[str]:
    return [gpu["uuid"] for gpu in agents.status(node)["gpus"]]


def node_of(plane: ControlPlane, name: str) -> dict[str, Any]:
    found: dict[str, Any] = plane.get(f"/api/v1/nodes/{name}")[1]
    return found


def unhealthy(plane: ControlPlane, name: str) -> str | None:
    conditions = node_of(plane, name)["status"]["conditions"]
    return next((one["status"] for one in conditions if one["type"] == gpu_node_report.CONDITION), None)


def tainted(plane: ControlPlane, name: str) -> bool:
    return any(one["key"] == gpu_node_report.TAINT.key for one in node_of(plane, name)["spec"].get("taints", ()))


def only_the_operator_is_told(installed: Installed, agents: Agents, devices: dict[str, list[str]]) -> None:
    """An agent accepts no token of another account or audience, over TLS and, for an agent of an earlier version, without."""
    endpoints = [str(agents.status(node)["endpoint"]) for node in devices]
    assert [endpoint.partition(":")[0] for endpoint in endpoints] == ["https", "https", "http"]
    token, trusted = (installed.folder / "agent-token").read_text(), ssl.create_default_context(cafile=agents.folder / "ca.pem")
    strangers = ["", "made-up", agents.token("default", audiences=[AUDIENCE]), agents.token("fairway-operator")]
    for endpoint, node in zip(endpoints, devices, strict=True):
        name = agent_name(node)
        assert [asyncio.run(gpu_usage.ask(endpoint, one, name, trusted)) for one in strangers] == [{}] * len(strangers)
        assert asyncio.run(gpu_usage.ask(endpoint, token, name, trusted)).keys() == set(devices[node])
    # An agent's certificate is for its own node alone; the port with TLS rejects plain HTTP.
    assert asyncio.run(gpu_usage.ask(endpoints[0], token, agent_name(list(devices)[1]), trusted)) == {}
    assert asyncio.run(gpu_usage.ask(endpoints[0].replace("https", "http"), token)) == {}


def test_gangs_get_whole_and_shared_gpus_and_no_device_is_given_twice(
    installed: Installed, jobs: Jobs, agents: Agents, nodes: list[str], tmp_path: Path
) -> None:
    submit(jobs, "whole", 2, gpu="4")
    submit(jobs, "shares", 4, gpu="0.25")
    submit(jobs, "node", gpu="8")
    for name in ("whole", "shares", "node"):
        jobs.runs(name)
    devices = {name: uuids(agents, name) for name in nodes}
    for pod in jobs.pods():
        if ids(pod):
            assert set(ids(pod)) <= set(devices[pod["spec"]["nodeName"]])
    assert [len(ids(pod)) for pod in jobs.pods("whole")] == [4, 4]
    (alone,) = jobs.pods("node")
    assert sorted(ids(alone)) == sorted(devices[alone["spec"]["nodeName"]])
    shared = {tuple(ids(pod)) for pod in jobs.pods("shares")}
    assert len(shared) == 1, "four quarters are packed on one device"
    part = jobs.pods("shares")[0]["metadata"]["annotations"][annotation.GPU_PART]
    assert part == "0.250"
    assert max(taken(jobs).values()) == 1000
    free = next(uuid for own in devices.values() for uuid in own if uuid not in taken(jobs))
    submit(jobs, "named", placement={"devices": [free]}, gpu="1")
    jobs.runs("named")
    assert ids(jobs.pods("named")[0]) == [free]

    # The commands show them, and their utilization.
    admin = Person(installed.plane, tmp_path, "admin", jobs.namespace, ["system:masters"])
    admin.env["FAIRWAY_CONTEXT"] = "lab"
    for name in nodes:
        agents.gpus(name, "8xA100-80GB," + ",".join(f"busy:{index}:87" for index in range(8)))
    (installed.folder / "agent-token").write_text(agents.token("fairway-operator", audiences=[AUDIENCE]))
    wait_for("the use of its devices", lambda: admin.json("top", "job", "node")["tasks"][0]["gpu_used"] == 0.87, 60.0)
    shown = {one["name"]: one for one in admin.json("top", "node")["nodes"]}
    assert [(shown[name]["gpus"], [each["uuid"] for each in shown[name]["devices"]]) for name in nodes] == [
        (8, devices[name]) for name in nodes
    ]
    assert {each["used"] for each in shown[alone["spec"]["nodeName"]]["devices"]} == {1.0}
    assert {user for each in shown[alone["spec"]["nodeName"]]["devices"] for user in each["used_by"]} == {"node/worker-0"}

    only_the_operator_is_told(installed, agents, devices)

    # Another scheduler takes over and dies in the middle of a gang; a third one continues.
    before = installed.processes.pop("scheduler")
    before.terminate()
    before.wait(timeout=60)
    submit(jobs, "later", 2, gpu="2")
    submit(jobs, "parts", 2, gpu="0.5")
    installed.start("scheduler", FAIRWAY_CRASH_AT="api.bind:after:2").wait(timeout=120)
    assert max(taken(jobs).values()) == 1000
    installed.start("scheduler")
    for name in ("later", "parts"):
        jobs.runs(name)
    found = taken(jobs)
    assert max(found.values()) == 1000
    asked = 2 * 4000 + 4 * 250 + 8000 + 2 * 2000 + 2 * 500 + 1000
    assert sum(found.values()) == asked

    # A request that cannot be met now gets the same message as on a single machine.
    submit(jobs, "greedy", 2, gpu="8")
    status = jobs.until("greedy", "says why", lambda status: "GPUs" in status.get("message", ""))
    assert status["message"].startswith("needs 8 GPUs for each of 2 worker tasks, which start together")
    assert "needs 8 GPUs for each of 2 worker tasks" in admin.run("why", "greedy").stdout


def leaf_name(installed: Installed, agents: Agents, token: str) -> str:
    """Return the name in the certificate that the operator issues for a token. Raises `OSError` when it issues none."""
    leaf = PodCertificate(installed.endpoint, lambda: token, (agents.folder / "ca.pem").read_text)
    pem = json.loads(leaf._ask())["pem"].encode()
    found = x509.load_pem_x509_certificate(pem).extensions.get_extension_for_class(x509.SubjectAlternativeName)
    (name,) = found.value.get_values_for_type(x509.DNSName)
    return name


def test_pods_of_services_alone_get_a_certificate_each_of_its_own_name(
    installed: Installed, agents: Agents, nodes: list[str], jobs: Jobs
) -> None:
    del nodes
    plane, space = installed.plane, f"/api/v1/namespaces/{jobs.namespace}"
    labels = {annotation.MANAGED_BY: annotation.MANAGER, annotation.SERVICE: "adds", annotation.PART: "router"}
    bound = {}
    for name, told in (("ours", labels), ("other", labels), ("stranger", {})):
        pod = {"metadata": {"name": name, "labels": told}, "spec": {"containers": [{"name": "a", "image": "none"}]}}
        status, made = plane.request("POST", f"{space}/pods", pod)
        assert status == 201, made
        bound[name] = {"kind": "Pod", "apiVersion": "v1", "name": name, "uid": made["metadata"]["uid"]}

    def token(**spec: Any) -> str:
        asked = {"kind": "TokenRequest", "apiVersion": "authentication.k8s.io/v1", "spec": spec}
        status, answer = plane.request("POST", f"{space}/serviceaccounts/default/token", asked)
        assert status == 201, answer
        return str(answer["status"]["token"])

    tokens = {name: token(audiences=[pod_authenticator.AUDIENCE], boundObjectRef=one) for name, one in bound.items()}
    wait_for("ours is seen", lambda: gets(lambda: leaf_name(installed, agents, tokens["ours"])), 30.0, installed.last_words)
    for name in ("ours", "other"):
        assert leaf_name(installed, agents, tokens[name]) == pod_authenticator.pod_name(bound[name]["uid"])
    refused = {
        "no pod of a service": tokens["stranger"],
        "made for no pod": token(audiences=[pod_authenticator.AUDIENCE]),
        "made for the API server": token(boundObjectRef=bound["ours"]),
        "made up": "made-up",
        "": "",
    }
    for what, one in refused.items():
        with pytest.raises(OSError, match="HTTP 403"):
            leaf_name(installed, agents, one)
        assert what is not None
    plane.request("DELETE", f"{space}/pods/ours", {"gracePeriodSeconds": 0})
    wait_for("it is gone", lambda: plane.get(f"{space}/pods/ours")[0] == 404, 30.0)
    with pytest.raises(OSError, match="HTTP 403"):
        leaf_name(installed, agents, tokens["ours"])
    for name in ("other", "stranger"):
        plane.request("DELETE", f"{space}/pods/{name}", {"gracePeriodSeconds": 0})


def gets(work: Callable[[], str]) -> bool:
    try:
        return bool(work())
    except OSError:
        return False


def test_an_agent_that_is_killed_says_nothing_new_and_goes_on(installed: Installed, agents: Agents, nodes: list[str]) -> None:
    name = nodes[1]
    before = installed.plane.get(f"{GPUS}/{name}")[1]
    agents.kill(name)
    agents.gpus(name, "8xA100-80GB,sick:5")
    agents.start(name)
    agents.until(name, healthy=7)
    wait_for("the condition", lambda: unhealthy(installed.plane, name) == "True", 60.0)
    agents.kill(name)
    broken = installed.plane.get(f"{GPUS}/{name}")[1]
    assert (before["metadata"]["uid"], before["spec"]) == (broken["metadata"]["uid"], broken["spec"])
    agents.start(name)
    agents.gpus(name, "8xA100-80GB")
    agents.until(name, healthy=8)
    wait_for("the condition is gone", lambda: unhealthy(installed.plane, name) == "False", 60.0)
    assert not tainted(installed.plane, name)
    quiet = installed.plane.get(f"{GPUS}/{name}")[1]["metadata"]["resourceVersion"]
    agents.gpus(nodes[2], "8xA100-80GB,sick:0")
    agents.until(nodes[2], healthy=7)  # In this time, other agents have probed several times.
    agents.gpus(nodes[2], "8xA100-80GB")
    agents.until(nodes[2], healthy=8)
    assert installed.plane.get(f"{GPUS}/{name}")[1]["metadata"]["resourceVersion"] == quiet


def test_nothing_is_placed_on_a_broken_gpu_nor_on_a_node_of_broken_ones(
    installed: Installed, jobs: Jobs, agents: Agents, kwok_nodes: Add
) -> None:
    (name,) = kwok_nodes(1, labels={"pool": "small"})
    here = {"labels": {"pool": "small"}}
    agents.start(name, "2xT4,sick:0")
    agents.until(name, count=2, healthy=1)
    wait_for("the condition", lambda: unhealthy(installed.plane, name) == "True", 60.0)
    submit(jobs, "first", placement=here, gpu="1")
    jobs.runs("first")
    assert ids(jobs.pods("first")[0]) == uuids(agents, name)[1:]
    submit(jobs, "second", placement=here, gpu="1")
    jobs.until("second", "says why", lambda status: "needs 1 GPU" in status.get("message", ""))
    agents.gpus(name, "2xT4,sick:0,sick:1")
    wait_for("the taint", lambda: tainted(installed.plane, name), 60.0)
    jobs.submit("third", roles={"worker": {"command": ["x"], "resources": {"cpu": "100m"}, "placement": here}})
    jobs.until("third", "says why", lambda status: status.get("phase") == "Pending" and status.get("message", "") != "")
    assert not any(pod["spec"].get("nodeName") for run in ("second", "third") for pod in jobs.pods(run))
    # GPUs that are gone for good are forgotten when the object is deleted, which the agent creates anew.
    agents.gpus(name, "1xT4")
    agents.until(name, count=2, healthy=1)
    agents.plane.request("DELETE", f"{GPUS}/{name}")
    agents.until(name, count=1, healthy=1)
    agents.gpus(name, "2xT4")
    for run in ("second", "third"):
        jobs.runs(run)
    assert ids(jobs.pods("second")[0]) == uuids(agents, name)[:1]
    assert not tainted(installed.plane, name)
    assert unhealthy(installed.plane, name) == "False"
    agents.kill(name)


def test_where_a_plugin_hands_out_gpus_they_are_counted_and_nothing_else(
    installed: Installed, jobs: Jobs, agents: Agents, nodes: list[str], kwok_nodes: Add
) -> None:
    (name,) = kwok_nodes(1, labels={"pool": "plugin"}, capacity={"nvidia.com/gpu": "4"})
    agents.start(name, "4xA100-80GB")
    agents.until(name, count=4)
    there, elsewhere = {"labels": {"pool": "plugin"}}, {"nodes": nodes}
    submit(jobs, "counted", 2, placement=there, gpu="2")
    submit(jobs, "ours", placement=elsewhere, gpu="1")
    submit(jobs, "part", placement=there, gpu="0.5")
    submit(jobs, "exact", placement={**there, "devices": ["1"]}, gpu="1")
    for run in ("counted", "ours"):
        jobs.runs(run)
    for pod in jobs.pods("counted"):
        assert pod["spec"]["nodeName"] == name
        assert pod["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] == "2"
        assert not ids(pod)
    (pod,) = jobs.pods("ours")
    assert set(ids(pod)) < set(uuids(agents, pod["spec"]["nodeName"]))
    for run, words in (("part", "50% of a GPU"), ("exact", "the GPU 1")):
        status = jobs.until(run, "is refused", lambda status: status.get("phase") == "Failed")
        assert f"requests {words}, and GPUs of {name} are handed out by a device plug-in" in status["message"]
    agents.kill(name)


async def test_an_agent_may_write_of_its_own_node_only(installed: Installed, agents: Agents, nodes: list[str]) -> None:
    own, other = nodes[:2]
    async with api.connect(kubeconfig.read_kubeconfig(agents.kubeconfig(own)).target(), SystemClock()) as client:
        head = {"apiVersion": api_resource.GPU_NODES.api_version, "kind": "GpuNode"}
        with pytest.raises(errors.ApiError, match=f"its own node: {own}, not {other}"):
            await client.apply_status(
                api_resource.GPU_NODES, {**head, "metadata": {"name": other}, "status": {"count": 0}}, manager="x"
            )
        with pytest.raises(errors.ApiError, match="may only write to its own node"):
            await client.create(api_resource.GPU_NODES, {**head, "metadata": {"name": "nowhere"}})
        taint = {"op": "add", "path": "/spec/taints", "value": [{"key": "x", "effect": "NoSchedule"}]}
        with pytest.raises(errors.ApiError, match="may change no taint but"):
            await client.patch(api_resource.NODES, own, "", [taint])
        label = {"op": "add", "path": "/metadata/labels/x", "value": "y"}
        with pytest.raises(errors.ApiError, match="may change nothing else of a node"):
            await client.patch(api_resource.NODES, own, "", [label])
        ready = {"type": "Ready", "status": "False", "reason": "x", "message": "x"}
        body = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": own}, "status": {"conditions": [ready]}}
        with pytest.raises(errors.ApiError, match="may change no condition but"):
            await client.apply_status(api_resource.NODES, body, manager="x")
