"""Two namespaces of one cluster: the administrator of one can read, change, delay and impersonate nothing of the other.

`bob` may do everything in the namespace `theirs` and nothing in `ours`, where `ann` works. Each attempt goes through a real API
server with RBAC, or is one that pods of `theirs` can make at the operator.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import http.client
import json
import socket
import ssl
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from cluster.control_plane import ControlPlane
from cluster.installed import Installed, Jobs
from cluster.process import wait_for
from cluster.record import API_SERVICE, start_operator
from cluster.served import write_model

from fairway import Client
from fairway.engines.kubernetes.install.api_service import REGISTRY_READER
from fairway.engines.kubernetes.install.submitter_policy import vouching
from fairway.registry.manifest import FolderManifest, ManifestEntry

pytestmark = pytest.mark.timeout(400)

RBAC = "/apis/rbac.authorization.k8s.io/v1"
ADMISSION = "/apis/admissionregistration.k8s.io/v1"
RECORD = "/apis/record.fairway.dev/v1alpha1"
OBJECTS = "/apis/fairway.dev/v1alpha1"
PLURALS = {
    "ValidatingAdmissionPolicy": "validatingadmissionpolicies",
    "ValidatingAdmissionPolicyBinding": "validatingadmissionpolicybindings",
}
JOB = {
    "apiVersion": "fairway.dev/v1alpha1",
    "kind": "TrainingJob",
    "metadata": {"name": "train"},
    "spec": {
        "grace": "1s",
        "code": {"path": "."},
        "roles": {
            "worker": {"command": ["python", "train.py"], "resources": {"cpu": "1"}, "placement": {"tolerations": ["*"]}},
        },
    },
}

ENDPOINTS: dict[Path, str] = {}
"""The operator's address for pods, by the folder of the installation."""
Add = Callable[..., list[str]]
Answer = tuple[int, Any]


class Asks:
    """Sends requests to the API server as one user."""

    def __init__(self, plane: ControlPlane, user: str) -> None:
        pair = plane.authority.client(user, [])
        self._context = ssl.create_default_context(cafile=str(plane.authority.pair.certificate))
        self._context.load_cert_chain(pair.certificate, pair.key)
        self._place = plane.server.removeprefix("https://")

    def __call__(self, method: str, path: str, body: Any = None, **headers: str) -> Answer:
        connection = http.client.HTTPSConnection(self._place, context=self._context, timeout=60)
        try:
            data = body if isinstance(body, bytes) else None if body is None else json.dumps(body)
            given = {name.replace("_", "-"): value for name, value in headers.items()}
            kind = "application/octet-stream" if isinstance(body, bytes) else "application/json"
            connection.request(method, path, data, {"Content-Type": kind, **given})
            answer = connection.getresponse()
            return answer.status, read(answer.read())
        finally:
            connection.close()


def read(text: bytes) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text.decode(errors="replace")


def change(name: str, namespace: str, spec: dict[str, Any], **annotations: str) -> dict[str, Any]:
    """Return a change of an object as `kubectl` sends it."""
    kind = "ModelService" if "model" in spec else "TrainingJob"
    roles = {} if "model" in spec else {"roles": {"worker": {"command": ["sleep", "1"]}}}
    marks = {f"fairway.dev/{key}": value for key, value in annotations.items()}
    meta = {"name": name, "namespace": namespace, "annotations": marks}
    return {"apiVersion": "fairway.dev/v1alpha1", "kind": kind, "metadata": meta, "spec": {**roles, **spec}}


@dataclass
class World:
    """Both namespaces, and what `ann` has in hers."""

    installed: Installed
    ours: str
    theirs: str
    folder: Path
    endpoint: str
    bob: Asks = field(init=False)
    manifest: str = ""
    weights: str = ""
    code: str = ""

    def __post_init__(self) -> None:
        self.bob = Asks(self.installed.plane, "bob")

    def client(self, user: str, namespace: str) -> Client:
        path = self.folder / f"{user}.kubeconfig"
        given = json.loads(self.installed.plane.kubeconfig(user, []).read_text())
        given["contexts"] = [{"name": "lab", "context": {"cluster": "test", "user": user, "namespace": namespace}}]
        path.write_text(json.dumps({**given, "current-context": "lab"}))
        return Client(context=str(path))

    def token(self, namespace: str, run: str) -> str:
        path = f"/api/v1/namespaces/{namespace}/secrets/{run}-token"
        wait_for(f"the token of {run}", lambda: self.installed.plane.get(path)[0] == 200, 60.0, self.installed.last_words)
        return base64.b64decode(self.installed.plane.get(path)[1]["data"]["token"]).decode()

    def pod(self, method: str, path: str, token: str, body: Any = None) -> Answer:
        """Send a request of a pod to the operator."""
        data = None if body is None else json.dumps(body).encode()
        asked = urllib.request.Request(f"{self.endpoint}{path}", data, {"Authorization": f"Bearer {token}"}, method=method)
        try:
            with urllib.request.urlopen(asked, timeout=60) as answer:
                return answer.status, read(answer.read())
        except urllib.error.HTTPError as error:
            return error.code, read(error.read())

    def refused_object(self, kind: str, body: dict[str, Any]) -> Answer:
        """Create an object in `theirs` by hand, and wait until the operator has refused or accepted it."""
        name, path = body["metadata"]["name"], f"{OBJECTS}/namespaces/{self.theirs}/{kind}"
        status, answer = self.bob("POST", path, body)
        if status >= 400:
            return status, answer
        said: dict[str, Any] = {}

        def is_told() -> bool:
            said.update(self.bob("GET", f"{path}/{name}")[1].get("status", {}))
            return bool(said.get("message") or said.get("phase") in ("Running", "Ready") or said.get("url"))

        wait_for(f"{name} is judged", is_told, 60.0, self.installed.last_words)
        pods = self.installed.plane.get(f"/api/v1/namespaces/{self.theirs}/pods")[1]["items"]
        made = [pod["metadata"]["name"] for pod in pods if pod["metadata"]["name"].startswith(name)]
        self.bob("DELETE", f"{path}/{name}")
        return (200 if made or said.get("phase") in ("Running", "Ready") else 403), said["message"]

    def state(self) -> str:
        """Return everything that `ann` has: none of it may change."""
        ann = self.client("ann", self.ours)
        objects = [
            (one["metadata"]["name"], one["metadata"]["uid"], one["spec"])
            for kind in ("trainingjobs", "modelservices")
            for one in self.installed.plane.get(f"{OBJECTS}/namespaces/{self.ours}/{kind}")[1]["items"]
        ]
        versions = [(str(one), one.aliases, one.tags, one.digest) for one in ann.models()]
        return json.dumps([objects, versions, [(str(one), one.digest) for one in ann.datasets()]], sort_keys=True)


@pytest.fixture(scope="module")
def installed(control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installed]:
    found = Installed(control_plane, tmp_path_factory.mktemp("fairway"))
    found.install()
    policies = [(one, f"{ADMISSION}/{PLURALS[one['kind']]}/{one['metadata']['name']}") for one in vouching("fairway-system")]
    for one, path in policies:
        control_plane.apply(one, path)
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = str(probe.getsockname()[1])
    ENDPOINTS[found.folder] = f"http://127.0.0.1:{port}"
    start_operator(found, FAIRWAY_OPERATOR_PORT=port, FAIRWAY_OPERATOR_ENDPOINT=ENDPOINTS[found.folder])
    found.start("scheduler")
    yield found
    found.stop()
    for path in (*(path for _, path in policies), API_SERVICE):
        control_plane.request("DELETE", path)


def bind(plane: ControlPlane, namespace: str, user: str, role: str) -> None:
    plane.kubectl("-n", namespace, "create", "rolebinding", f"{user}-{role}", f"--clusterrole={role}", f"--user={user}")


@pytest.fixture
def world(installed: Installed, namespace: str, tmp_path: Path, kwok_nodes: Add) -> Iterator[World]:
    plane = installed.plane
    kwok_nodes(2, capacity={"cpu": "8"})
    status, made = plane.request("POST", "/api/v1/namespaces", {"metadata": {"generateName": "theirs-"}})
    assert status == 201, made
    found = World(installed, namespace, made["metadata"]["name"], tmp_path, ENDPOINTS[installed.folder])
    for place, user in ((found.ours, "ann"), (found.theirs, "bob")):
        bind(plane, place, user, "admin")
        accounts = f"/api/v1/namespaces/{place}/serviceaccounts/default"
        wait_for("the service account", lambda path=accounts: plane.get(path)[0] == 200)
    furnish(found)
    yield found
    for place in (found.ours, found.theirs):
        for kind in ("trainingjobs", "modelservices"):
            for one in plane.get(f"{OBJECTS}/namespaces/{place}/{kind}")[1]["items"]:
                plane.request("DELETE", f"{OBJECTS}/namespaces/{place}/{kind}/{one['metadata']['name']}")
        wait_for("nothing is left", lambda place=place: not Jobs(installed, place).pods(), 60.0, installed.last_words)
    plane.request("DELETE", f"/api/v1/namespaces/{found.theirs}")


def furnish(world: World) -> None:
    """Create the objects of `ann` in `ours`, and of `bob` in `theirs`."""
    work = world.folder / "work"
    (work / "model").mkdir(parents=True)
    (work / "train.py").write_text("print('ours alone')\n")
    (work / "rows.csv").write_text("1,2\n")
    ann, bob = world.client("ann", world.ours), world.client("bob", world.theirs)
    for add in (1, 2):
        write_model(work / "model" / "model.onnx", add)
        (work / "model" / "weights.bin").write_bytes(f"weights {add}".encode() * 1000)
        made = ann.register_model("secret", work / "model")
    ann.promote_model("secret@1", "champion")
    ann.add_data("rows", work / "rows.csv")
    world.manifest = made.digest
    world.weights = hashlib.sha256(b"weights 2" * 1000).hexdigest()
    ann.serve("secret@champion", name="served", wait=False, spec={"resources": {"cpu": "100m"}})
    for client in (ann, bob):
        client.submit({**JOB, "spec": {**JOB["spec"], "code": {"path": str(work)}}})  # type: ignore[dict-item]
    (work / "train.py").write_text("print('of ann')\n")
    ann.submit({**JOB, "metadata": {"name": "other"}, "spec": {**JOB["spec"], "code": {"path": str(work)}}})  # type: ignore[dict-item]
    path = f"{OBJECTS}/namespaces/{world.ours}/trainingjobs/other-1"
    world.code = world.installed.plane.get(path)[1]["metadata"]["annotations"]["fairway.dev/code"]
    Jobs(world.installed, world.ours).runs("train-1")
    Jobs(world.installed, world.theirs).runs("train-1")


def asked_at_the_record(world: World) -> dict[str, Callable[[], Answer]]:
    """Return requests to the record in another user's namespace."""
    bob, at = world.bob, f"{RECORD}/namespaces/{world.ours}"
    other = f"{RECORD}/namespaces/{world.theirs}"
    registration = {"name": "secret", "source": "/x", "manifest": world.manifest}
    return {
        "read: list models": lambda: bob("GET", f"{at}/models"),
        "read: list models everywhere": lambda: bob("GET", f"{RECORD}/models"),
        "read: a version with its files": lambda: bob("GET", f"{at}/models/secret@1"),
        "read: what happened to a model": lambda: bob("GET", f"{at}/models/secret/events"),
        "read: how versions differ": lambda: bob("GET", f"{at}/models/secret@1/diff/secret@2"),
        "read: list datasets": lambda: bob("GET", f"{at}/datasets"),
        "pull: the content of a dataset": lambda: bob("GET", f"{at}/datasets/rows@1/log"),
        "register over a model": lambda: bob("POST", f"{at}/models", registration),
        "add to a dataset": lambda: bob("POST", f"{at}/datasets", {"name": "rows", "path": "/x", "manifest": world.manifest}),
        "send content there": lambda: bob("POST", f"{at}/blobs", b'{"parts": []}\n'),
        "send code there": lambda: bob("POST", f"{at}/code", b"x"),
        "promote a version": lambda: bob("POST", f"{at}/models/secret@2/promote", {"alias": "champion"}),
        "take an alias away": lambda: bob("POST", f"{at}/models/secret@1/promote", {"alias": "champion", "remove": True}),
        "tag a version": lambda: bob("POST", f"{at}/models/secret@1/tags", {"tags": {"a": "b"}}),
        "delete a version": lambda: bob("DELETE", f"{at}/models/secret@2"),
        "delete a dataset": lambda: bob("DELETE", f"{at}/datasets/rows@1"),
        "read: logs of a run": lambda: bob("GET", f"{at}/jobs/train-1/log"),
        "read: metrics of a run": lambda: bob("GET", f"{at}/jobs/train-1/metrics"),
        "read: events": lambda: bob("GET", f"{at}/events"),
        "delay: stop a run": lambda: bob("POST", f"{at}/jobs/train-1/stop", {}),
        "delay: scale a service": lambda: bob("POST", f"{at}/services/served/scale", {"replicas": 0}),
        "delay: suspend the object": lambda: bob("PATCH", f"{OBJECTS}/namespaces/{world.ours}/trainingjobs/train-1", b"{}"),
        "delete a run": lambda: bob("DELETE", f"{at}/jobs/train-1"),
        "read: secrets": lambda: bob("GET", f"/api/v1/namespaces/{world.ours}/secrets/train-1-token"),
        "read: logs of a pod": lambda: bob("GET", f"/api/v1/namespaces/{world.ours}/pods/train-1-worker-0-r0/log"),
        "impersonate: by the API server": lambda: bob("GET", f"{at}/models", Impersonate_User="ann"),
        "impersonate: by the front proxy's header": lambda: bob("GET", f"{at}/models", X_Remote_User="ann"),
        "read: another namespace by query": lambda: bob("GET", f"{other}/models/secret@1?namespace={world.ours}"),
        "read: another namespace by path": lambda: bob("GET", f"{other}/models/..%2F..%2F{world.ours}%2Fmodels%2Fsecret@1"),
        "read: another namespace by name": lambda: bob("GET", f"{other}/models/{world.ours}%2Fsecret@1"),
    }


def asked_by_digest_and_reference(world: World) -> dict[str, Callable[[], Answer]]:
    """Return requests in bob's own namespace that refer to content of another namespace."""
    bob, at, ours = world.bob, f"{RECORD}/namespaces/{world.theirs}", world.ours

    def lacking() -> Answer:
        """The response must not reveal that the registry has content which this user never uploaded."""
        head = {"parts": [{"digest": one, "size": 9000} for one in (world.weights, world.manifest)]}
        status, answer = bob("POST", f"{at}/blobs", json.dumps(head).encode() + b"\n")
        assert status == 200, answer
        return (200 if any(one["whole"] or one["have"] for one in answer["standing"]) else 403), answer

    def own_manifest() -> Answer:
        """A manifest of bob's that names the weights of another namespace."""
        spelled = FolderManifest((ManifestEntry("w", 0o644, 9000, world.weights),)).encoded()
        digest = hashlib.sha256(spelled).hexdigest()
        head = {"parts": [{"digest": digest, "size": len(spelled), "offset": 0, "length": len(spelled)}]}
        assert bob("POST", f"{at}/blobs", json.dumps(head).encode() + b"\n" + spelled)[0] == 200
        return bob("POST", f"{at}/datasets", {"name": "stolen", "path": "/x", "manifest": digest})

    def submit(data: dict[str, str], **more: Any) -> Answer:
        spec = {"roles": {"worker": {"command": ["sleep", "1"]}}, "data": data}
        document = {"apiVersion": "fairway.dev/v1alpha1", "kind": "TrainingJob", "metadata": {"name": "reads"}, "spec": spec}
        return bob("POST", f"{at}/jobs", {"documents": json.dumps(document), **more})

    def apply(spec: dict[str, Any], namespace: str = "", **more: Any) -> Answer:
        body = change("thief", namespace or world.theirs, spec)
        return bob("POST", f"{at}/apply", {"documents": json.dumps(body), **more})

    hand, service = "trainingjobs", "modelservices"
    return {
        "digest: is a content there": lacking,
        "digest: register the manifest of others": lambda: bob(
            "POST", f"{at}/models", {"name": "stolen", "source": "/x", "manifest": world.manifest}
        ),
        "digest: add the manifest of others": lambda: bob(
            "POST", f"{at}/datasets", {"name": "stolen", "path": "/x", "manifest": world.manifest}
        ),
        "digest: a manifest of one's own with content of others": own_manifest,
        "digest: code of others, by an object": lambda: world.refused_object(
            hand, change("c1", world.theirs, {}, code=world.code)
        ),
        "digest: a model as code, by an object": lambda: world.refused_object(
            hand, change("c2", world.theirs, {}, code=f"blob:{world.manifest}")
        ),
        "digest: code of others, by a submit": lambda: submit({}, origin={"code_digest": world.code.removeprefix("blob:")}),
        "name: register into another namespace": lambda: bob(
            "POST", f"{at}/models", {"name": f"{ours}/secret", "source": "/x", "manifest": world.manifest}
        ),
        "name: a job that reads a dataset": lambda: submit({"train": f"{ours}/rows@1"}),
        "name: a job that reads a model": lambda: submit({"train": f"model://{ours}/secret@champion"}),
        "name: what a job would read": lambda: submit({"train": f"{ours}/rows@1"}, plan=True),
        "name: a service of a model": lambda: apply({"model": f"{ours}/secret@1"}),
        "name: what a service would be": lambda: apply({"model": f"{ours}/nothing@1"}, plan=True),
        "name: a job in another namespace": lambda: apply({}, ours),
        "name: a service in another namespace": lambda: apply({"model": "secret@1"}, ours),
        "name: a job by hand that reads a dataset": lambda: world.refused_object(
            hand, change("h1", world.theirs, {"data": {"train": f"{ours}/rows@1"}})
        ),
        "name: a service by hand of a model": lambda: world.refused_object(
            service, change("h2", world.theirs, {"model": f"{ours}/secret@1"})
        ),
        "impersonate: a job by hand in the name of ann": lambda: world.refused_object(
            hand, change("h3", world.theirs, {"data": {"train": f"{ours}/rows@1"}}, user="ann")
        ),
        "impersonate: a service by hand in the name of ann": lambda: world.refused_object(
            service, change("h4", world.theirs, {"model": f"{ours}/secret@1"}, user="ann")
        ),
    }


def asked_by_pods(world: World) -> dict[str, Callable[[], Answer]]:
    """Return requests that a pod of `theirs` sends to the operator with the token of its run."""
    ours, theirs = world.ours, world.theirs
    token, of_ann = world.token(theirs, "train-1"), world.token(ours, "train-1")
    proof = token.rpartition(".")[2]
    guessed = hmac.new(b"", f"fairway-mlflow\0{ours}/train-1".encode(), hashlib.sha256).hexdigest()
    flow, code = "/api/2.0/mlflow", world.code.removeprefix("blob:")
    version = {"name": "own", "source": "models:/secret/1"}
    return {
        "pod: a model of others": lambda: world.pod("GET", f"/v1/given/models/{ours}/secret@1", token),
        "pod: a model by its bare name": lambda: world.pod("GET", "/v1/given/models/secret@1", token),
        "pod: a dataset of others": lambda: world.pod("GET", f"/v1/given/datasets/{ours}/rows@1", token),
        "pod: a path out of its namespace": lambda: world.pod("GET", f"/v1/given/datasets/../{ours}/rows@1", token),
        "pod: code of others": lambda: world.pod("GET", f"/v1/given/code?digest={code}", token),
        "pod: a run of others": lambda: world.pod("GET", f"{flow}/runs/get?run_id=other-1", token),
        "pod: a tag on a run of others": lambda: world.pod(
            "POST", f"{flow}/runs/set-tag", token, {"run_id": "other-1", "key": "a", "value": "b"}
        ),
        "pod: a registered model of others": lambda: world.pod("GET", f"{flow}/registered-models/get?name=secret", token),
        "pod: a registered model by its whole name": lambda: world.pod(
            "GET", f"{flow}/registered-models/get?name={ours}/secret", token
        ),
        "pod: the champion of others": lambda: world.pod(
            "POST", f"{flow}/registered-models/alias", token, {"name": "secret", "alias": "champion", "version": "2"}
        ),
        "pod: a version made of a model of others": lambda: world.pod("POST", f"{flow}/model-versions/create", token, version),
        "pod: the token of another namespace": lambda: world.pod(
            "GET", f"{flow}/runs/get?run_id=train-1", f"{ours}/train-1.{proof}"
        ),
        "pod: a token that was guessed": lambda: world.pod("GET", f"{flow}/runs/get?run_id=train-1", f"{ours}/train-1.{guessed}"),
        "pod: a token of ours for a thing of theirs": lambda: world.pod("GET", f"/v1/given/models/{theirs}/mine@1", of_ann),
    }


def test_who_administers_one_namespace_has_no_part_in_another(world: World) -> None:
    wait_for("the policy holds", lambda: _forging_is_refused(world), 60.0)
    before = world.state()
    attempts = {**asked_at_the_record(world), **asked_by_digest_and_reference(world), **asked_by_pods(world)}
    assert len(attempts) >= 60
    answers = {name: attempt() for name, attempt in attempts.items()}
    got_through = {name: answer for name, answer in answers.items() if not is_refusal(*answer)}
    assert got_through == {}, f"{len(got_through)} of {len(attempts)}"
    # The refusals reveal nothing either: neither which versions exist, nor their content.
    for name, (_, said) in answers.items():
        assert world.weights not in json.dumps(said) or name.startswith("digest:"), name
        assert "known: secret" not in json.dumps(said), name
    assert world.state() == before
    bobs = world.client("bob", world.theirs)
    assert [str(one) for one in (*bobs.models(), *bobs.datasets())] == []


def test_a_right_to_read_is_given_and_taken_with_a_role(world: World) -> None:
    plane, bob = world.installed.plane, world.client("bob", world.theirs)
    bind(plane, world.ours, "bob", REGISTRY_READER)
    reads = {**JOB, "metadata": {"name": "reads"}, "spec": {**JOB["spec"], "data": {"train": f"{world.ours}/rows@1"}}}  # type: ignore[dict-item]
    del reads["spec"]["code"]  # type: ignore[index]
    bob.submit(reads)
    Jobs(world.installed, world.theirs).runs("reads-1")
    (pod,) = Jobs(world.installed, world.theirs).pods("reads-1")
    path = f"/v1/given/datasets/{world.ours}/rows@1"
    assert f"--fetch={path}=/fairway/fetched/train" in pod["spec"]["initContainers"][0]["command"]
    token = world.token(world.theirs, "reads-1")
    assert world.pod("GET", path, token)[0] == 200
    assert world.pod("GET", f"/v1/given/models/{world.ours}/secret@1", token)[0] == 403, "what the run does not name it has not"
    there = world.client("bob", world.ours)
    assert [str(one) for one in there.models()] == ["secret@1", "secret@2"]
    status, said = world.bob("POST", f"{RECORD}/namespaces/{world.ours}/models/secret@2/promote", {"alias": "champion"})
    assert (status, "cannot create resource" in json.dumps(said)) == (403, True)
    bob.serve(f"{world.ours}/secret@champion", wait=False, spec={"resources": {"cpu": "100m"}})
    status = plane.get(f"{OBJECTS}/namespaces/{world.theirs}/modelservices/secret")[1]
    assert status["metadata"]["annotations"]["fairway.dev/user"] == "bob"

    plane.kubectl("-n", world.ours, "delete", "rolebinding", f"bob-{REGISTRY_READER}")
    wait_for("the right is gone", lambda: world.pod("GET", path, token)[0] == 403, 60.0, world.installed.last_words)


def is_refusal(status: int, said: Any) -> bool:
    """Whether it was refused, or is the response for content that was not uploaded: 503."""
    return 400 <= status < 500 or (status == 503 and "is missing or was removed" in json.dumps(said))


def _forging_is_refused(world: World) -> bool:
    body = change("forged", world.theirs, {}, user="ann")
    status, _ = world.bob("POST", f"{OBJECTS}/namespaces/{world.theirs}/trainingjobs?dryRun=All", body)
    return status == 422
