"""Agents of pretended nodes: processes here, each with a token that the API server made for a pod on its node."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import fairway
from cluster.control_plane import ControlPlane
from cluster.process import wait_for
from fairway.engines.kubernetes.identity.pod_authenticator import AUDIENCE
from fairway.engines.kubernetes.install.node_agent import AUTHORITY, AUTHORITY_FILE

SYSTEM = "fairway-system"
ACCOUNT = "fairway-agent"


class Agents:
    """One process a node; what GPUs each finds stands in a file of its own."""

    def __init__(self, plane: ControlPlane, folder: Path, operator: str = "") -> None:
        """`operator`: who gives their ports certificates; without, they are of a version without TLS."""
        self.plane = plane
        self.folder = folder
        self.operator = operator
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.bound: dict[str, dict[str, str]] = {}
        """The pods that tokens are made for, by node."""

    def gpus(self, node: str, said: str) -> None:
        """What the node's probe finds from now on: `8xA100,sick:3`."""
        fresh = self.folder / f"{node}.new"
        fresh.write_text(said)
        fresh.rename(self.folder / f"{node}.gpus")

    def start(self, node: str, said: str = "", *, managed: bool = True, tls: bool = True) -> None:
        """Start the agent of a node; without `tls` as one of an earlier version."""
        if said:
            self.gpus(node, said)
        with (self.folder / f"{node}.log").open("ab") as log:
            command = [sys.executable, "-m", "fairway.engines.kubernetes.agent"]
            env = self.environment(node, managed=managed) | (self.secured(node) if tls and self.operator else {})
            self.processes[node] = subprocess.Popen(command, env=env, stderr=log, stdout=log)

    def environment(self, node: str, *, managed: bool = True) -> dict[str, str]:
        """What the agent of a node is told."""
        return {
            **os.environ,
            "KUBECONFIG": str(self.kubeconfig(node)),
            "PYTHONPATH": str(Path(fairway.__file__).parents[1]),
            "FAIRWAY_AGENT_NODE": node,
            "FAIRWAY_AGENT_ADDRESS": "127.0.0.1",
            "FAIRWAY_AGENT_ASKED_BY": f"system:serviceaccount:{SYSTEM}:fairway-operator",
            "FAIRWAY_AGENT_MANAGED": "true" if managed else "false",
            "FAIRWAY_AGENT_EVERY": "1",
            "FAIRWAY_AGENT_SETTLE": "2",
            "FAIRWAY_FAKE_GPUS": f"@{self.folder / f'{node}.gpus'}",
        }

    def secured(self, node: str) -> dict[str, str]:
        """What a kubelet adds so that the agent speaks TLS: the authority that the operator wrote, and a token for it."""
        self.kubeconfig(node)
        authority, token = self.folder / "ca.pem", self.folder / f"{node}.token"
        path = f"/api/v1/namespaces/{SYSTEM}/configmaps/{AUTHORITY}"
        written = lambda: (self.plane.get(path)[1].get("data") or {}).get(AUTHORITY_FILE, "")  # noqa: E731
        wait_for("the operator's authority", lambda: bool(written()), 60.0)
        authority.write_text(written())
        token.write_text(self.token(ACCOUNT, audiences=[AUDIENCE], boundObjectRef=self.bound[node]))
        return {
            "FAIRWAY_AGENT_OPERATOR": self.operator,
            "FAIRWAY_AGENT_AUTHORITY": str(authority),
            "FAIRWAY_AGENT_OPERATOR_TOKEN": str(token),
        }

    def kill(self, node: str) -> None:
        """End it without warning."""
        process = self.processes.pop(node)
        process.kill()
        process.wait()

    def stop(self) -> None:
        """End all."""
        for process in self.processes.values():
            process.terminate()
        for process in self.processes.values():
            process.wait(timeout=30)
        self.processes.clear()

    def said(self, node: str) -> str:
        """What its agent wrote."""
        return (self.folder / f"{node}.log").read_text()

    def status(self, node: str) -> dict[str, object]:
        """What its `GpuNode` says."""
        status, answer = self.plane.get(f"/apis/fairway.dev/v1alpha1/gpunodes/{node}")
        found: dict[str, object] = answer.get("status", {}) if status == 200 else {}
        return found

    def until(self, node: str, **fields: object) -> None:
        """Wait until its `GpuNode` says so."""
        wait_for(
            f"{node} says {fields}",
            lambda: fields.items() <= self.status(node).items(),
            60.0,
            lambda: f"It says {self.status(node)}; its agent: {self.said(node)[-2000:]}",
        )

    def token(self, account: str, **spec: object) -> str:
        """A token of an account, as the kubelet asks for it."""
        asked = {"kind": "TokenRequest", "apiVersion": "authentication.k8s.io/v1", "spec": spec}
        status, answer = self.plane.request("POST", f"/api/v1/namespaces/{SYSTEM}/serviceaccounts/{account}/token", asked)
        assert status == 201, answer
        found: str = answer["status"]["token"]
        return found

    def kubeconfig(self, node: str) -> Path:
        """As a pod of the DaemonSet on this node would be: the token says on which node it was given out."""
        path = self.folder / f"{node}.kubeconfig"
        if path.exists():
            return path
        pods = f"/api/v1/namespaces/{SYSTEM}/pods"
        container = {"name": "agent", "image": "none"}
        spec = {
            "nodeName": node,
            "serviceAccountName": ACCOUNT,
            "containers": [container],
            "tolerations": [{"operator": "Exists"}],
        }
        body = {"metadata": {"name": f"agent-{node}"}, "spec": spec}
        status, pod = self.plane.request("POST", pods, body)
        assert status == 201, pod
        bound = {"kind": "Pod", "apiVersion": "v1", "name": pod["metadata"]["name"], "uid": pod["metadata"]["uid"]}
        self.bound[node] = bound
        token = self.token(ACCOUNT, boundObjectRef=bound)
        cluster = {"server": self.plane.server, "certificate-authority": str(self.plane.authority.pair.certificate)}
        path.write_text(
            json.dumps(
                {
                    "apiVersion": "v1",
                    "kind": "Config",
                    "clusters": [{"name": "test", "cluster": cluster}],
                    "users": [{"name": "agent", "user": {"token": token}}],
                    "contexts": [{"name": "test", "context": {"cluster": "test", "user": "agent"}}],
                    "current-context": "test",
                }
            )
        )
        return path
