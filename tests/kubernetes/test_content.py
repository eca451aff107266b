"""Content that is brought into pods and that outlives them, on a real control plane: the test plays the pods' part."""

from __future__ import annotations

import base64
import json
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from cluster.control_plane import ControlPlane
from cluster.installed import Installed, Jobs
from cluster.process import wait_for

from fairway.bootstrap.cluster_registry import ClusterRegistry
from fairway.engines.kubernetes import annotation
from fairway.registry import snapshot
from fairway.registry.blob import BlobStore
from fairway.registry.upload.content_ownership import namespace_owner
from fairway.runtime import checkpoint, task_contract
from fairway.runtime.pod import fetch, upload
from fairway.runtime.pod.upload import OperatorUploads
from fairway.state.job import JobKey
from fairway.stores.sqlite.store import SqliteStore

Add = Callable[..., list[str]]


class Content(Jobs):
    """Jobs, and the operator as their pods reach it."""

    endpoint: str

    def submit_with_code(self, name: str, folder: Path, **spec: Any) -> str:
        """Submit an object whose code is in the operator's blob store; return the digest."""
        digest = snapshot.take(folder, self.blobs).digest
        ClusterRegistry.open(self.home).possession.note_code([namespace_owner(self.namespace)], digest)
        role = {"command": ["python", "train.py"], "resources": {"cpu": "1"}, "placement": {"tolerations": ["*"]}}
        body = {
            "apiVersion": "fairway.dev/v1alpha1",
            "kind": "TrainingJob",
            "metadata": {"name": name, "namespace": self.namespace, "annotations": {annotation.CODE: f"blob:{digest}"}},
            "spec": {"framework": "pytorch", "grace": "1s", "roles": {"worker": role}, **spec},
        }
        status, answer = self.plane.request("POST", self.path, body)
        assert status == 201, answer
        return digest

    @property
    def home(self) -> Path:
        return self.installed.folder / "home"

    @property
    def blobs(self) -> BlobStore:
        return BlobStore(self.home / "blobs")

    def operator(self, run: str) -> OperatorUploads:
        """Return a client with the token that the pods of the run get."""
        _, secret = self.plane.get(f"/api/v1/namespaces/{self.namespace}/secrets/{run}-token")
        return OperatorUploads(self.endpoint, base64.b64decode(secret["data"]["token"]).decode())

    def resumed(self, run: str) -> tuple[int | None, float | None]:
        """Return the step that the run resumes from, and the time it lost, according to the record."""
        store = SqliteStore(self.home / "fairway.db")
        try:
            job = store.get_job(JobKey(self.namespace, run))
            assert job is not None
            return (job.resume.step, job.resume.lost_seconds) if job.resume is not None else (None, None)
        finally:
            store.close()


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


@pytest.fixture(scope="module")
def installed(control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installed]:
    found = Installed(control_plane, tmp_path_factory.mktemp("fairway"))
    found.install()
    Content.endpoint = f"http://127.0.0.1:{(port := free_port())}"
    operator = {"FAIRWAY_OPERATOR_PORT": str(port), "FAIRWAY_OPERATOR_ENDPOINT": Content.endpoint}
    found.start("operator", **operator)
    found.start("scheduler")
    yield found
    found.stop()


@pytest.fixture
def jobs(installed: Installed, namespace: str, kwok_nodes: Add) -> Iterator[Content]:
    kwok_nodes(1, capacity={"cpu": "4"})
    found = Content(installed, namespace)
    accounts = f"/api/v1/namespaces/{namespace}/serviceaccounts/default"
    wait_for("the service account", lambda: installed.plane.get(accounts)[0] == 200)
    yield found
    for name in [one["metadata"]["name"] for one in installed.plane.get(found.path)[1]["items"]]:
        found.delete(name)
    wait_for("nothing is left", lambda: not found.pods(), 60.0)


def code(folder: Path) -> Path:
    """Return code that is larger than any ConfigMap can be."""
    folder.mkdir()
    (folder / "train.py").write_text("print('trains')\n")
    (folder / "vocabulary.bin").write_bytes(bytes(range(256)) * 12_000)
    return folder


def save(root: Path, step: int, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Save a checkpoint, as a program saves it."""
    monkeypatch.setenv(task_contract.CHECKPOINT_DIR, str(root))
    with checkpoint.save(step) as folder:
        (folder / "model.pt").write_bytes(b"weights" * 1000)
    return root / task_contract.STEP_FOLDER.format(step=step)


def gone(jobs: Content, run: str, attempt: int) -> None:
    """Delete the pod of an attempt, as a user does."""
    jobs.plane.request("DELETE", f"/api/v1/namespaces/{jobs.namespace}/pods/{run}-worker-0-r{attempt}")


def attempt_runs(jobs: Content, run: str, attempt: int) -> dict[str, Any]:
    return jobs.until(
        run, f"runs again ({attempt})", lambda told: (told.get("phase"), told.get("attempt")) == ("Running", attempt)
    )


def test_a_run_without_a_volume_goes_on_from_what_its_pods_brought_and_leaves_its_model(
    jobs: Content, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    digest = jobs.submit_with_code("mnist", code(tmp_path / "code"), outputs={"model": "lenet"}, checkpoint={"keep": 2})
    jobs.runs("mnist")
    operator = jobs.operator("mnist")
    # The init step before the task.
    count = fetch.fetch(f"{jobs.endpoint}/v1/given/code", operator.token, str(tmp_path / "pod"), digest)
    assert count == 2
    assert upload.restore(operator.endpoint, operator.token, str(tmp_path / "first")) == ""
    (pod,) = jobs.pods("mnist")
    (step,) = pod["spec"]["initContainers"]
    assert step["command"][-4:] == ["--digest", digest, "--checkpoints", "/fairway/run/checkpoints"]
    assert {one["name"] for one in step["env"]} >= {"FAIRWAY_ENDPOINT", "FAIRWAY_GIVEN_TOKEN"}
    # It trains, saves, and is deleted.
    for number in (10, 20, 30):
        saved = save(tmp_path / "first", number, monkeypatch)
        operator.send(upload.CHECKPOINTS + saved.name, str(saved))
    jobs.until("mnist", "has saved", lambda told: "saved at 30" in told["progress"])
    gone(jobs, "mnist", 0)
    attempt_runs(jobs, "mnist", 1)
    assert jobs.resumed("mnist")[0] == 30
    lost = jobs.resumed("mnist")[1]
    assert lost is not None
    assert 0 <= lost < 120, "seconds of work since it saved"
    assert upload.restore(operator.endpoint, operator.token, str(tmp_path / "second")) == "step-000000000030"
    # The operator is killed, and still has all of it after its restart.
    jobs.installed.kill("operator")
    port = {"FAIRWAY_OPERATOR_PORT": jobs.endpoint.rpartition(":")[2], "FAIRWAY_OPERATOR_ENDPOINT": jobs.endpoint}
    jobs.installed.start("operator", **port)
    assert upload.restore(operator.endpoint, operator.token, str(tmp_path / "third"), patience=120) == "step-000000000030"
    # The run is suspended: the last checkpoint is uploaded while the pod ends, and the next attempt resumes from it.
    jobs.patch("mnist", suspend=True)
    jobs.until("mnist", "is stopped", lambda told: told["phase"] == "Stopped")
    saved = save(tmp_path / "second", 40, monkeypatch)
    operator.send(upload.CHECKPOINTS + saved.name, str(saved))
    jobs.patch("mnist", suspend=False)
    attempt_runs(jobs, "mnist", 2)
    assert upload.restore(operator.endpoint, operator.token, str(tmp_path / "fourth")) == "step-000000000040"
    # It succeeds, and its model is in the registry, although there is no volume.
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "model.safetensors").write_bytes((2).to_bytes(8, "little") + b"{}")
    operator.send(upload.OUTPUTS + "model", str(tmp_path / "model"))
    jobs.annotate("mnist-worker-0-r2", runs_for="10ms")
    jobs.until("mnist", "has succeeded", lambda told: told["phase"] == "Succeeded")
    record = jobs.home / "namespaces" / jobs.namespace / "models" / "lenet" / "1.json"
    wait_for("its model in the registry", record.exists, 60.0, jobs.installed.last_words)
    lineage = json.loads(record.read_bytes())["lineage"]
    assert (lineage["run"], lineage["code"]) == (f"{jobs.namespace}/mnist", digest)
    # Nothing of it remains after its deletion, except the model.
    kept = jobs.home / "carried" / jobs.namespace / "mnist"
    assert len(list((kept / "checkpoints").iterdir())) == 2
    jobs.delete("mnist")
    wait_for("all that it brought is gone", lambda: not kept.exists(), 60.0, jobs.installed.last_words)
    with pytest.raises(fetch.RequestRejectedError, match="lenet@1 is not one of the inputs"):
        fetch.fetch(f"{jobs.endpoint}/v1/given/models/lenet@1", operator.token, str(tmp_path / "served"))
    with pytest.raises(fetch.RequestRejectedError, match="has no code here"):
        fetch.fetch(f"{jobs.endpoint}/v1/given/code", operator.token, str(tmp_path / "pod"))


def test_inputs_come_from_the_registry_and_what_cannot_be_had_says_how_to_get_it(jobs: Content, tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("1,2\n")
    ClusterRegistry.open(jobs.home).datasets.add(f"{jobs.namespace}/rows", tmp_path / "rows.csv", 1.0)
    jobs.submit("reads", data={"rows": "rows@1", "far": "s3://bucket/x"})
    jobs.runs("reads")
    (pod,) = jobs.pods("reads")
    assert "--fetch=/v1/given/datasets/rows@1=/fairway/fetched/rows" in pod["spec"]["initContainers"][0]["command"]
    order = json.loads(next(one["value"] for one in pod["spec"]["containers"][0]["env"] if one["name"] == "FAIRWAY_POD_ORDER"))
    told = order["starts"][0][1]
    assert (told["FAIRWAY_DATA_ROWS"], told["FAIRWAY_DATA_FAR"]) == ("/fairway/fetched/rows/rows.csv", "s3://bucket/x")
    assert fetch.fetch(f"{jobs.endpoint}/v1/given/datasets/rows@1", jobs.operator("reads").token, str(tmp_path / "pod")) == 1
    jobs.submit("lacks", data={"rows": "none@1", "etc": "/etc"}, restart={"max": 0})
    said = jobs.until("lacks", "has failed", lambda told: told.get("phase") == "Failed")["message"]
    assert "there is no dataset none in the namespace" in said
    assert "allowed.host_paths: [/etc]" in said
