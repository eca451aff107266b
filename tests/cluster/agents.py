"""Agents of simulated nodes: local processes, each with a token that the API server issued for a pod on its node."""

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
    """Runs one agent process per node; a file per node holds the GPUs that its agent discovers."""

    def __init__(self, plane: ControlPlane, folder: Path, operator: str = "") -> None:
        """`operator`: the endpoint that issues the agents' certificates; if empty, they behave as a version without TLS."""
        self.plane = plane
        self.folder = folder
        self.operator = operator
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.bound: dict[str, dict[str, str]] = {}
        """The pods that tokens are bound to, by node."""

    def gpus(self, node: str, said: str) -> None:
        """Set what the node's probe discovers from now on: `8xA100,sick:3`."""
        fresh = self.folder / f"{node}.new"
        fresh.write_text(said)
        fresh.rename(self.folder / f"{node}.gpus")

    def start(self, node: str, said: str = "", *, managed: bool = True, tls: bool = True) -> None:
        """Start the agent of a node; with `tls=False` it behaves as an earlier version."""
        if said:
            self.gpus(node, said)
        with (self.folder / f"{node}.log").open("ab") as log:
            command = [sys.executable, "-m", "fairway.engines.kubernetes.agent"]
            env = self.environment(node, managed=managed) | (self.secured(node) if tls and self.operator else {})
            self.processes[node] = subprocess.Popen(command, env=env, stderr=log, stdout=log)

    def environment(self, node: str, *, managed: bool = True) -> dict[str, str]:
        """Return the environment variables of the agent of a node."""
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
        """Return what a kubelet adds for TLS: the certificate authority that the operator published, and a token."""
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
        """Kill the agent of a node with SIGKILL."""
        process = self.processes.pop(node)
        process.kill()
        process.wait()

    def stop(self) -> None:
        """Stop all agents."""
        for process in self.processes.values():
            process.terminate()
        for process in self.processes.values():
            process.wait(timeout=30)
        self.processes.clear()

    def said(self, node: str) -> str:
        """Return the log of the agent of a node."""
        return (self.folder / f"{node}.log").read_text()

    def status(self, node: str) -> dict[str, object]:
        """Return the status of the node's `GpuNode`."""
        status, answer = self.plane.get(f"/apis/fairway.dev/v1alpha1/gpunodes/{node}")
        found: dict[str, object] = answer.get("status", {}) if status == 200 else {}
        return found

    def until(self, node: str, **fields: object) -> None:
        """Wait until the status of the node's `GpuNode` has these fields."""
        wait_for(
            f"{node} says {fields}",
            lambda: fields.items() <= self.status(node).items(),
            60.0,
            lambda: f"It says {self.status(node)}; its agent: {self.said(node)[-2000:]}",
        )

    def token(self, account: str, **spec: object) -> str:
        """Request a token of a service account, as the kubelet does."""
        asked = {"kind": "TokenRequest", "apiVersion": "authentication.k8s.io/v1", "spec": spec}
        status, answer = self.plane.request("POST", f"/api/v1/namespaces/{SYSTEM}/serviceaccounts/{account}/token", asked)
        assert status == 201, answer
        found: str = answer["status"]["token"]
        return found

    def kubeconfig(self, node: str) -> Path:
        """Return the kubeconfig of a pod of the DaemonSet on this node: its token is bound to that pod and node."""
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
