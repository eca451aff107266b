"""Fairway on a control plane: all objects applied; operator and scheduler run here with only the rights of their accounts."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

import fairway
from cluster.control_plane import ControlPlane
from cluster.nursery import Forked, Nursery
from cluster.process import wait_for
from fairway.engines.kubernetes.install.manifest import manifests
from fairway.engines.kubernetes.operator.installation import FrameworkRuntime, InstallationSettings

SYSTEM = "fairway-system"
_PATHS = {
    "Namespace": "/api/v1/namespaces/{name}",
    "CustomResourceDefinition": "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{name}",
    "ServiceAccount": "/api/v1/namespaces/{namespace}/serviceaccounts/{name}",
    "ConfigMap": "/api/v1/namespaces/{namespace}/configmaps/{name}",
    "ClusterRole": "/apis/rbac.authorization.k8s.io/v1/clusterroles/{name}",
    "ClusterRoleBinding": "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/{name}",
    "Role": "/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}/roles/{name}",
    "RoleBinding": "/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}/rolebindings/{name}",
}


class Installed:
    """Fairway on a control plane, with access to its processes."""

    def __init__(self, plane: ControlPlane, folder: Path) -> None:
        self.plane = plane
        self.folder = folder
        self.installation = InstallationSettings(image="fairway:test", runtimes={"default": FrameworkRuntime("none")})
        self.endpoint = ""
        """The address at which pods reach the operator, in tests that have it listen there."""
        self._nursery: Nursery | None = None
        self.processes: dict[str, Forked] = {}

    def install(self, *, kinds: bool = True) -> None:
        """Apply everything but the Deployments, whose programs run here; without `kinds` our definitions must exist."""
        for one in manifests(self.installation):
            if one["kind"] in _PATHS and (kinds or one["kind"] != "CustomResourceDefinition"):
                self.plane.apply(one, _PATHS[one["kind"]].format(**one["metadata"]))
        (self.folder / "installation.json").write_bytes(msgspec.json.encode(self.installation))
        path = "/apis/fairway.dev/v1alpha1/trainingjobs"
        wait_for("our kinds", lambda: self.plane.get(path)[0] == 200)

    def written(self, **changes: Any) -> Path:
        """Write the administrator's configuration with some changes to a file beside the usual one."""
        path = self.folder / "other-installation.json"
        path.write_bytes(msgspec.json.encode(msgspec.structs.replace(self.installation, **changes)))
        return path

    def start(self, name: str, **more: str) -> Forked:
        """Start one of the processes, with its service account."""
        account = f"system:serviceaccount:{SYSTEM}:fairway-{name}"
        groups = ["system:serviceaccounts", f"system:serviceaccounts:{SYSTEM}"]
        env = {
            **os.environ,
            "KUBECONFIG": str(self.plane.kubeconfig(account, groups)),
            "PYTHONPATH": str(Path(fairway.__file__).parents[1]),
            "FAIRWAY_INSTALLATION": str(self.folder / "installation.json"),
            "FAIRWAY_HOME": str(self.folder / "home"),
            "FAIRWAY_RUNS": str(self.folder / "runs"),
            "FAIRWAY_OPERATOR_PORT": "0",
            "FAIRWAY_SYSTEM_NAMESPACE": SYSTEM,
            "FAIRWAY_AGENT_TOKEN_FILE": str(self.folder / "agent-token"),
            **more,
        }
        self._nursery = self._nursery or Nursery()
        process = self._nursery.start(name, env, self.folder / f"{name}.log")
        self.processes[name] = process
        return process

    def kill(self, name: str) -> None:
        """Kill one of the processes with SIGKILL."""
        process = self.processes.pop(name)
        process.kill()
        process.wait()
        self.end_lease(name)

    def end_lease(self, name: str) -> None:
        """Expire the lease of a process that is certainly dead at once: its successor would wait 15 s for it."""
        self.plane.request("DELETE", f"/apis/coordination.k8s.io/v1/namespaces/{SYSTEM}/leases/fairway-{name}")

    def end(self, name: str) -> None:
        """Stop one of the processes gracefully: it releases its lease."""
        process = self.processes.pop(name)
        process.terminate()
        process.wait(timeout=30)

    def stop(self) -> None:
        """Stop all processes."""
        for process in self.processes.values():
            process.terminate()
        for process in self.processes.values():
            process.wait(timeout=60)
        self.processes.clear()
        if self._nursery is not None:
            self._nursery.close()
            self._nursery = None

    def last_words(self) -> str:
        """Return the end of each process's log and whether it runs, for error messages."""
        return "\n".join(
            f"{name} ({'lives' if process.poll() is None else f'ended with {process.returncode}'}):\n{self._tail(name)}"
            for name, process in self.processes.items()
        )

    def _tail(self, name: str) -> str:
        return "\n".join((self.folder / f"{name}.log").read_text().splitlines()[-15:])


class Jobs:
    """TrainingJob objects and their pods in one namespace."""

    def __init__(self, installed: Installed, namespace: str, patience: float = 60.0) -> None:
        self.installed = installed
        self.patience = patience
        self.plane = installed.plane
        self.namespace = namespace
        self.path = f"/apis/fairway.dev/v1alpha1/namespaces/{namespace}/trainingjobs"

    def submit(self, name: str, workers: int = 1, cpu: str = "1", **spec: Any) -> None:
        """Create an object."""
        role = {
            "replicas": spec.pop("replicas", {"min": workers, "max": workers}),
            "command": ["python", "train.py"],
            "resources": {"cpu": cpu},
            "placement": {"tolerations": ["*"]},
        }
        body = {
            "apiVersion": "fairway.dev/v1alpha1",
            "kind": "TrainingJob",
            "metadata": {"name": name, "namespace": self.namespace},
            "spec": {"framework": "pytorch", "grace": "1s", "roles": {"worker": role}, **spec},
        }
        status, answer = self.plane.request("POST", self.path, body)
        assert status == 201, answer

    def get(self, name: str) -> dict[str, Any]:
        """Return the object."""
        status, answer = self.plane.get(f"{self.path}/{name}")
        assert status == 200, answer
        found: dict[str, Any] = answer
        return found

    def status(self, name: str) -> dict[str, Any]:
        """Return its status."""
        found: dict[str, Any] = self.get(name).get("status", {})
        return found

    def patch(self, name: str, **spec: Any) -> None:
        """Change the spec."""
        status, answer = self.plane.request("PATCH", f"{self.path}/{name}", {"spec": spec}, "application/merge-patch+json")
        assert status == 200, answer

    def delete(self, name: str) -> None:
        """Delete the object."""
        self.plane.request("DELETE", f"{self.path}/{name}")

    def pods(self, run: str = "") -> list[dict[str, Any]]:
        """Return the pods of a run, or all of our pods, by name."""
        selector = f"fairway.dev/run={run}" if run else "fairway.dev/run"
        _, answer = self.plane.get(f"/api/v1/namespaces/{self.namespace}/pods?labelSelector={selector}")
        return sorted(answer["items"], key=lambda pod: str(pod["metadata"]["name"]))

    def annotate(self, pod: str, **marks: str) -> None:
        """Annotate a pod to tell kwok how it ends."""
        noted = {f"test.fairway.dev/{key.replace('_', '-')}": value for key, value in marks.items()}
        path = f"/api/v1/namespaces/{self.namespace}/pods/{pod}"
        status, answer = self.plane.request("PATCH", path, {"metadata": {"annotations": noted}}, "application/merge-patch+json")
        assert status == 200, answer

    def until(self, name: str, what: str, holds: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """Wait until the object's status fulfils the condition."""
        wait_for(f"{name} {what}", lambda: holds(self.status(name)), self.patience, lambda: self.why_not(name))
        return self.status(name)

    def why_not(self, name: str) -> str:
        """Return the object's status and all pods, for error messages."""
        return f"It says {self.status(name)}\n{self.what_is_there()}"

    def what_is_there(self) -> str:
        """Return all pods in short, and the end of the processes' logs."""
        pods = self.plane.get(f"/api/v1/namespaces/{self.namespace}/pods")[1]["items"]
        return "\n".join([*map(_in_short, pods), self.installed.last_words()])

    def runs(self, name: str) -> dict[str, Any]:
        """Wait until it runs."""
        return self.until(name, "runs", lambda status: status.get("phase") == "Running")


def _in_short(pod: dict[str, Any]) -> str:
    metadata, status = pod["metadata"], pod["status"]
    said = [each.get("message") or each["reason"] for each in status.get("conditions", ()) if each.get("reason")]
    marks = {name: value for name, value in metadata.get("annotations", {}).items() if name.endswith(("/leave", "/deleted-for"))}
    words = [metadata["name"], pod["spec"].get("nodeName", "nowhere"), status.get("phase", ""), status.get("reason", "")]
    return " ".join(
        [*words, f"deleted {metadata['deletionTimestamp']}" if "deletionTimestamp" in metadata else "", *said, str(marks)]
    )
