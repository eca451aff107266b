"""The whole path on real nodes: a run produces a model, it is served behind a Service, the next version is released under load.

Operator, scheduler, routers and replicas are pods with the rights of the installation.
"""

from __future__ import annotations

import base64
import contextlib
import io
import json
import subprocess
import sys
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cluster import image
from cluster.network import inside
from cluster.nodes import RealCluster
from cluster.process import wait_for
from cluster.record import Person, available
from cluster.served import write_model

from fairway.app.system.clock import SystemClock
from fairway.engines.kubernetes import annotation
from fairway.engines.kubernetes.install.manifest import endpoint, manifests
from fairway.engines.kubernetes.operator.installation import FrameworkRuntime, InstallationSettings
from fairway.serving.router.access.self_signed import renew

pytestmark = pytest.mark.timeout(600)

PATIENCE = 180.0

ASK = """
import http.client, json, sys, threading, time, collections, os
host, body = sys.argv[1], json.dumps({"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 2], "data": [10, 20]}]})
answers, failures = collections.Counter(), []
def ask_on():
    connection = http.client.HTTPConnection(host, timeout=60)
    while not os.path.exists("/tmp/stop"):
        try:
            connection.request("POST", "/v2/models/adds/infer", body, {"Content-Type": "application/json"})
            answer = connection.getresponse()
            said = answer.read()
            if answer.status == 200:
                answers[json.loads(said)["outputs"][0]["data"][0] - 10] += 1
            else:
                failures.append(f"{answer.status} {said[:200]}")
        except Exception as error:
            failures.append(repr(error))
            connection.close()
        time.sleep(0.01)
threads = [threading.Thread(target=ask_on) for _ in range(4)]
[thread.start() for thread in threads]
while any(thread.is_alive() for thread in threads):
    print(json.dumps({"answers": answers, "failures": failures[:20], "failed": len(failures)}), flush=True)
    time.sleep(0.5)
print(json.dumps({"answers": answers, "failures": failures[:20], "failed": len(failures)}), flush=True)
"""

ASK_ONCE = """
import json, sys, urllib.request
body = json.dumps({"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 2], "data": [10, 20]}]}).encode()
request = urllib.request.Request(sys.argv[1], body, {"Content-Type": "application/json"})
print(urllib.request.urlopen(request, timeout=90).read().decode())
"""

ASK_EACH = """
import json, sys, urllib.request
url, first, last = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
for value in range(first, last):
    body = {"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 2], "data": [value, value]}]}
    request = urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})
    answer = json.load(urllib.request.urlopen(request, timeout=90))
    assert answer["outputs"][0]["data"][0] == value + 1, answer
"""


ASK_DOOR = """
import json, ssl, sys, time, urllib.error, urllib.request
host, authority, key = sys.argv[1:]
tls = ssl.create_default_context(cadata=authority)
def ask(url, **headers):
    body = json.dumps({"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 2], "data": [10, 20]}]}).encode()
    request = urllib.request.Request(f"{url}/v2/models/door/infer", body, {"Content-Type": "application/json", **headers})
    try:
        return urllib.request.urlopen(request, timeout=60, context=tls if url.startswith("https") else None).status
    except urllib.error.HTTPError as answer:
        return answer.code
found = {
    "key": ask(f"https://{host}", Authorization=f"Bearer {key}"), "none": ask(f"https://{host}"),
    "wrong": ask(f"https://{host}", **{"X-API-Key": key[:-1] + "x"}), "plain": ask(f"http://{host}:443"),
}
print(json.dumps(found))
"""

COPY = """
import os, shutil
os.makedirs(folder := os.environ["FAIRWAY_OUTPUT_MODEL"], exist_ok=True)
shutil.copy("model.onnx", folder)
"""

ROWS = f"""{COPY}
import numpy
os.makedirs(folder := os.environ["FAIRWAY_OUTPUT_DATASET"], exist_ok=True)
numpy.save(os.path.join(folder, "rows.npy"), numpy.arange(2000, dtype="float32").reshape(1000, 2))
"""


LISTEN = """
import socket, struct, sys
folder = sys.argv[1]
heard = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(0x0800))
files = {port: open(f"{folder}/{port}", "ab", buffering=0) for port in (8081, 20010)}
print("listens", flush=True)
while True:
    packet = heard.recv(65535)
    if packet[9] != socket.IPPROTO_TCP:
        continue
    start = (packet[0] & 15) * 4
    ports = struct.unpack_from("!HH", packet, start)
    data = packet[start + (packet[start + 12] >> 4) * 4 : struct.unpack_from("!H", packet, 2)[0]]
    for port in set(ports) & set(files):
        files[port].write(data)
"""


@contextlib.contextmanager
def listening(place: Place, folder: Path) -> Iterator[Callable[[int], bytes]]:
    """Capture all traffic of every node at the ports where the operator sends requests to pods; yields it by port."""
    processes = []
    for number, node in enumerate(place.cluster.nodes):
        (own := folder / str(number)).mkdir(parents=True)
        command = inside(node.pid, sys.executable, "-c", LISTEN, own)
        processes.append(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))
    try:
        for process in processes:
            assert process.stdout is not None
            assert process.stdout.readline() == "listens\n"
        yield lambda port: b"".join(path.read_bytes() for path in folder.glob(f"*/{port}"))
    finally:
        for process in processes:
            process.kill()
            process.communicate()


class Place:
    """Fairway on real nodes, with its services."""

    def __init__(self, cluster: RealCluster, folder: Path) -> None:
        self.cluster = cluster
        self.folder = folder
        runs = folder / "runs"
        runs.mkdir()
        runs.chmod(0o777)  # pods that the nodes run as other users than root need access
        table = {"default": FrameworkRuntime(image.FAIRWAY)}
        record = folder / "record"
        record.mkdir()
        record.chmod(0o777)
        volumes: dict[str, Any] = {
            name: {"hostPath": {"path": str(at)}} for name, at in (("run_volume", runs), ("record", record))
        }
        self.installation = InstallationSettings(image=image.FAIRWAY, runtimes=table, **volumes)

    def install(self) -> None:
        """Apply everything that an installation applies, and load the image on the nodes."""
        self.cluster.plane.start_scheduler()  # places our own processes
        self.cluster.load(image.fairway(self.folder / "fairway.tar", ["kubernetes", "serve"]))
        for one in manifests(self.installation):
            self.kubectl("apply", "--server-side", "-f", "-", given=json.dumps(one))
        self.kubectl("-n", "fairway-system", "wait", "--for=condition=Available", "deployment", "--all", "--timeout=120s")

    def kubectl(self, *arguments: str, given: str | None = None) -> str:
        return self.cluster.plane.kubectl(*arguments, given=given)

    def make(self, body: dict[str, Any]) -> None:
        self.kubectl("apply", "--server-side", "-f", "-", given=json.dumps(body))

    def train(self, name: str, add: float, program: str = COPY, **outputs: str) -> None:
        """Run a job that produces a version of the model `adds` and the other outputs; return when it has succeeded."""
        packed = io.BytesIO()
        with tarfile.open(fileobj=packed, mode="w:gz") as archive:
            archive.add(write_model(self.folder / "model.onnx", add), "model.onnx")
        code = {"code.tar.gz": base64.b64encode(packed.getvalue()).decode()}
        self.make({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": f"{name}-code"}, "binaryData": code})
        role = {"replicas": {"min": 1, "max": 1}, "command": ["python3", "-c", program], "resources": {"cpu": "100m"}}
        metadata = {"name": name, "annotations": {annotation.CODE: f"{name}-code"}}
        spec = {"framework": "command", "roles": {"worker": role}, "outputs": {"model": "adds", **outputs}}
        self.make({"apiVersion": "fairway.dev/v1alpha1", "kind": "TrainingJob", "metadata": metadata, "spec": spec})
        phase = "jsonpath={.status.phase}"
        done = lambda: self.kubectl("get", "trainingjob", name, "-o", phase) == "Succeeded"  # noqa: E731
        wait_for(f"{name} has succeeded", done, PATIENCE, self.why)

    def serve(self, name: str = "adds", **spec: Any) -> None:
        asked = {"replicas": {"min": 2, "max": 2}, "resources": {"cpu": "100m"}, "grace": "5s", **spec}
        metadata = {"name": name, "namespace": "default"}
        self.make({"apiVersion": "fairway.dev/v1alpha1", "kind": "ModelService", "metadata": metadata, "spec": asked})

    def status(self, service: str = "adds") -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.kubectl("get", "modelservice", service, "-o", "json")).get("status", {})
        return found

    def until(self, what: str, service: str = "adds", **said: Any) -> None:
        wait_for(what, lambda: said.items() <= self.status(service).items(), PATIENCE, self.why)

    def start(self, name: str, *command: str) -> None:
        """Start a pod that runs this once."""
        container = {"name": "main", "image": image.FAIRWAY, "command": ["python3", "-I", "-c", *command]}
        spec = {"containers": [container], "restartPolicy": "Never", "terminationGracePeriodSeconds": 0}
        self.make({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "default"}, "spec": spec})

    def phase(self, pod: str) -> str:
        return self.kubectl("get", "pod", pod, "-o", "jsonpath={.status.phase}")

    def heard(self) -> dict[str, Any]:
        """Return the counts of the clients."""
        lines = self.kubectl("logs", "asker", "--tail=1").splitlines()
        found: dict[str, Any] = json.loads(lines[-1]) if lines else {"answers": {}, "failed": 0}
        return found

    def why(self) -> str:
        words = [self.kubectl("get", "modelservices", "-o", "yaml")]
        words += [self.kubectl("get", "pods", "-A", "-o", "wide"), self.kubectl("get", "trainingjobs", "-o", "wide")]
        words += [self.kubectl("-n", "fairway-system", "logs", "deploy/fairway-operator", "--tail=30")]
        return "\n".join(words)


@pytest.fixture(scope="module")
def place(real_nodes: RealCluster, tmp_path_factory: pytest.TempPathFactory) -> Place:
    found = Place(real_nodes, tmp_path_factory.mktemp("served"))
    found.install()
    return found


@pytest.fixture
def ann(place: Place, tmp_path: Path) -> Person:
    """A user who may edit."""
    bind = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "edit"}
    user = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "ann"}
    head = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": {"name": "ann"}}
    place.make({**head, "roleRef": bind, "subjects": [user]})
    wait_for("the record", lambda: available(place.cluster.plane), PATIENCE, place.why)
    found = Person(place.cluster.plane, tmp_path, "ann", "default")
    found.env["FAIRWAY_CONTEXT"] = "lab"
    return found


def test_from_a_run_to_the_next_version_without_a_failed_request(place: Place, ann: Person) -> None:
    place.train("first", 1)
    place.serve(model="adds@1")
    place.train("second", 2)
    place.until("the first version answers", ready="2/2", phase="Ready")
    place.start("asker", ASK, "adds")
    wait_for("somebody asks", lambda: place.phase("asker") == "Running", PATIENCE, place.why)
    wait_for("answers", lambda: place.heard()["answers"].get("1.0", 0) > 200, PATIENCE, place.why)

    # A replica and a router are deleted.
    for part in ("replica", "router"):
        selector = f"fairway.dev/service=adds,fairway.dev/part={part}"
        pods = place.kubectl("get", "pods", "-l", selector, "-o", "name").split()
        place.kubectl("delete", pods[0], "--wait=false")

    steps = [{"to": "20%", "for": "2s"}, {"to": "60%", "for": "2s"}]
    place.serve(model="adds@2", rollout={"strategy": "canary", "steps": steps, "requests": 20})
    all_of_it = lambda: [one["traffic"] for one in place.status().get("revisions", ())] == ["0%", "100%"]  # noqa: E731
    wait_for("the next version has all of the traffic", all_of_it, PATIENCE, place.why)
    count = lambda: place.kubectl("get", "deployment", "adds-r1", "-o", "jsonpath={.spec.replicas}")  # noqa: E731
    wait_for("the first version goes", lambda: count() == "0", PATIENCE, place.why)
    place.kubectl("exec", "asker", "--", "touch", "/tmp/stop")
    wait_for("nobody asks any more", lambda: place.phase("asker") == "Succeeded", PATIENCE, place.why)
    heard = place.heard()
    assert heard["failed"] == 0, heard
    assert set(heard["answers"]) == {"1.0", "2.0"}
    # The logs of deleted pods are kept.
    selector = "fairway.dev/service=adds,fairway.dev/revision=1"
    wait_for("its pods are gone", lambda: not place.kubectl("get", "pods", "-l", selector, "-o", "name"), PATIENCE, place.why)
    printed = ann.run("logs", "service/adds").stdout
    assert "lost" not in printed, printed
    # The replacement of the deleted replica may continue as the same replica, or as another.
    gone = [line for line in printed.splitlines() if line.startswith("r1-") and "is served at" in line]
    assert len(gone) >= 3, f"the first two, and the one in the place of the one that was taken away: {printed}"


def test_a_service_without_a_replica_lets_the_first_request_wait_for_one(place: Place, ann: Person) -> None:
    # A model that was created on a user's own machine.
    write_model(ann.work / "laptop.onnx", 1)
    assert ann.run("model", "register", "laptop", "laptop.onnx").stdout == "laptop@1\n"
    place.serve("rests", model="laptop@1", replicas={"min": 0, "max": 1}, scaling={"idle": "1s"})
    place.until("it rests", "rests", phase="Idle", replicas=0)
    assert place.kubectl("get", "deployment", "rests-r1", "-o", "jsonpath={.spec.replicas}") == "0"
    place.start("late", ASK_ONCE, "http://rests/v2/models/laptop/infer")
    wait_for("an answer", lambda: place.phase("late") in ("Succeeded", "Failed"), PATIENCE, place.why)
    assert json.loads(place.kubectl("logs", "late"))["outputs"][0]["data"] == [11, 21]


def test_an_endpoint_with_keys_and_tls(place: Place, ann: Person) -> None:
    write_model(ann.work / "door.onnx", 1)
    ann.run("model", "register", "door", "door.onnx")
    renew(ann.work, "default/door", ["door"], SystemClock().now())
    pair = {"tls.crt": (ann.work / "certificate.pem").read_text(), "tls.key": (ann.work / "key.pem").read_text()}
    head = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "door-cert", "namespace": "default"}}
    place.make({**head, "type": "kubernetes.io/tls", "stringData": pair})
    endpoint = {"keys": "required", "tls": {"secret": "door-cert"}}
    place.serve("door", model="door@1", replicas={"min": 1, "max": 1}, endpoint=endpoint)
    place.until("it answers", "door", ready="1/1", phase="Ready")

    def ask(name: str, key: str) -> dict[str, int]:
        place.start(name, ASK_DOOR, "door", (ann.work / "authority.pem").read_text(), key)
        wait_for("the answers", lambda: place.phase(name) in ("Succeeded", "Failed"), PATIENCE, place.why)
        assert place.phase(name) == "Succeeded", place.kubectl("logs", name)
        found: dict[str, int] = json.loads(place.kubectl("logs", name))
        return found

    routers = "fairway.dev/service=door,fairway.dev/part=router"
    place.kubectl("wait", "--for=condition=Ready", "pod", "-l", routers, "--timeout=120s")
    key = ann.run("key", "create", "door", "--name", "ci").stdout.strip()
    assert ask("door-with", key) == {"key": 200, "none": 401, "wrong": 401, "plain": 426}
    assert key not in place.kubectl("get", "secrets,configmaps,modelservices,deployments", "-o", "yaml")
    ann.run("key", "revoke", "door", "ci")
    assert ask("door-without", key) == {"key": 401, "none": 401, "wrong": 401, "plain": 426}
    place.kubectl("delete", "modelservice", "door", "--wait=false")


def test_sampled_requests_become_a_dataset_and_a_pod_that_goes_brings_its_last(place: Place, ann: Person) -> None:
    pods = "fairway.dev/service=curious,fairway.dev/part=replica"

    def ask(name: str, first: int, last: int) -> None:
        place.until("it answers", "curious", ready="2/2", phase="Ready")
        place.start(name, ASK_EACH, "http://curious/v2/models/adds/infer", str(first), str(last))
        wait_for("the answers", lambda: place.phase(name) in ("Succeeded", "Failed"), PATIENCE, place.why)
        assert place.phase(name) == "Succeeded", place.kubectl("logs", name)

    def asked() -> list[float]:
        """Return the inputs in the newest version of the dataset."""
        found = ann.run("data", "get", "curious-requests", "-o", "json", code=None)
        if found.returncode:
            return []
        made = json.loads(found.stdout)
        assert (made["services"], made["models"]) == (["default/curious"], ["adds@1"])
        folder = ann.work / f"asked-{made['version']}"
        if not folder.exists():
            ann.run("data", "pull", f"curious-requests@{made['version']}", str(folder))
        lines = [line for path in sorted(folder.glob("*.jsonl")) for line in path.read_text().splitlines()]
        return sorted(json.loads(line)["inputs"][0]["data"][0] for line in lines)

    def until(count: int) -> None:
        wait_for(f"{count} requests in the dataset", lambda: len(asked()) >= count, PATIENCE, place.why)
        assert asked() == list(range(count)), "each once"

    place.serve("curious", model="adds@1", sampling={"rate": "100%"})
    ask("first-asks", 0, 40)
    place.kubectl("delete", "pods", "-l", pods, "--wait=false")
    until(40)
    ask("second-asks", 40, 60)
    place.kubectl("delete", "modelservice", "curious", "--wait=false")
    until(60)
    wait_for("its pods are gone", lambda: not place.kubectl("get", "pods", "-l", pods, "-o", "name"), PATIENCE, place.why)


def test_a_model_is_run_over_a_dataset_by_pods_that_share_the_work(place: Place, ann: Person) -> None:
    place.train("third", 3, ROWS, dataset="rows")
    asked = ("predict", "adds", "--data", "rows@1", "--out", "scored", "--workers", "2", "--shard", "100")
    done = ann.run(*asked, timeout=PATIENCE)
    assert "rows 900 to 1,000 of 1,000" in done.stdout, done
    made = ann.json("data", "get", "scored@1")
    assert made["run"] == "default/predict-adds-1"
    assert [one["path"] for one in made["contents"]] == [f"part-{start:012d}.npz" for start in range(0, 1000, 100)]
    ann.run("data", "pull", "scored", "scored")
    with np.load(ann.work / "scored" / "part-000000000900.npz") as part:
        assert part["y"][0].tolist() == [1803.0, 1804.0]

    # Rows of the caller's own machine are uploaded with the request.
    (ann.work / "few.csv").write_text("1,2\n30,40\n")
    ann.run("predict", "adds", "--data", "few.csv", "--out", "few", timeout=PATIENCE)
    assert ann.json("data", "get", "few")["run"] == "default/predict-adds-2"
    ann.run("data", "pull", "few@1", "few")
    found = (ann.work / "few" / "part-000000000000.jsonl").read_text()
    assert [json.loads(line)["y"] for line in found.splitlines()] == [[4.0, 5.0], [33.0, 43.0]]


def test_the_operator_asks_pods_over_tls_and_those_of_before_as_before_until_they_are_replaced(
    place: Place, ann: Person, tmp_path: Path
) -> None:
    def lead(scheme: str) -> None:
        """Let the operator behave as an earlier version, or as this one; its record stays."""
        known = endpoint(place.installation).replace("https", scheme, 1)
        place.kubectl("-n", "fairway-system", "set", "env", "deploy/fairway-operator", f"FAIRWAY_OPERATOR_ENDPOINT={known}")
        place.kubectl("-n", "fairway-system", "rollout", "status", "deploy/fairway-operator", "--timeout=180s")
        wait_for("the record", lambda: available(place.cluster.plane), PATIENCE, place.why)

    def ports() -> set[str]:
        """Return the port names of the pods of all services: the capture below includes those of earlier tests too."""
        pods = json.loads(place.kubectl("get", "pods", "-l", "fairway.dev/service", "-o", "json"))["items"]
        containers = [one for pod in pods for part in ("containers", "initContainers") for one in pod["spec"].get(part, ())]
        return {port["name"] for one in containers for port in one.get("ports", ())}

    def release(model: str) -> None:
        place.serve("secret", model=model)
        served = lambda: place.status("secret").get("serves") == model  # noqa: E731
        wait_for(f"{model} is served", served, PATIENCE, place.why)
        place.until("all of it answers", "secret", ready="2/2", phase="Ready")

    def secret() -> bytes:
        (found,) = json.loads(place.kubectl("get", "secrets", "-l", "fairway.dev/service=secret", "-o", "json"))["items"]
        return base64.b64decode(found["data"]["router"])

    lead("http")
    versions = []
    for add in (5, 6, 7):
        write_model(ann.work / "adds.onnx", add)
        versions.append(ann.run("model", "register", "adds", "adds.onnx").stdout.strip())
    with listening(place, tmp_path / "before") as heard:
        # Routers of earlier versions get their plan without TLS: the capture has the token.
        release(versions[0])
        token = secret()
        wait_for("the token is heard", lambda: token in heard(8081), PATIENCE, place.why)
    assert "control" in ports()
    place.start("secret-asker", ASK, "secret")
    wait_for("requests", lambda: place.phase("secret-asker") == "Running", PATIENCE, place.why)
    wait_for("answers", lambda: '"5.0"' in place.kubectl("logs", "secret-asker", "--tail=1"), PATIENCE, place.why)
    release(versions[1])
    wait_for("answers", lambda: '"6.0"' in place.kubectl("logs", "secret-asker", "--tail=1"), PATIENCE, place.why)

    # The operator is upgraded: pods are replaced, one after the other.
    lead("https")
    wait_for("all of them are new", lambda: ports() == {"http", "control-tls", "load-tls"}, PATIENCE, place.why)
    place.until("all of it answers", "secret", ready="2/2", phase="Ready")
    with listening(place, tmp_path / "after") as heard:
        # A new operator opens all connections anew.
        place.kubectl("-n", "fairway-system", "rollout", "restart", "deploy/fairway-operator")
        place.kubectl("-n", "fairway-system", "rollout", "status", "deploy/fairway-operator", "--timeout=180s")
        release(versions[2])
        for port in (8081, 20010):
            # A TLS record with application data.
            wait_for(f"data at {port}", lambda port=port: b"\x17\x03\x03" in heard(port), PATIENCE, place.why)
        assert secret() == token
        for said in (token, b"put {", b"/fairway/load", b"busy_seconds"):
            assert said not in heard(8081) + heard(20010)
    place.kubectl("exec", "secret-asker", "--", "touch", "/tmp/stop")
    wait_for("the requests end", lambda: place.phase("secret-asker") == "Succeeded", PATIENCE, place.why)
    answers = json.loads(place.kubectl("logs", "secret-asker", "--tail=1").splitlines()[-1])
    assert answers["failed"] == 0, answers
    assert set(answers["answers"]) == {"5.0", "6.0", "7.0"}
