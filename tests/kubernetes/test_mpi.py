"""MPI over pods on real nodes: Open MPI starts its ranks through our agent, from the same document that runs locally."""

from __future__ import annotations

import base64
import io
import json
import subprocess
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
from fairway.engines.kubernetes.operator.installation import FrameworkRuntime, InstallationSettings
from fairway.spec.text.document import read_documents
from fairway.spec.text.writer import write

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "15-mpi"

pytestmark = [pytest.mark.timeout(600), pytest.mark.framework("mpi")]


class MpiCluster:
    """Fairway on real nodes, with an environment that has Open MPI."""

    def __init__(self, cluster: RealCluster, folder: Path) -> None:
        self.cluster = cluster
        self.folder = folder
        self.runs = folder / "runs"
        self.runs.mkdir()
        self.runs.chmod(0o777)  # pods that nodes run as other users than root need access
        made = [ROOT / "scripts" / "framework-venv", "mpi"]
        python = subprocess.run(made, stdout=subprocess.PIPE, text=True, check=True).stdout.strip()
        venv = str(Path(python).parents[1])
        runtime = FrameworkRuntime(
            image.FAIRWAY,
            env={"PATH": f"{venv}/bin:/usr/bin:/bin", "HOME": "/tmp"},
            volumes=({"name": "venv", "hostPath": {"path": venv}},),
            mounts=({"name": "venv", "mountPath": venv, "readOnly": True},),
        )
        self.installation = InstallationSettings(
            record={"emptyDir": {}},
            image=image.FAIRWAY,
            runtimes={"default": runtime},
            run_volume={"hostPath": {"path": str(self.runs)}},
        )

    def install(self) -> None:
        """Apply everything that an installation applies, and load the image on the nodes."""
        self.cluster.plane.start_scheduler()  # places our own two processes
        self.cluster.load(image.fairway(self.folder / "fairway.tar", ["kubernetes"]))
        for one in manifests(self.installation):
            self.kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", given=json.dumps(one))
        wait_for("our processes", self._ready, 300.0, lambda: self.kubectl("-n", "fairway-system", "describe", "pods"))

    def _ready(self) -> bool:
        found = json.loads(self.kubectl("-n", "fairway-system", "get", "deployments", "-o", "json"))["items"]
        return all(
            one["status"].get("observedGeneration") == one["metadata"]["generation"]
            and one["status"].get("updatedReplicas", 0) == one["status"].get("readyReplicas", 0) == one["spec"]["replicas"]
            for one in found
        )

    def kubectl(self, *arguments: str, given: str | None = None) -> str:
        return self.cluster.plane.kubectl(*arguments, given=given)

    def submit(self, folder: Path, name: str) -> None:
        """Submit the document of a folder, unchanged, with the folder's code."""
        (document,) = read_documents((folder / "job.yaml").read_text())
        found = yaml.safe_load(write(document, "kubernetes"))
        found["metadata"] = {"name": name, "namespace": "default", "annotations": {annotation.CODE: f"{name}-code"}}
        code = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": f"{name}-code"}, "binaryData": bundle(folder)}
        for one in (code, found):
            self.kubectl("create", "-f", "-", given=json.dumps(one))

    def status(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.kubectl("get", "trainingjob", name, "-o", "json")).get("status", {})
        return found

    def until(self, name: str, phase: str) -> dict[str, Any]:
        wait_for(f"{name} is {phase}", lambda: self.status(name).get("phase") == phase, 240.0, lambda: self.why(name))
        return self.status(name)

    def why(self, name: str) -> str:
        words = [str(self.status(name)), self.kubectl("get", "pods", "-A", "-o", "wide")]
        words += [
            self.kubectl("-n", "fairway-system", "logs", f"deploy/fairway-{one}", "--tail=20")
            for one in ("operator", "scheduler")
        ]
        words += [self.kubectl("logs", "-l", f"{annotation.RUN}={name}", "--tail=20", "--prefix", "-c", "task")]
        return "\n".join(words)

    def nodes_of(self, name: str) -> dict[str, str]:
        """Return the node of each task of the run's first attempt."""
        pods = json.loads(self.kubectl("get", "pods", "-l", f"{annotation.RUN}={name},{annotation.ATTEMPT}=0", "-o", "json"))[
            "items"
        ]
        return {
            f"{pod['metadata']['labels'][annotation.ROLE]}-{pod['metadata']['labels'][annotation.INDEX]}": pod["spec"].get(
                "nodeName", ""
            )
            for pod in pods
        }


def bundle(folder: Path) -> dict[str, str]:
    """Return a folder of code as a ConfigMap holds it."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        for path in sorted(path for path in folder.iterdir() if path.is_file()):
            archive.add(path, path.name)
    return {"code.tar.gz": base64.b64encode(packed.getvalue()).decode()}


@pytest.fixture(scope="module")
def cluster(real_nodes: RealCluster, tmp_path_factory: pytest.TempPathFactory) -> MpiCluster:
    found = MpiCluster(real_nodes, tmp_path_factory.mktemp("mpi"))
    found.install()
    return found


def test_three_pods_train_together_from_the_very_file_that_runs_here(cluster: MpiCluster) -> None:
    cluster.submit(EXAMPLE, "mpi")
    wait_for(
        "its three pods",
        lambda: all(cluster.nodes_of("mpi").get(f"worker-{n}") for n in range(3)),
        120.0,
        lambda: cluster.why("mpi"),
    )
    assert set(cluster.nodes_of("mpi").values()) == {"node-1", "node-2"}
    status = cluster.until("mpi", "Succeeded")
    shared = cluster.runs / "default" / "mpi" / "shared"
    notes = [json.loads((shared / f"rank-{rank}.json").read_text()) for rank in range(3)]
    assert [(note["rank"], note["world_size"]) for note in notes] == [(0, 3), (1, 3), (2, 3)]
    assert len({note["weights"] for note in notes}) == 1, "every rank has the same weights: gradients were added up over pods"
    assert min(note["accuracy"] for note in notes) > 0.85
    assert status["progress"].startswith("step 300, loss "), "the first rank's reports are the run's"
    assert status["reason"] == "Completed"


WORLD = """\
kind: TrainingJob
name: world
framework: mpi
code: .
success: launcher
grace: 2s
roles:
  launcher:
    command: mpirun python world.py
    resources: {cpu: 100m}
  worker:
    replicas: 2
    processes: 2
    command: sleep infinity
    resources: {cpu: 500m}
    placement: {apart: true}
"""
PROGRAM = """\
import json, os, ssl, time, urllib.error, urllib.request
from pathlib import Path
import fairway
from mpi4py import MPI

everyone = MPI.COMM_WORLD
assert everyone.size == fairway.world_size() == int(os.environ["FAIRWAY_WORLD_SIZE"]) == 4
shared = Path(os.environ["FAIRWAY_SHARED_DIR"])
hosts = everyone.allgather((os.uname().nodename, os.environ["FAIRWAY_TASK"]))
total = everyone.allreduce(everyone.rank + 1)


def asked(token):
    url = os.environ["MLFLOW_TRACKING_URI"] + "/api/2.0/mlflow/experiments/search?max_results=5"
    request = urllib.request.Request(url, headers={"Authorization": "Bearer " + token})
    known = ssl.create_default_context(cafile=os.environ["MLFLOW_TRACKING_SERVER_CERT_PATH"])
    try:
        return urllib.request.urlopen(request, timeout=30, context=known).status
    except urllib.error.HTTPError as refused:
        return refused.code


if everyone.rank == 0:
    tracking = [asked(os.environ["MLFLOW_TRACKING_TOKEN"]), asked("guessed")]
    fairway.report(step=fairway.attempt() + 1, total=total)
    (shared / f"hosts-{fairway.attempt()}.json").write_text(json.dumps({"hosts": hosts, "total": total, "tracking": tracking}))
while fairway.attempt() == 0:  # the first time, until somebody takes a worker away
    everyone.allreduce(1)
    time.sleep(0.1)
"""


def test_a_launcher_starts_ranks_in_its_workers_pods_and_a_lost_worker_starts_all_again(
    cluster: MpiCluster, tmp_path: Path
) -> None:
    (tmp_path / "job.yaml").write_text(WORLD)
    (tmp_path / "world.py").write_text(PROGRAM)
    cluster.submit(tmp_path, "world")
    shared = cluster.runs / "default" / "world" / "shared"
    wait_for("the ranks meet", (shared / "hosts-0.json").exists, 240.0, lambda: cluster.why("world"))
    placed = cluster.nodes_of("world")
    assert {placed["worker-0"], placed["worker-1"]} == {"node-1", "node-2"}
    found = json.loads((shared / "hosts-0.json").read_text())
    ranks = [["world-worker-0", "worker-0"]] * 2 + [["world-worker-1", "worker-1"]] * 2
    assert (found["hosts"], found["total"]) == (ranks, 10)
    assert found["tracking"] == [200, 401], "ranks in other pods find MLflow as those of the first do"
    cluster.kubectl("delete", "pod", "world-worker-1-r0", "--wait=false")
    status = cluster.until("world", "Succeeded")
    assert status["attempt"] >= 1
    assert json.loads((shared / "hosts-1.json").read_text())["hosts"] == ranks
    assert status["progress"].startswith("step 2, total 10")
