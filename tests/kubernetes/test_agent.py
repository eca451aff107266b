"""Agents of nodes and their GPUs on a real control plane: all processes with their own rights, pretended nodes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from cluster.agents import Agents
from cluster.control_plane import ControlPlane
from cluster.installed import Installed, Jobs
from cluster.process import wait_for

from fairway.engines.kubernetes import marks
from fairway.engines.kubernetes.install.agent import policy
from fairway.engines.kubernetes.operator.installation import Installation, Runtime

Add = Callable[..., list[str]]


@pytest.fixture(scope="module")
def installed(control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installed]:
    found = Installed(control_plane, tmp_path_factory.mktemp("fairway"))
    found.installation = Installation(image="fairway:test", runtimes={"default": Runtime("none")}, gpus="fairway")
    found.install()
    for one in policy("fairway-system"):
        plural = {"ValidatingAdmissionPolicy": "validatingadmissionpolicies"}.get(
            one["kind"], "validatingadmissionpolicybindings"
        )
        control_plane.apply(one, f"/apis/admissionregistration.k8s.io/v1/{plural}/{one['metadata']['name']}")
    found.start("operator")
    found.start("scheduler")
    yield found
    found.stop()


@pytest.fixture
def agents(installed: Installed) -> Iterator[Agents]:
    folder = installed.folder / "agents"
    folder.mkdir(exist_ok=True)
    found = Agents(installed.plane, folder)
    yield found
    found.stop()


@pytest.fixture
def jobs(installed: Installed, namespace: str, kwok_nodes: Add) -> Iterator[Jobs]:
    """In a namespace of its own; everything goes while the nodes are still there."""
    del kwok_nodes
    found = Jobs(installed, namespace)
    accounts = f"/api/v1/namespaces/{namespace}/serviceaccounts/default"
    wait_for("the service account", lambda: installed.plane.get(accounts)[0] == 200)
    yield found
    for name in [one["metadata"]["name"] for one in installed.plane.get(found.path)[1]["items"]]:
        found.delete(name)
    wait_for("nothing is left", lambda: not found.pods(), 60.0)


def ids(pod: dict[str, Any]) -> list[str]:
    return [one for one in pod["metadata"]["annotations"].get(marks.GPU_IDS, "").split(",") if one]


def submit(jobs: Jobs, name: str, workers: int = 1, *, placement: dict[str, Any] | None = None, **resources: Any) -> None:
    """A job whose workers ask for GPUs."""
    role = {
        "replicas": {"min": workers, "max": workers},
        "command": ["python", "train.py"],
        "resources": {"cpu": "1", **resources},
        "placement": {"tolerations": ["kwok"], **(placement or {})},
    }
    jobs.submit(name, roles={"worker": role})


def test_a_gpu_that_an_agent_found_is_handed_out_in_the_binding(jobs: Jobs, agents: Agents, kwok_nodes: Add) -> None:
    (node,) = kwok_nodes(1)
    agents.start(node, "2xA100-80GB")
    agents.until(node, count=2, healthy=2, type="A100")
    submit(jobs, "one", gpu="1")
    jobs.runs("one")
    (pod,) = jobs.pods("one")
    known = [gpu["uuid"] for gpu in agents.status(node)["gpus"]]
    assert ids(pod) == known[:1] or ids(pod) == known[1:]
