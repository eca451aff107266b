"""Real pods without a shared volume: code, requirements and checkpoints come from the operator, which also gets the model."""

from __future__ import annotations

import base64
import io
import json
import sys
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import pytest
from cluster import image
from cluster.nodes import RealCluster
from cluster.process import wait_for

from fairway.engines.kubernetes import annotation
from fairway.engines.kubernetes.install.manifest import manifests
from fairway.engines.kubernetes.operator.installation import FrameworkRuntime, InstallationSettings

pytestmark = pytest.mark.timeout(600)

SYSTEM = "fairway-system"
OPERATOR = ("-n", SYSTEM, "exec", "-i", "deploy/fairway-operator", "--")

TRAIN = """
import json, os, pathlib, time
import fairway, greeting

status = dict(line.split(":\t", 1) for line in open("/proc/self/status").read().splitlines() if ":\t" in line)
print("confined:", os.getuid(), status["CapEff"], status["NoNewPrivs"], status["Seccomp"], flush=True)
print("the operator is at", os.environ["MLFLOW_TRACKING_URI"], flush=True)
# Another user brought the code. Root without capabilities writes there all the same.
print("code of", os.stat("train.py").st_uid, flush=True)
pathlib.Path("train.py").write_text(pathlib.Path("train.py").read_text())
pathlib.Path("notes.txt").write_text("written beside the code")

start = fairway.checkpoint.latest()
first = start.step if start else 0
print(f"begins at {first}, {greeting.WORDS}", flush=True)
for step in range(first + 1, 31):
    fairway.report(step=step, loss=1.0 / step)
    if step % 10 == 0:
        with fairway.checkpoint.save(step) as folder:
            (folder / "weights.bin").write_bytes(bytes(step) * 1000)
    if step == 20 and start is None:
        print("waits for its end", flush=True)
        time.sleep(3600)
header = json.dumps({"__metadata__": {"format": "pt"}}).encode()
model = pathlib.Path(fairway.output("model")) / "model.safetensors"
model.write_bytes(len(header).to_bytes(8, "little") + header)
"""

TAKE = """
import base64, io, sys, tarfile, tempfile
from pathlib import Path
from fairway.bootstrap.cluster_registry import ClusterRegistry
from fairway.registry import snapshot
from fairway.registry.upload.content_ownership import namespace_owner

registry = ClusterRegistry.open(Path("/var/lib/fairway"))
with tempfile.TemporaryDirectory() as folder:
    with tarfile.open(fileobj=io.BytesIO(base64.b64decode(sys.stdin.read()))) as archive:
        archive.extractall(folder, filter="data")
    digest = snapshot.take(Path(folder), registry.blobs).digest
registry.possession.note_code([namespace_owner(sys.argv[1])], digest)
print(digest)
"""


def wheel(folder: Path) -> None:
    """Build the wheel of a package that no index has."""
    about = "greeting-1.0.dist-info"
    head = "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    with zipfile.ZipFile(folder / "greeting-1.0-py3-none-any.whl", "w") as archive:
        archive.writestr("greeting.py", 'WORDS = "hello"\n')
        archive.writestr(f"{about}/METADATA", "Metadata-Version: 2.1\nName: greeting\nVersion: 1.0\n")
        archive.writestr(f"{about}/WHEEL", head)
        archive.writestr(f"{about}/RECORD", f"greeting.py,,\n{about}/METADATA,,\n{about}/WHEEL,,\n")


class Room:
    """Fairway on real nodes, without a shared volume."""

    def __init__(self, cluster: RealCluster, folder: Path) -> None:
        self.cluster = cluster
        self.wheels = folder / "wheels"
        self.wheels.mkdir()
        wheel(self.wheels)
        # This machine's environment, mounted at its own path, provides an installer.
        places = {"venv": Path(sys.prefix), "wheels": self.wheels}
        runtime = FrameworkRuntime(
            image.FAIRWAY,
            env={"PATH": f"{sys.prefix}/bin:/usr/bin:/bin", "HOME": "/tmp"},
            volumes=tuple({"name": name, "hostPath": {"path": str(path)}} for name, path in places.items()),
            mounts=tuple({"name": name, "mountPath": str(path), "readOnly": True} for name, path in places.items()),
        )
        self.installation = InstallationSettings(image=image.FAIRWAY, runtimes={"pytorch": runtime}, record={"emptyDir": {}})

    def install(self, folder: Path) -> None:
        self.cluster.plane.start_scheduler()
        self.cluster.load(image.fairway(folder / "fairway.tar", ["kubernetes"]))
        for one in manifests(self.installation):
            self.kubectl("apply", "--server-side", "-f", "-", given=json.dumps(one))
        self.kubectl("-n", SYSTEM, "wait", "--for=condition=Available", "deployment", "--all", "--timeout=120s")

    def kubectl(self, *arguments: str, given: str | None = None) -> str:
        return self.cluster.plane.kubectl(*arguments, given=given)

    def take(self, files: dict[str, bytes]) -> str:
        """Put code into the operator's blob store; return its digest."""
        packed = io.BytesIO()
        with tarfile.open(fileobj=packed, mode="w") as archive:
            for name, content in files.items():
                member = tarfile.TarInfo(name)
                member.size = len(content)
                archive.addfile(member, io.BytesIO(content))
        return self.kubectl(
            *OPERATOR, "python3", "-c", TAKE, "default", given=base64.b64encode(packed.getvalue()).decode()
        ).strip()

    def submit(self, name: str, digest: str = "", **spec: Any) -> None:
        role = {"command": ["python", "train.py"], "resources": {"cpu": "0.1"}}
        body = {
            "apiVersion": "fairway.dev/v1alpha1",
            "kind": "TrainingJob",
            "metadata": {"name": name, "annotations": {annotation.CODE: f"blob:{digest}"} if digest else {}},
            "spec": {"framework": "pytorch", "grace": "5s", "roles": {"worker": role}, **spec},
        }
        self.kubectl("create", "-f", "-", given=json.dumps(body))

    def until(self, name: str, what: str, field: str, words: str) -> dict[str, Any]:
        """Wait until that field of the object's status contains these words."""
        wait_for(f"{name} {what}", lambda: words in str(self.status(name).get(field, "")), 240.0, lambda: self.why(name))
        return self.status(name)

    def status(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.kubectl("get", "trainingjob", name, "-o", "json")).get("status", {})
        return found

    def why(self, name: str) -> str:
        words = [str(self.status(name)), self.kubectl("get", "pods", "-A", "-o", "wide")]
        words.append(self.kubectl("-n", SYSTEM, "logs", "deploy/fairway-operator", "--tail=20"))
        return "\n".join(words)


@pytest.fixture(scope="module")
def room(real_nodes: RealCluster, tmp_path_factory: pytest.TempPathFactory) -> Room:
    folder = tmp_path_factory.mktemp("content")
    found = Room(real_nodes, folder)
    found.install(folder)
    return found


def test_a_pod_that_is_deleted_in_the_middle_goes_on_elsewhere_and_its_model_is_kept(room: Room) -> None:
    requirements = f"--no-index\n--find-links {room.wheels}\ngreeting==1.0\n".encode()
    large = bytes(range(256)) * 12_000  # more than any ConfigMap takes
    digest = room.take({"train.py": TRAIN.encode(), "requirements.txt": requirements, "vocabulary.bin": large})
    broken = room.take({"requirements.txt": b"--no-index\nno-such-package==1\n"})
    wish = {"environment": {"requirements": "requirements.txt"}, "restart": {"max": 0}}
    # As in the documented image of Fairway: the init step that brings the code does not run as root, and the task does.
    brought = {"pod": {"initContainers": [{"name": "code", "securityContext": {"runAsUser": 65532}}]}}
    room.submit("mnist", digest, outputs={"model": "lenet"}, kubernetes=brought, **wish)
    room.submit("broken", broken, **wish)
    room.submit("cloned", code={"git": {"url": "https://example.invalid/a.git"}}, restart={"max": 0})
    room.submit("homeless", framework="tensorflow", restart={"max": 0})
    # Mistakes are reported in the object's status.
    said = room.until("broken", "has failed", "phase", "Failed")["message"]
    assert "the environment could not be created" in said
    assert "no-such-package" in said
    said = room.until("cloned", "has failed", "phase", "Failed")["message"]
    assert "Fairway's image on this cluster has none" in said
    said = room.until("homeless", "has failed", "phase", "Failed")["message"]
    assert "set environment.image, or have an administrator add `runtimes: {tensorflow: ...}`" in said
    # Deleted in the middle, it resumes from the operator's copy.
    room.until("mnist", "has saved", "progress", "saved at 20")
    room.kubectl("delete", "pod", "mnist-worker-0-r0", "--wait=false")
    status = room.until("mnist", "has succeeded", "phase", "Succeeded")
    assert (status["attempt"], status["restarts"]) == (1, 0), "a deletion by somebody costs no restart"
    assert "begins at 20, hello" in room.kubectl("logs", "mnist-worker-0-r1")
    record = room.kubectl(*OPERATOR, "sh", "-c", "cat /var/lib/fairway/models/lenet/1.json")
    assert json.loads(record)["lineage"]["code"] == digest
    log = room.kubectl(*OPERATOR, "sh", "-c", "cat /var/lib/fairway/logs/default/mnist/worker-0#0.log")
    assert "begins at 0, hello" in log
    assert "waits for its end" in log
    assert "confined: 0 0000000000000000 1 2" in log, "no capability, no new privileges, a filter of system calls"
    assert f"the operator is at https://fairway-operator.{SYSTEM}.svc.cluster.local:8080" in log
    assert "code of 65532" in log
