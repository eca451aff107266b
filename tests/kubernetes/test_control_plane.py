"""The control plane of the test cluster is a real one, and leaves nothing behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from cluster import folders, programs
from cluster.control_plane import ControlPlane
from cluster.process import Processes, command_line, wait_for

from fairway.engines.kubernetes.crd.definition import definitions


def processes_below(folder: Path) -> list[str]:
    """Return the command lines of processes that mention a folder."""
    lines = map(command_line, Path("/proc").glob("[0-9]*"))
    return [line.decode(errors="replace") for line in lines if str(folder).encode() in line]


@pytest.mark.parametrize("gone", [FileNotFoundError, ProcessLookupError])
def test_a_process_that_ends_while_it_is_looked_at_has_no_command_line(
    gone: type[OSError], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read_bytes(_: Path) -> bytes:
        raise gone

    monkeypatch.setattr(Path, "read_bytes", read_bytes)
    assert command_line(tmp_path) == b""


def test_it_is_ready(control_plane: ControlPlane) -> None:
    assert control_plane.get("/readyz") == (200, "ok")
    assert control_plane.get("/version")[1]["gitVersion"] == "v1.36.4"


def test_a_namespace_comes_and_goes_for_good(control_plane: ControlPlane) -> None:
    path = "/api/v1/namespaces"
    assert control_plane.request("POST", path, {"metadata": {"name": "short-lived"}})[0] == 201
    path += "/short-lived"
    wait_for("its service account", lambda: control_plane.get(f"{path}/serviceaccounts/default")[0] == 200)
    assert control_plane.request("DELETE", path)[0] == 200
    wait_for("its end", lambda: control_plane.get(path)[0] == 404)


@pytest.mark.parametrize("definition", definitions(), ids=lambda definition: definition["spec"]["names"]["kind"])
def test_our_definitions_are_established(control_plane: ControlPlane, definition: dict) -> None:
    path = f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{definition['metadata']['name']}"
    control_plane.apply(definition, path)

    def conditions() -> dict[str, str]:
        return {each["type"]: each["status"] for each in control_plane.get(path)[1]["status"]["conditions"] or ()}

    wait_for("its use", lambda: conditions().get("Established") == "True")
    assert "NonStructuralSchema" not in conditions()


def test_a_user_may_do_what_is_granted_and_no_more(control_plane: ControlPlane, namespace: str) -> None:
    def asked_by_alice() -> subprocess.CompletedProcess[str]:
        command = [programs.find("kubectl"), "--kubeconfig", control_plane.kubeconfig("alice"), "-n", namespace, "get", "pods"]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    assert 'User "alice" cannot list resource "pods"' in asked_by_alice().stderr
    control_plane.kubectl("-n", namespace, "create", "rolebinding", "reader", "--clusterrole=view", "--user=alice")
    wait_for("what was granted", lambda: asked_by_alice().returncode == 0)


def test_the_api_server_comes_back_on_the_same_port_with_everything(own_control_plane: Callable[..., ControlPlane]) -> None:
    plane = own_control_plane()
    plane.request("POST", "/api/v1/namespaces", {"metadata": {"name": "kept"}})
    before = plane.server
    plane.processes.end("kube-apiserver")
    assert plane.get("/readyz")[0] == 0
    plane.start_apiserver()
    assert plane.server == before
    assert plane.get("/api/v1/namespaces/kept")[0] == 200


def test_stop_leaves_nothing(own_control_plane: Callable[..., ControlPlane]) -> None:
    plane = own_control_plane()
    assert len(processes_below(plane.folder)) == 3
    plane.stop()
    assert processes_below(plane.folder) == []
    assert not plane.folder.exists()


CRASHES = """
import sys, time
from cluster.control_plane import ControlPlane
plane = ControlPlane()
plane.start()
print(plane.folder, flush=True)
time.sleep(1000)
"""


def test_a_maker_that_is_killed_takes_its_processes_along_and_down_removes_the_rest(control_plane: ControlPlane) -> None:
    environment = {**os.environ, "PYTHONPATH": str(Path(folders.__file__).parents[1])}
    maker = subprocess.Popen([sys.executable, "-c", CRASHES], stdout=subprocess.PIPE, text=True, env=environment)
    assert maker.stdout is not None
    folder = Path(maker.stdout.readline().strip())
    assert len(processes_below(folder)) == 3
    maker.send_signal(signal.SIGKILL)
    maker.wait()
    maker.stdout.close()
    wait_for("their end", lambda: not processes_below(folder))
    subprocess.run([sys.executable, "-m", "cluster", "down"], env=environment, check=True)
    assert not folder.exists()
    assert Processes(control_plane.folder).alive("etcd"), "that of a test that runs is left alone"
