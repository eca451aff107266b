"""The same verbs on a cluster: the real command, as a user with few RBAC permissions, over the API server."""

from __future__ import annotations

import hashlib
import json
import os
import socket
import ssl
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from cluster.control_plane import ControlPlane
from cluster.installed import Installed, Jobs
from cluster.process import wait_for
from cluster.record import API_SERVICE, Person, start_operator
from cluster.served import Services, register, write_model

from fairway import Client
from fairway.errors import DeniedError
from fairway.sdk.submission import file_upload
from fairway.sdk.transport.cluster import ClusterConnection
from fairway.sdk.transport.http import SocketReply

pytestmark = pytest.mark.timeout(300)

Add = Callable[..., list[str]]
JOB = """
kind: TrainingJob
name: mnist
framework: pytorch
grace: 1s
code: .
roles:
  worker:
    replicas: 2
    command: python train.py
    resources: {cpu: 1}
    placement: {tolerations: ["*"]}
"""


@pytest.fixture(scope="module")
def installed(control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installed]:
    found = Installed(control_plane, tmp_path_factory.mktemp("fairway"))
    found.install()
    (found.folder / "home").mkdir()
    start_operator(found)
    found.start("scheduler")
    yield found
    found.stop()
    control_plane.request("DELETE", API_SERVICE)  # while the operator does not respond there, no namespace can be deleted


def bind(plane: ControlPlane, namespace: str, user: str, role: str) -> None:
    body = {
        "metadata": {"name": f"{user}-{role}"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
        "subjects": [{"kind": "User", "name": user, "apiGroup": "rbac.authorization.k8s.io"}],
    }
    path = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}/rolebindings"
    status, answer = plane.request("POST", path, body)
    assert status == 201, answer


def grant_queues(plane: ControlPlane, user: str) -> None:
    rules = [{"apiGroups": ["fairway.dev"], "resources": ["jobqueues"], "verbs": ["patch", "create"]}]
    root = "/apis/rbac.authorization.k8s.io/v1"
    plane.request("POST", f"{root}/clusterroles", {"metadata": {"name": "queues"}, "rules": rules})
    body = {
        "metadata": {"name": f"{user}-queues"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "queues"},
        "subjects": [{"kind": "User", "name": user, "apiGroup": "rbac.authorization.k8s.io"}],
    }
    status, answer = plane.request("POST", f"{root}/clusterrolebindings", body)
    assert status == 201, answer


def allow_record(plane: ControlPlane, namespace: str, user: str) -> None:
    """Allow all requests to the record, and nothing else."""
    rules = [{"apiGroups": ["record.fairway.dev"], "resources": ["*"], "verbs": ["*"]}]
    root = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}"
    plane.request("POST", f"{root}/roles", {"metadata": {"name": "record"}, "rules": rules})
    body = {
        "metadata": {"name": f"{user}-record"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "record"},
        "subjects": [{"kind": "User", "name": user, "apiGroup": "rbac.authorization.k8s.io"}],
    }
    status, answer = plane.request("POST", f"{root}/rolebindings", body)
    assert status == 201, answer


@pytest.fixture
def ann(installed: Installed, namespace: str, tmp_path: Path, kwok_nodes: Add) -> Iterator[Person]:
    """A user who may edit in one namespace."""
    kwok_nodes(2, capacity={"cpu": "4"})
    bind(installed.plane, namespace, "ann", "edit")
    register(installed.folder / "home", 1, 2, namespace=namespace)
    accounts = f"/api/v1/namespaces/{namespace}/serviceaccounts/default"
    wait_for("the service account", lambda: installed.plane.get(accounts)[0] == 200)
    person = Person(installed.plane, tmp_path, "ann", namespace)
    (person.work / "job.yaml").write_text(JOB)
    (person.work / "train.py").write_text("print('hello')\n")
    yield person
    jobs = Jobs(installed, namespace)
    for one in installed.plane.get(jobs.path)[1]["items"]:
        jobs.delete(one["metadata"]["name"])
    wait_for("nothing is left", lambda: not jobs.pods(), 60.0)


def test_one_who_may_edit_a_namespace_uses_the_verbs_there(ann: Person, installed: Installed, namespace: str) -> None:
    jobs = Jobs(installed, namespace)
    assert "* local" in ann.run("use").stdout
    assert ann.json("--context", "lab", "list")["jobs"] == []
    assert f"on lab / {namespace}" in ann.run("use", "lab").stderr
    assert "* lab" in ann.run("use").stdout

    submitted = ann.run("submit", "job.yaml")
    assert submitted.stdout == "mnist-1\n"
    assert submitted.stderr.startswith(f"on lab / {namespace}\n")
    made = jobs.get("mnist-1")
    assert made["metadata"]["annotations"]["fairway.dev/user"] == "ann"
    assert made["metadata"]["annotations"]["fairway.dev/code"].startswith("blob:")
    jobs.runs("mnist-1")

    assert [job["name"] for job in ann.json("list")["jobs"]] == ["mnist-1"]
    assert ann.json("get", "mnist")["phase"] == "Running"
    assert ann.json("why", "mnist")["phase"] == "Running"
    assert ann.json("events", "mnist")["events"][0]["message"] == "by ann"
    assert {event["subject"] for event in ann.json("events")["events"]} == {f"{namespace}/mnist-1"}
    assert [job["name"] for job in ann.json("top", "job")["jobs"]] == ["mnist-1"]
    assert [task["name"] for task in ann.json("top", "job", "mnist")["tasks"]] == ["worker-0", "worker-1"]
    assert len(ann.json("top", "node")["nodes"]) == 2
    assert "has printed nothing" in ann.run("logs", "mnist").stderr
    assert "are not recorded" in ann.run("logs", "--timestamps", "mnist", code=5).stderr

    assert "is stopped" in ann.run("stop", "mnist", "--wait").stderr
    assert jobs.get("mnist-1")["spec"]["suspend"] is True
    ann.run("resume", "mnist")
    assert jobs.get("mnist-1")["spec"]["suspend"] is False
    assert jobs.runs("mnist-1")["attempt"] == 1
    assert ann.run("submit", "--like", "mnist-1", "--workers", "1", "-o", "name").stdout == "mnist-2\n"
    again = jobs.get("mnist-2")
    assert again["spec"]["roles"]["worker"]["replicas"] == {"min": 1, "max": 1}
    assert again["metadata"]["annotations"]["fairway.dev/code"] == made["metadata"]["annotations"]["fairway.dev/code"]
    assert ann.run("delete", "--all", "mnist", "-y").stdout == "mnist-2\nmnist-1\n"
    assert installed.plane.get(f"{jobs.path}/mnist-1")[0] == 404
    assert ann.json("list")["jobs"] == []
    assert "on local" in ann.run("use", "local").stderr


def test_what_would_be_made_is_shown_as_objects_and_nothing_is_made(ann: Person, installed: Installed, namespace: str) -> None:
    ann.env["FAIRWAY_CONTEXT"] = "lab"
    shown = ann.run("submit", "job.yaml", "--plan", "-o", "yaml")
    objects = list(yaml.safe_load_all(shown.stdout))
    assert [one["kind"] for one in objects] == ["TrainingJob", "Service", "Pod", "Pod"]
    assert {one["metadata"]["namespace"] for one in objects} == {namespace}
    assert objects[2]["metadata"]["name"] == "mnist-1-worker-0-r0"
    assert "would have 2 workers" in ann.run("submit", "job.yaml", "--plan").stdout
    assert ann.json("list")["jobs"] == []
    # The printed document can be applied unchanged.
    path = f"/apis/fairway.dev/v1alpha1/namespaces/{namespace}/trainingjobs?dryRun=All"
    status, answer = installed.plane.request("POST", path, objects[0])
    assert status == 201, answer


def test_a_run_in_the_foreground_is_followed_to_its_end(ann: Person, installed: Installed, namespace: str) -> None:
    ann.env["FAIRWAY_CONTEXT"] = "lab"
    jobs = Jobs(installed, namespace)
    # More than the API server accepts in one object.
    (ann.work / "weights.bin").write_bytes(os.urandom(5_000_000))
    with ann.start("run", "job.yaml") as running:
        wait_for("its object", lambda: installed.plane.get(f"{jobs.path}/mnist-1")[0] == 200, 60.0)
        jobs.runs("mnist-1")
        with ann.start("wait", "mnist-1") as waiting:
            for pod in jobs.pods("mnist-1"):
                jobs.annotate(pod["metadata"]["name"], runs_for="10ms")
            _, words = running.communicate(timeout=60)
            assert running.returncode == 0, words
            assert "mnist-1: 2 tasks" in words
            assert "mnist-1 succeeded" in words
            waiting.communicate(timeout=60)
            assert waiting.returncode == 0


def test_documents_of_every_kind_are_applied_with_the_callers_own_rights(
    ann: Person, installed: Installed, namespace: str
) -> None:
    ann.env["FAIRWAY_CONTEXT"] = "lab"
    (ann.work / "queue.yaml").write_text("kind: JobQueue\nname: research\nweight: 2\n")
    refused = ann.run("apply", "-f", "queue.yaml", code=5)
    assert 'User "ann" cannot patch resource "jobqueues" in API group "fairway.dev" at the cluster scope' in refused.stderr
    assert installed.plane.get("/apis/fairway.dev/v1alpha1/jobqueues/research")[0] == 404
    grant_queues(installed.plane, "ann")
    (ann.work / "job.yaml").write_text(f"{JOB}queue: research\n")
    applied = ann.json("apply", "-f", ".")["applied"]
    assert [(one["kind"], one["name"], one["action"]) for one in applied] == [
        ("TrainingJob", "mnist-1", "created"),
        ("JobQueue", "research", "created"),
    ]
    assert installed.plane.get("/apis/fairway.dev/v1alpha1/jobqueues/research")[1]["spec"]["weight"] == "2"
    assert [one["action"] for one in ann.json("apply", "-f", ".")["applied"]] == ["unchanged", "unchanged"]
    ann.run("delete", "mnist-1")
    installed.plane.request("DELETE", "/apis/fairway.dev/v1alpha1/jobqueues/research")


SERVICE = """
kind: ModelService
name: adds
model: adds@1
replicas: {min: 1, max: 3}
resources: {cpu: 100m}
grace: 1s
placement: {tolerations: ["*"]}
"""


def test_services_are_made_released_and_ended_as_objects(ann: Person, installed: Installed, namespace: str) -> None:
    ann.env["FAIRWAY_CONTEXT"] = "lab"
    services = Services(installed, namespace)
    (ann.work / "service.yaml").write_text(SERVICE)
    assert [one["version"] for one in ann.json("model", "list")["models"]] == [1, 2]
    assert ann.json("apply", "-f", "service.yaml")["applied"][0]["action"] == "created"
    assert ann.json("apply", "-f", "service.yaml")["applied"][0]["action"] == "unchanged"
    services.until("adds", "is ready", lambda status: status.get("ready") == "1/1")
    found = ann.json("get", "service/adds")
    assert found["url"] == f"http://adds.{namespace}.svc.cluster.local"
    assert [one["name"] for one in ann.json("list", "services")["services"]] == ["adds"]
    assert "rule" in ann.json("why", "service/adds")
    model = lambda: installed.plane.get(f"{services.path}/adds")[1]["spec"]["model"]  # noqa: E731
    ann.run("scale", "service/adds", "2")
    services.until("adds", "has its floor", lambda status: status["ready"] == "2/2")
    assert installed.plane.get(f"{services.path}/adds")[1]["spec"]["floor"] == 2
    ann.run("rollout", "start", "adds", "adds@2")
    assert model() == "adds@2"
    ann.run("rollout", "pause", "adds")
    assert ann.json("rollout", "status", "adds")["phase"] == "Paused"
    ann.run("rollout", "resume", "adds")
    ann.run("rollout", "undo", "adds")
    assert "adds@2" in ann.run("rollout", "history", "adds").stdout
    # The object has the running version: a later change of another field does not bring the undone version back.
    assert model() == "adds@1"
    ann.run("rollout", "start", "adds", "adds")
    assert model() == "adds"
    ann.run("rollout", "undo", "adds")
    assert model() == "adds@1"
    # The same for a release that was started with kubectl; the object's other fields stay unchanged.
    services.apply("adds", model="adds@2", replicas={"min": 1, "max": 3}, hold="7s")
    services.until("adds", "releases it", lambda status: "(adds@2)" in status["rollout"] and "Done" not in status["rollout"])
    spec = installed.plane.get(f"{services.path}/adds")[1]["spec"]
    ann.run("rollout", "undo", "adds")
    assert installed.plane.get(f"{services.path}/adds")[1]["spec"] == {**spec, "model": "adds@1"}
    ann.run("scale", "service/adds", "1")
    newest = installed.plane.get(f"{services.path}/adds")[1]["metadata"]["generation"]
    status = services.until("adds", "has heard of it", lambda status: status["observedGeneration"] == newest)
    assert (status["serves"], status["revision"]) == ("adds@1", 1)
    assert "undone by user request" in status["rollout"], "nobody brought the undone version back"
    assert ann.run("serve", "adds@1", "--name", "other", "--detach", "-o", "name").stdout == "other\n"
    assert ann.run("delete", "service/adds", "service/other").stdout == "adds\nother\n"
    assert installed.plane.get(services.path)[1]["items"] == []

    asked = ("predict", "adds@1", "--data", "s3://bucket/rows.csv", "--out", "scored")
    objects = list(yaml.safe_load_all(ann.run(*asked, "--plan", "-o", "yaml").stdout))
    assert objects[0]["spec"]["environment"] == {"image": "fairway:test"}
    assert objects[0]["spec"]["roles"]["worker"]["command"][:4] == ["python3", "-I", "-m", "fairway.serving.predict"]
    assert objects[0]["spec"]["data"]["model"] == "model://adds@1"


def test_files_of_ones_own_machine_become_versions_that_runs_and_services_use(
    ann: Person, installed: Installed, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ann.env["FAIRWAY_CONTEXT"] = "lab"
    model, home = ann.work / "model", installed.folder / "home"
    (model / "more").mkdir(parents=True)
    write_model(model / "model.onnx", 7)
    (model / "more" / "weights.bin").write_bytes(os.urandom(3 * file_upload.PIECE + 1))
    for number in range(50):
        (model / "more" / f"{number}.txt").write_text(f"part {number}")
    assert "would become the next version of laptop" in ann.run("model", "register", "laptop", "model", "--plan").stdout

    # The connection is lost in the middle of the large file.
    class Torn(ClusterConnection):
        left = 3

        def request(self, *args: Any, **given: Any) -> SocketReply:
            self.left -= 1
            if self.left < 0:
                raise DeniedError("the cable was pulled")
            return super().request(*args, **given)

    monkeypatch.setattr("fairway.sdk.client.ClusterConnection", Torn)
    with pytest.raises(DeniedError, match="the cable"):
        Client(context=str(ann.kubeconfig)).register_model("laptop", model)
    monkeypatch.undo()
    assert "there is no model laptop" in ann.run("model", "get", "laptop", code=3).stderr
    (part,) = (home / "blobs" / "arriving").glob("*/*.part")
    begun = part.stat()
    assert 0 < begun.st_size < 3 * file_upload.PIECE

    made = ann.run("model", "register", "laptop", "model", "--metric", "accuracy=0.9", "--tag", "team=nlp")
    assert made.stdout == "laptop@1\n"
    found = ann.json("model", "get", "laptop")
    assert (found["format"], found["files"], found["metrics"], found["tags"]) == ("onnx", 52, {"accuracy": 0.9}, {"team": "nlp"})
    kept = {one["path"]: one["sha256"] for one in found["contents"]}
    weights = kept["more/weights.bin"]
    assert weights == hashlib.sha256((model / "more" / "weights.bin").read_bytes()).hexdigest()
    assert (home / "blobs" / "sha256" / weights[:2] / weights[2:]).stat().st_ino == begun.st_ino, "it was not sent again"
    assert ann.run("model", "register", "laptop", "model", "--metric", "accuracy=0.9", "--tag", "team=nlp").stdout == "laptop@1\n"
    assert "sent by ann" in ann.run("events", "model/laptop").stdout
    services = Services(installed, namespace)
    (ann.work / "service.yaml").write_text(SERVICE.replace("adds@1", "laptop").replace("adds", "laptop"))
    ann.run("apply", "-f", "service.yaml")
    services.until("laptop", "serves it", lambda status: status.get("serves") == "laptop@1" and status.get("ready") == "1/1")
    ann.run("delete", "service/laptop")

    assert ann.run("data", "add", "rows", "model/more").stdout == "rows@1\n"
    assert Client(context=str(ann.kubeconfig)).add_data("one", ann.work / "job.yaml").files == 1
    (ann.work / "job.yaml").write_text(f"{JOB}data: {{train: rows@1, one: one@1}}\n")
    ann.run("submit", "job.yaml")
    Jobs(installed, namespace).runs("mnist-1")
    step = Jobs(installed, namespace).pods("mnist-1")[0]["spec"]["initContainers"][0]["command"]
    assert "--fetch=/v1/given/datasets/rows@1=/fairway/fetched/train" in step
    ann.run("data", "pull", "rows", "copy")
    assert len(list((ann.work / "copy").iterdir())) == 51

    assert "is not fetched by a cluster" in ann.run("model", "import", "x", "s3://bucket/x", code=2).stderr
    assert "by reference on a cluster" in ann.run("data", "add", "x", "model", "--reference", code=2).stderr


def test_nobody_gets_more_here_than_the_api_server_gives(
    ann: Person, installed: Installed, namespace: str, tmp_path: Path
) -> None:
    ann.env["FAIRWAY_CONTEXT"] = "lab"
    elsewhere = ann.run("list", "-n", "kube-system", code=5).stderr
    assert 'User "ann" cannot list resource "jobs" in API group "record.fairway.dev" in the namespace "kube-system"' in elsewhere
    # A document that names another namespace is authorized in that namespace.
    (ann.work / "theirs.yaml").write_text(JOB.replace("name: mnist", "name: mnist\nnamespace: kube-system"))
    assert 'cannot create resource "trainingjobs"' in ann.run("submit", "theirs.yaml", code=5).stderr
    assert "in a folder of your machine" in ann.run("submit", "--in-place", "--", "python", "train.py", code=5).stderr

    bind(installed.plane, namespace, "vic", "view")
    vic = Person(installed.plane, tmp_path, "vic", namespace)
    vic.env["FAIRWAY_CONTEXT"] = "lab"
    (vic.work / "job.yaml").write_text(JOB)
    assert vic.json("list")["jobs"] == []
    assert 'User "vic" cannot create resource' in vic.run("submit", "job.yaml", code=5).stderr
    write_model(vic.work / "adds.onnx", 1)
    assert 'User "vic" cannot create resource "blobs"' in vic.run("model", "register", "x", "adds.onnx", code=5).stderr
    assert 'User "vic" cannot create resource "blobs"' in vic.run("data", "add", "x", "job.yaml", code=5).stderr
    # Permissions on the record are not enough: those on the object decide.
    allow_record(installed.plane, namespace, "vic")
    said = vic.run("submit", "-n", namespace, "--", "python", "-c", "1", code=5).stderr
    assert 'User "vic" cannot create resource "trainingjobs" in API group "fairway.dev"' in said

    nobody = Person(installed.plane, tmp_path, "nobody", namespace)
    assert 'User "nobody" cannot list' in nobody.run("--context", "lab", "list", code=5).stderr


def test_what_is_in_the_way_is_said_in_words(ann: Person, installed: Installed) -> None:
    assert "has no context 'lap' (named by the caller); it has lab" in ann.run("use", "lap", code=3).stderr
    assert "there is no kubeconfig ./nothing.yaml" in ann.run("use", "./nothing.yaml", code=2).stderr
    assert "* local" in ann.run("use").stdout
    copy = ann.work / "team.kubeconfig"
    copy.write_text(ann.kubeconfig.read_text())
    ann.env["KUBECONFIG"] = str(ann.work / "gone")
    assert "on lab /" in ann.run("use", "./team.kubeconfig").stderr
    assert ann.json("list")["jobs"] == []
    copy.write_text("{")
    assert "is not YAML" in ann.run("list", code=2).stderr
    plain = json.loads(ann.kubeconfig.read_text())
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        plain["clusters"][0]["cluster"]["server"] = f"https://127.0.0.1:{probe.getsockname()[1]}"
    copy.write_text(json.dumps(plain))
    assert "does not answer: Connection refused" in ann.run("list", code=4).stderr
    plain["clusters"][0]["cluster"]["server"] = installed.plane.server
    plain["users"][0]["user"] = {"token": "nobody-knows-this"}
    copy.write_text(json.dumps(plain))
    assert "rejects your credentials: Unauthorized" in ann.run("list", code=5).stderr
    assert "on local" in ann.run("use", "local").stderr


def test_only_the_api_server_is_listened_to(installed: Installed) -> None:
    port = installed.plane.get(API_SERVICE)[1]["spec"]["service"]["port"]
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    request = b"GET /apis HTTP/1.1\r\nHost: x\r\nX-Remote-User: admin\r\n\r\n"
    for pair in (None, installed.plane.authority.client("admin", ["system:masters"])):
        if pair is not None:
            context.load_cert_chain(pair.certificate, pair.key)
        with socket.create_connection(("127.0.0.1", port)) as plain:
            try:
                with context.wrap_socket(plain) as secure:
                    secure.sendall(request)
                    heard = secure.recv(1)
            except OSError:
                heard = b""
        assert heard == b"", "somebody who is not the API server was answered"


def test_while_the_operator_is_away_that_is_said(ann: Person, installed: Installed) -> None:
    ann.env["FAIRWAY_CONTEXT"] = "lab"
    installed.kill("operator")
    assert "Fairway on lab does not answer" in ann.run("list", code=4).stderr
