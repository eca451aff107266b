"""Real nodes run real pods, find each other by name, and leave nothing behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cluster import folders, image, kernel
from cluster.nodes import RealCluster
from cluster.process import command_line, wait_for

TESTS = Path(__file__).parents[1]

pytestmark = pytest.mark.timeout(300)  # the first waits for two nodes and an image


class Room:
    """A namespace on the real nodes, and the steps of a test in it."""

    def __init__(self, cluster: RealCluster, name: str) -> None:
        self.cluster = cluster
        self.name = name

    def kubectl(self, *arguments: str, given: str | None = None) -> str:
        return self.cluster.plane.kubectl("--namespace", self.name, *arguments, given=given)

    def pod(self, name: str, node: int, command: list[str], **spec: Any) -> None:
        """Create a pod on a node, which is counted from 1."""
        container = {"name": "main", "image": image.FAIRWAY, "command": command, **spec.pop("container", {})}
        self.create(
            "Pod",
            name,
            {
                "nodeName": f"node-{node}",
                "restartPolicy": "Never",
                "terminationGracePeriodSeconds": 0,
                "containers": [container],
                **spec,
            },
        )

    def create(self, kind: str, name: str, spec: dict[str, Any]) -> None:
        document = {"apiVersion": "v1", "kind": kind, "metadata": {"name": name, "labels": {"app": name}}, "spec": spec}
        self.kubectl("create", "-f", "-", given=json.dumps(document))

    def status(self, name: str) -> dict[str, Any]:
        return json.loads(self.kubectl("get", "pod", name, "-o", "json"))["status"]

    def ended(self, name: str) -> str:
        """Return a pod's log, when it has succeeded."""
        wait_for(f"the end of {name}", lambda: self.status(name)["phase"] in ("Succeeded", "Failed"))
        said = self.kubectl("logs", name)
        assert self.status(name)["phase"] == "Succeeded", said
        return said

    def runs(self, name: str) -> str:
        """Return the address of a pod, when it runs."""
        wait_for(f"{name} to run", lambda: self.status(name)["phase"] == "Running")
        return self.status(name)["podIP"]


@pytest.fixture(scope="module")
def cluster(real_nodes: RealCluster) -> RealCluster:
    """The nodes, with the image of this checkout."""
    real_nodes.load(image.fairway(real_nodes.plane.folder / "fairway.tar"))
    return real_nodes


@pytest.fixture
def room(cluster: RealCluster) -> Iterator[Room]:
    answer = cluster.plane.request("POST", "/api/v1/namespaces", {"metadata": {"generateName": "test-"}})[1]
    name = answer["metadata"]["name"]
    wait_for("its service account", lambda: cluster.plane.get(f"/api/v1/namespaces/{name}/serviceaccounts/default")[0] == 200)
    yield Room(cluster, name)
    cluster.plane.request("DELETE", f"/api/v1/namespaces/{name}")


def test_a_pod_completes_on_each_node(room: Room) -> None:
    for node in (1, 2):
        room.pod(f"pod-{node}", node, ["fairway", "--version"])
    for node in (1, 2):
        assert room.ended(f"pod-{node}").startswith("fairway ")


SERVE = ["sh", "-c", "echo hello from $(hostname) > /tmp/index.html; exec httpd -f -p 80 -h /tmp"]


FETCH = """
import sys, time, urllib.request
while True:
    try:
        print(urllib.request.urlopen(sys.argv[1], timeout=2).read().decode(), end="")
        break
    except OSError as refused:
        print(refused, file=sys.stderr)
        time.sleep(0.2)
"""


def fetching(address: str) -> list[str]:
    """Return the command of a pod that sends a request until it succeeds."""
    return ["python3", "-I", "-c", FETCH, address]


def test_pods_find_each_other_by_name_across_nodes(room: Room) -> None:
    room.create("Service", "group", {"clusterIP": "None", "publishNotReadyAddresses": True, "selector": {"app": "one"}})
    room.pod("one", 1, SERVE, hostname="one", subdomain="group")
    room.runs("one")
    name = f"one.group.{room.name}.svc.cluster.local."
    room.pod("two", 2, fetching(f"http://{name}/"))
    assert room.ended("two") == "hello from one\n"


def test_a_service_answers_pods_and_this_machine(room: Room) -> None:
    room.create("Service", "web", {"selector": {"app": "web"}, "ports": [{"port": 8000, "targetPort": 80}]})
    room.pod("web", 1, SERVE)
    room.runs("web")
    for node in (1, 2):  # also on its own node
        room.pod(f"asks-{node}", node, fetching("http://web:8000/"))
    for node in (1, 2):
        assert room.ended(f"asks-{node}") == "hello from web\n"
    address = room.kubectl("get", "service", "web", "-o", "jsonpath={.spec.clusterIP}")
    answered = subprocess.run(
        [sys.executable, *fetching(f"http://{address}:8000/")[1:]], capture_output=True, text=True, timeout=30
    )
    assert answered.stdout == "hello from web\n"


ASK = """
import ssl, urllib.request
folder = "/var/run/secrets/kubernetes.io/serviceaccount"
request = urllib.request.Request(
    "https://kubernetes.default.svc/api/v1/namespaces/default/pods",
    headers={"Authorization": "Bearer " + open(f"{folder}/token").read()},
)
try:
    urllib.request.urlopen(request, context=ssl.create_default_context(cafile=f"{folder}/ca.crt"), timeout=30)
except urllib.error.HTTPError as refused:
    print(refused.code, refused.read().decode())
"""


def test_a_pod_speaks_to_the_api_server_as_its_service_account(room: Room) -> None:
    room.pod("asks", 2, ["python3", "-I", "-c", ASK])
    said = room.ended("asks")
    assert said.startswith("403 "), "it has no rights"
    assert f"system:serviceaccount:{room.name}:default" in said


@pytest.mark.framework("torch")
def test_a_framework_of_this_machine_works_in_a_pod(room: Room, framework_python: str) -> None:
    folder = str(Path(framework_python).parents[1])
    room.pod(
        "torch",
        1,
        [framework_python, "-c", "import torch; print(torch.ones(2, 2).sum().item())"],
        volumes=[{"name": "torch", "hostPath": {"path": folder}}],
        container={"volumeMounts": [{"name": "torch", "mountPath": folder, "readOnly": True}]},
    )
    assert room.ended("torch") == "4.0\n"


def node_is_ready(cluster: RealCluster, name: str) -> bool:
    conditions = cluster.plane.get(f"/api/v1/nodes/{name}")[1]["status"]["conditions"]
    return next(each["status"] for each in conditions if each["type"] == "Ready") == "True"


def test_a_node_is_lost_and_comes_back(room: Room, cluster: RealCluster) -> None:
    lost = cluster.nodes[1]
    room.pod("victim", 2, ["sleep", "1000"])
    room.runs("victim")
    lost.kill()
    wait_for("the loss to be seen", lambda: not node_is_ready(cluster, lost.name))
    lost.start([cluster.plane.folder / "pause.tar", cluster.plane.folder / "fairway.tar"])
    cluster.wait_ready(lost)
    room.pod("next", 2, ["true"])
    room.ended("next")


def test_a_cable_is_pulled_and_plugged_in_again(room: Room, cluster: RealCluster) -> None:
    room.pod("far", 2, SERVE)
    room.runs("far")
    cluster.network.cut(2)
    wait_for("the loss to be seen", lambda: not node_is_ready(cluster, "node-2"))
    cluster.network.mend(2)
    cluster.wait_ready(cluster.nodes[1])
    assert room.status("far")["containerStatuses"][0]["restartCount"] == 0, "the pod ran on all the while"


def traces(folder: Path, link: str) -> list[str]:
    """Return everything that a cluster has left on this machine, other than the folder itself."""
    listed = [
        *(path.name for path in Path("/proc").glob("[0-9]*") if mentions(path, folder)),
        *(line for line in Path("/proc/mounts").read_text().splitlines() if str(folder) in line),
        *(line for line in said_by("ip", "-brief", "link") if line.startswith(link)),
        *(line for line in said_by("ip", "route") if f"dev {link}" in line),
        *(str(path) for path in Path("/sys/fs/cgroup").glob(f"**/{folder.name}-*")),
    ]
    # Rules and settings of the whole machine: another cluster may hold the settings, but no cluster may add rules.
    listed += [line for line in said_by("iptables-save") if "KUBE-" in line or "CNI-" in line]
    alone = not any((known / "kernel.json").exists() for known in folders.known())
    return listed + ([f"{name} is changed" for name in kernel.CHANGED if ORIGINAL[name] != setting(name)] if alone else [])


def mentions(process: Path, folder: Path) -> bool:
    return str(folder).encode() in command_line(process)


def said_by(*command: str) -> list[str]:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()


def setting(name: str) -> str:
    return Path("/proc/sys", name).read_text()


ORIGINAL = kernel.original()

MAKER = """
import sys, time
from cluster.nodes import RealCluster
cluster = RealCluster(1)
cluster.start()
spec = {
    "nodeName": "node-1",
    "automountServiceAccountToken": False,
    "containers": [{"name": "main", "image": "fairway.test/pause:1"}],
}
path = "/api/v1/namespaces/default/pods"
assert cluster.plane.request("POST", path, {"metadata": {"name": "runs"}, "spec": spec})[0] == 201
while cluster.plane.get(path + "/runs")[1]["status"]["phase"] != "Running":
    time.sleep(0.1)
print(cluster.plane.folder, cluster.network.plan.link, flush=True)
sys.stdin.readline()
cluster.stop()
"""


@pytest.mark.parametrize("crash", [False, True], ids=["stopped", "killed"])
def test_nothing_is_left(cluster: RealCluster, crash: bool) -> None:
    environment = {**os.environ, "PYTHONPATH": str(TESTS)}
    with subprocess.Popen(
        [sys.executable, "-c", MAKER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    ) as maker:
        assert maker.stdout is not None
        assert maker.stdin is not None
        folder, link = maker.stdout.readline().split()
        assert len(traces(Path(folder), link)) > 20, "or nothing is measured here"
        if crash:
            maker.send_signal(signal.SIGKILL)
        else:
            maker.stdin.write("\n")
            maker.stdin.flush()
        maker.wait()
    if crash:
        subprocess.run([sys.executable, "-m", "cluster", "down"], env=environment, check=True)
    assert not Path(folder).exists()
    wait_for("the kernel to tidy up", lambda: not traces(Path(folder), link), 20, lambda: str(traces(Path(folder), link)))
    assert node_is_ready(cluster, "node-1"), "the other cluster lives on"
