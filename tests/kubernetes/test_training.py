"""Real training on real nodes: operator and scheduler are pods with the rights of the installation."""

from __future__ import annotations

import base64
import io
import json
import re
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import pytest
import yaml
from cluster import image
from cluster.nodes import RealCluster
from cluster.process import wait_for

from fairway.engines.kubernetes import annotation
from fairway.engines.kubernetes.install.manifest import manifests
from fairway.engines.kubernetes.operator.installation import DocumentPermissions, FrameworkRuntime, InstallationSettings
from fairway.spec.text.document import read_documents
from fairway.spec.text.writer import write

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"

pytestmark = [pytest.mark.timeout(600), pytest.mark.framework("torch")]


class Cluster:
    """Fairway on real nodes."""

    def __init__(self, cluster: RealCluster, pythons: dict[str, str], folder: Path) -> None:
        self.cluster = cluster
        self.runs = folder / "runs"
        self.runs.mkdir()
        # Pods that the nodes run as other users than root need access.
        self.runs.chmod(0o777)
        cache = folder / "cache"
        made = {
            name: FrameworkRuntime(image.FAIRWAY, **_framework(Path(python).parents[1], cache))
            for name, python in pythons.items()
        }
        self.installation = InstallationSettings(
            image=image.FAIRWAY,
            runtimes=made,
            run_volume={"hostPath": {"path": str(self.runs)}},
            record={"emptyDir": {}},
            allowed=DocumentPermissions(host_paths=(str(EXAMPLES),)),
        )
        fetch = [sys.executable, str(EXAMPLES / "data" / "mnist.py"), "--to", str(cache)]
        subprocess.run(fetch, check=True, capture_output=True)

    def install(self, folder: Path) -> None:
        """Apply everything that an installation applies, and load the image on the nodes."""
        self.cluster.plane.start_scheduler()  # places our own two processes
        self.image = image.fairway(folder / "fairway.tar", ["kubernetes"])
        self.cluster.load(self.image)
        for one in manifests(self.installation):
            self.kubectl("apply", "--server-side", "-f", "-", given=json.dumps(one))
        self.kubectl("-n", "fairway-system", "wait", "--for=condition=Available", "deployment", "--all", "--timeout=120s")

    def kubectl(self, *arguments: str, given: str | None = None) -> str:
        return self.cluster.plane.kubectl(*arguments, given=given)

    def submit(self, example: str, name: str, **changes: Any) -> None:
        """Submit the same document that runs locally, with its code."""
        folder = EXAMPLES / example
        self.submit_folder(folder, name, **changes)

    def submit_folder(self, folder: Path, name: str, **changes: Any) -> None:
        """Submit a folder with a document and its code; paths are made absolute, as `fairway submit` does."""
        (document,) = read_documents((folder / "job.yaml").read_text())
        found = yaml.safe_load(write(document, "kubernetes"))
        found["metadata"] = {"name": name, "namespace": "default", "annotations": {annotation.CODE: f"{name}-code"}}
        data = found["spec"].get("data", {})
        found["spec"]["data"] = {key: str((folder / path).resolve()) for key, path in data.items()}
        found["spec"].update(changes)
        code = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": f"{name}-code"}, "binaryData": bundle(folder)}
        self.kubectl("create", "-f", "-", given=json.dumps(code))
        self.kubectl("create", "-f", "-", given=json.dumps(found))

    def status(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.kubectl("get", "trainingjob", name, "-o", "json")).get("status", {})
        return found

    def until(self, name: str, phase: str, patience: float = 240.0) -> dict[str, Any]:
        wait_for(f"{name} is {phase}", lambda: self.status(name).get("phase") == phase, patience, lambda: self.why(name))
        return self.status(name)

    def why(self, name: str) -> str:
        words = [str(self.status(name)), self.kubectl("get", "pods", "-A", "-o", "wide")]
        words += [self.kubectl("-n", "fairway-system", "logs", f"deploy/fairway-{process}", "--tail=20") for process in PROCESSES]
        return "\n".join(words)


PROCESSES = ("operator", "scheduler")


def _framework(venv: Path, cache: Path) -> dict[str, Any]:
    """Return a runtime that mounts an environment of this machine, and its data cache, at their own paths inside pods."""
    places = {"venv": venv, "cache": cache}
    return {
        "env": {"PATH": f"{venv}/bin:/usr/bin:/bin", "FAIRWAY_DATA": str(cache), "HOME": "/tmp"},
        "volumes": tuple({"name": name, "hostPath": {"path": str(path)}} for name, path in places.items()),
        "mounts": tuple({"name": name, "mountPath": str(path), "readOnly": True} for name, path in places.items()),
    }


def bundle(folder: Path) -> dict[str, str]:
    """Return a folder of code as a ConfigMap holds it."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        for path in sorted(path for path in folder.iterdir() if path.is_file()):
            archive.add(path, path.name)
    return {"code.tar.gz": base64.b64encode(packed.getvalue()).decode()}


def _python(framework: str) -> str:
    """Return the interpreter of a framework's environment on this machine."""
    command = [ROOT / "scripts" / "framework-venv", framework]
    return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout.strip()


@pytest.fixture(scope="module")
def cluster(real_nodes: RealCluster, tmp_path_factory: pytest.TempPathFactory) -> Cluster:
    folder = tmp_path_factory.mktemp("real")
    found = Cluster(real_nodes, {"default": _python("torch"), "tensorflow": _python("tensorflow")}, folder)
    found.install(folder)
    return found


def test_two_workers_on_two_nodes_train_as_they_do_here(cluster: Cluster) -> None:
    roles = {"worker": {"replicas": {"min": 2, "max": 2}, "command": ["python", "train.py"], "placement": {"apart": True}}}
    cluster.submit("01-first-job", "first", roles=roles)
    status = cluster.until("first", "Succeeded")
    pods = json.loads(cluster.kubectl("get", "pods", "-l", f"{annotation.RUN}=first", "-o", "json"))["items"]
    assert {pod["spec"]["nodeName"] for pod in pods} == {"node-1", "node-2"}
    reported = dict(part.split(" ") for part in status["progress"].split(", "))
    assert float(reported["accuracy"]) > 0.95
    said = cluster.kubectl("logs", "first-worker-0-r0")
    assert "worker 0 of 2" in said
    left = cluster.runs / "default" / "first" / "outputs" / "model"
    assert {path.name for path in left.iterdir()} >= {"model.onnx", "fairway.json"}
    models = cluster.kubectl(
        "-n", "fairway-system", "exec", "deploy/fairway-operator", "--", "sh", "-c", "ls /var/lib/fairway/models"
    )
    assert "lenet" in models


def test_parameter_servers_of_tensorflow_run_from_the_very_file_that_runs_here(cluster: Cluster) -> None:
    cluster.submit("10-tensorflow-ps-async", "tf-ps")
    cluster.until("tf-ps", "Succeeded")
    said = cluster.kubectl("logs", "tf-ps-chief-0-r0")
    assert "accuracy" in said, said


def unsaved(status: dict[str, Any]) -> int:
    """Return the steps since the last checkpoint."""
    found = re.search(r"step (\d+), .*saved at (\d+)", status.get("progress", ""))
    return int(found[1]) - int(found[2]) if found else 0


def test_a_node_that_dies_under_a_gang_costs_the_steps_since_its_last_checkpoint_and_nothing_else(cluster: Cluster) -> None:
    worker = {"replicas": {"min": 2, "max": 2}, "command": ["python", "train.py"], "placement": {"apart": True}}
    worker["env"] = {"STEPS": "600", "PAUSE": "0.05"}
    cluster.submit("04-elastic", "survives", roles={"worker": worker}, restart={"max": 0}, checkpoint={"every": "10s"})
    wait_for("work beyond a checkpoint", lambda: unsaved(cluster.status("survives")) >= 40, 120, lambda: cluster.why("survives"))
    operator = json.loads(
        cluster.kubectl("-n", "fairway-system", "get", "pods", "-l", "app.kubernetes.io/name=fairway-operator", "-o", "json")
    )
    lost = next(node for node in cluster.cluster.nodes if node.name != operator["items"][0]["spec"]["nodeName"])
    lost.kill()
    wait_for("the next attempt", lambda: cluster.status("survives")["attempt"] == 1, 180, lambda: cluster.why("survives"))
    lost.start([cluster.cluster.plane.folder / "pause.tar", cluster.image])
    status = cluster.until("survives", "Succeeded")
    assert (status["attempt"], status["restarts"]) == (1, 0)
    found = re.fullmatch(r"resumed from step (\d+), lost (\d+) steps? \(.* of work\)", status["resumed"])
    assert found, status["resumed"]
    assert f"attempt 1: from step {found[1]}" in cluster.kubectl("logs", "survives-worker-0-r1")
