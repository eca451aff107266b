"""Fairway's record as an API of a control plane, served by a local operator process; and a user's command line."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import fairway
from cluster.control_plane import ControlPlane
from cluster.installed import SYSTEM, Installed
from cluster.process import wait_for
from fairway.engines.kubernetes.install.api_service import VARIABLE, record_objects

API_SERVICE = "/apis/apiregistration.k8s.io/v1/apiservices/v1alpha1.record.fairway.dev"


def lead_to_operator(installed: Installed) -> dict[str, str]:
    """Route the API server to the address where the operator will listen: a Service may also be a name outside the cluster.

    Returns the environment variables that the operator needs for it.
    """
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    plane = installed.plane
    for one in record_objects(SYSTEM, {}):
        if one["kind"] == "Service":
            spec = {"type": "ExternalName", "externalName": "localhost", "ports": [{"port": port}]}
            plane.apply({**one, "spec": spec}, f"/api/v1/namespaces/{SYSTEM}/services/{one['metadata']['name']}")
        elif one["kind"] == "APIService":
            one["spec"]["service"]["port"] = port
            plane.apply(one, API_SERVICE)
    return {VARIABLE: str(port)}


def start_operator(installed: Installed, **more: str) -> None:
    """Start the operator at the address that the API server uses."""
    plane = installed.plane
    installed.start("operator", **lead_to_operator(installed), **more)
    wait_for("the record to be available", lambda: available(plane), 60.0, installed.last_words)


def available(plane: ControlPlane) -> bool:
    """Whether the API server reports the record's API as available."""
    conditions = plane.get(API_SERVICE)[1].get("status", {}).get("conditions", [])
    return any(one["type"] == "Available" and one["status"] == "True" for one in conditions)


class Person:
    """A user with a kubeconfig, a home folder and a command line."""

    def __init__(self, plane: ControlPlane, folder: Path, user: str, namespace: str, groups: Sequence[str] = ()) -> None:
        self.home = folder / f"home-{user}"
        self.work = folder / f"work-{user}"
        self.work.mkdir(parents=True)
        self.kubeconfig = folder / f"{user}.kubeconfig"
        given = json.loads(plane.kubeconfig(user, list(groups)).read_text())
        given["contexts"] = [{"name": "lab", "context": {"cluster": "test", "user": user, "namespace": namespace}}]
        self.kubeconfig.write_text(json.dumps({**given, "current-context": "lab"}))
        self.env = {
            **{key: value for key, value in os.environ.items() if not key.startswith("FAIRWAY_")},
            "PYTHONPATH": str(Path(fairway.__file__).parents[1]),
            "KUBECONFIG": str(self.kubeconfig),
            "FAIRWAY_HOME": str(self.home),
        }

    def run(self, *words: str, given: str = "", code: int | None = 0, timeout: float = 100.0) -> subprocess.CompletedProcess[str]:
        """Run `fairway WORDS`; `code` is the expected exit code, None for any."""
        ended = subprocess.run(
            [sys.executable, "-m", "fairway.cli.main", *words],
            env=self.env, cwd=self.work, input=given, capture_output=True, text=True, timeout=timeout, check=False,
        )  # fmt: skip
        assert code is None or ended.returncode == code, f"fairway {' '.join(words)}: {ended}"
        return ended

    @contextmanager
    def start(self, *words: str) -> Iterator[subprocess.Popen[str]]:
        """Start `fairway WORDS` in the background; it is killed at the end, so that a failing test does not wait for it."""
        command = [sys.executable, "-m", "fairway.cli.main", *words]
        streams = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        with subprocess.Popen(command, env=self.env, cwd=self.work, text=True, **streams) as process:  # type: ignore[call-overload]
            try:
                yield process
            finally:
                if process.poll() is None:
                    process.kill()

    def json(self, *words: str) -> Any:
        """Run `fairway WORDS` and return its output as data."""
        return json.loads(self.run(*words, "-o", "json").stdout)
