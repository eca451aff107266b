"""Every write of an operator, a scheduler and an agent fails a few times: no process ends, and every write finally succeeds."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from cluster import kwok
from cluster.agents import Agents
from cluster.control_plane import ControlPlane
from cluster.fixtures import skipping_what_is_missing
from cluster.installed import Installed, Jobs
from cluster.nursery import Nursery
from cluster.points import AGENT, AT_ITS_END, OPERATOR_OF_JOBS, STORIES
from cluster.process import wait_for

FAILURES = 2
"""How often a write fails: a first try and its first retry."""
PATIENCE = 120.0


@pytest.fixture(scope="module")
def jobs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Jobs]:
    plane = ControlPlane()
    with skipping_what_is_missing():
        plane.start()
    installed = Installed(plane, tmp_path_factory.mktemp("fairway"))
    try:
        installed.install()
        plane.request("POST", "/api/v1/namespaces", {"metadata": {"name": "faults"}})
        wait_for("its account", lambda: plane.get("/api/v1/namespaces/faults/serviceaccounts/default")[0] == 200)
        kwok.add_nodes(plane, 2, capacity={"cpu": "4"})
        refuse_to_bind_the_second_of_broken_gangs(plane)
        yield Jobs(installed, "faults", PATIENCE)
    finally:
        installed.stop()
        plane.stop()


def finish(jobs: Jobs, name: str) -> None:
    """Let the pods of a run succeed."""

    def over() -> bool:
        for pod in jobs.pods(name):
            if pod["status"]["phase"] == "Running" and not pod["metadata"].get("deletionTimestamp"):
                jobs.annotate(pod["metadata"]["name"], runs_for="1ms")
        return jobs.status(name).get("phase") == "Succeeded"

    wait_for(f"{name} has succeeded", over, PATIENCE, lambda: jobs.why_not(name))


@pytest.mark.timeout(600)
@pytest.mark.parametrize("point", OPERATOR_OF_JOBS)
def test_a_write_that_fails_is_repeated_and_the_operator_lives(jobs: Jobs, point: str) -> None:
    installed = jobs.installed
    installed.start("scheduler")
    log = installed.folder / "operator.log"
    before = log.read_text().count("injected failure") if log.exists() else 0
    process = installed.start(
        "operator", FAIRWAY_CRASH_AT=f"{point}:fails:{FAILURES}", FAIRWAY_OPERATOR_ENDPOINT="http://127.0.0.1:1"
    )
    name = point.removeprefix("api.").replace("/", "-")
    victim, other = f"{name}-victim", f"{name}-other"
    try:
        for run in (victim, other):
            jobs.submit(run)
        jobs.runs(victim)
        jobs.patch(victim, suspend=True)
        jobs.until(victim, "is stopped", lambda status: status["phase"] == "Stopped")
        finish(jobs, other)
        jobs.delete(victim)
        wait_for("its pods go", lambda: not jobs.pods(victim), PATIENCE, jobs.what_is_there)
        wait_for(f"{point} is reached", lambda: log.read_text().count("injected failure") > before, PATIENCE)
        assert process.poll() is None, "the operator ended"
    finally:
        installed.kill("operator")
        installed.kill("scheduler")


def refuse_to_bind_the_second_of_broken_gangs(plane: ControlPlane) -> None:
    """Deny a binding, so that gangs are bound in part and must be rolled back."""
    root = "/apis/admissionregistration.k8s.io/v1"
    head = {"apiVersion": "admissionregistration.k8s.io/v1", "metadata": {"name": "half"}}
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods/binding"]}
    holds = "!(object.metadata.name.startsWith('broken') && object.metadata.name.endsWith('-1-r0'))"
    spec = {"matchConstraints": {"resourceRules": [rule]}, "validations": [{"expression": holds}]}
    plane.apply({**head, "kind": "ValidatingAdmissionPolicy", "spec": spec}, f"{root}/validatingadmissionpolicies/half")
    binding = {**head, "kind": "ValidatingAdmissionPolicyBinding", "spec": {"policyName": "half", "validationActions": ["Deny"]}}
    plane.apply(binding, f"{root}/validatingadmissionpolicybindings/half")


def starts(jobs: Jobs, name: str) -> None:
    jobs.submit(name)
    jobs.runs(name)
    finish(jobs, name)


def is_taken_back(jobs: Jobs, name: str) -> None:
    """One of its pods is refused: the other is deleted, and the next attempt is bound whole."""
    jobs.submit(f"broken-{name}", workers=2, restart={"max": 0})
    jobs.runs(f"broken-{name}")
    finish(jobs, f"broken-{name}")


def waits(jobs: Jobs, name: str) -> None:
    jobs.submit(name, cpu="100")
    jobs.until(name, "says why it waits", lambda status: "100 CPUs" in str(status))
    jobs.delete(name)


def makes_room(jobs: Jobs, name: str) -> None:
    jobs.submit(f"{name}-low", workers=2, cpu="3", restart={"max": 0})
    jobs.runs(f"{name}-low")
    jobs.submit(name, workers=1, cpu="3", priority=100)
    jobs.runs(name)
    finish(jobs, name)
    jobs.runs(f"{name}-low")
    finish(jobs, f"{name}-low")


def pod(jobs: Jobs, name: str, cpu: str, **more: Any) -> None:
    """Create a pod that does not belong to Fairway, placed by its scheduler."""
    container = {"name": "main", "image": "none", "resources": {"requests": {"cpu": cpu}}}
    spec = {"schedulerName": "fairway", "containers": [container], "tolerations": [{"operator": "Exists"}], **more}
    status, answer = jobs.plane.request(
        "POST", f"/api/v1/namespaces/{jobs.namespace}/pods", {"metadata": {"name": name}, "spec": spec}
    )
    assert status == 201, answer


def pod_runs(jobs: Jobs, name: str) -> None:
    path = f"/api/v1/namespaces/{jobs.namespace}/pods/{name}"
    wait_for(f"{name} runs", lambda: jobs.plane.get(path)[1]["status"]["phase"] == "Running", PATIENCE, jobs.what_is_there)


def evicts(jobs: Jobs, name: str) -> None:
    for number in (0, 1):
        pod(jobs, f"{name}-stranger-{number}", "3")
        pod_runs(jobs, f"{name}-stranger-{number}")
    jobs.submit(name, cpu="3", priority=100)
    jobs.runs(name)
    finish(jobs, name)
    for number in (0, 1):
        jobs.plane.request("DELETE", f"/api/v1/namespaces/{jobs.namespace}/pods/{name}-stranger-{number}")


def describes_a_queue(jobs: Jobs, name: str) -> None:
    path = "/apis/fairway.dev/v1alpha1/jobqueues"
    head = {"apiVersion": "fairway.dev/v1alpha1", "kind": "JobQueue", "metadata": {"name": name}}
    status, answer = jobs.plane.request("POST", path, {**head, "spec": {"weight": "2"}})
    assert status == 201, answer
    wait_for("the queue says how it stands", lambda: "running" in jobs.plane.get(f"{path}/{name}")[1].get("status", {}), PATIENCE)


def mounts(maker: str) -> Callable[[Jobs, str], None]:
    """Return an act: a pod whose claim waits for its first consumer."""

    def act(jobs: Jobs, name: str) -> None:
        plane, claims = jobs.plane, f"/api/v1/namespaces/{jobs.namespace}/persistentvolumeclaims"
        head = {"metadata": {"name": name}}
        plane.request(
            "POST",
            "/apis/storage.k8s.io/v1/storageclasses",
            {**head, "provisioner": maker, "volumeBindingMode": "WaitForFirstConsumer"},
        )
        size = {"storageClassName": name, "accessModes": ["ReadWriteOnce"]}
        volume = {**head, "spec": {**size, "capacity": {"storage": "1Gi"}, "hostPath": {"path": "/data"}}}
        there = maker == "kubernetes.io/no-provisioner"
        if there:
            assert plane.request("POST", "/api/v1/persistentvolumes", volume)[0] == 201
        asked = {**size, "resources": {"requests": {"storage": "1Gi"}}}
        assert plane.request("POST", claims, {**head, "spec": asked})[0] == 201
        pod(jobs, name, "1", volumes=[{"name": "v", "persistentVolumeClaim": {"claimName": name}}])
        if not there:
            chosen = "volume.kubernetes.io/selected-node"
            annotations = lambda: plane.get(f"{claims}/{name}")[1]["metadata"].get("annotations", {})  # noqa: E731
            wait_for("a node is chosen", lambda: chosen in annotations(), PATIENCE, jobs.what_is_there)
            volume["spec"]["claimRef"] = {"kind": "PersistentVolumeClaim", "namespace": jobs.namespace, "name": name}
            assert plane.request("POST", "/api/v1/persistentvolumes", volume)[0] == 201
        pod_runs(jobs, name)
        plane.request("DELETE", f"/api/v1/namespaces/{jobs.namespace}/pods/{name}")

    return act


ACTS: dict[str, Callable[[Jobs, str], None]] = {
    "api.create/leases": starts,
    "api.replace/leases": starts,
    "api.bind/pods/binding": starts,
    "api.create/events": starts,
    "api.delete/pods": is_taken_back,
    "api.apply/pods/status": waits,
    "api.patch/pods": makes_room,
    "api.evict/pods/eviction": evicts,
    "api.apply/jobqueues/status": describes_a_queue,
    "api.patch/persistentvolumes": mounts("kubernetes.io/no-provisioner"),
    "api.patch/persistentvolumeclaims": mounts("made.example.com"),
}
"""The act that brings a scheduler to each of its writes."""


def test_there_is_an_act_for_every_write_of_the_scheduler() -> None:
    assert {*ACTS, AT_ITS_END} == STORIES["scheduler"]


@pytest.mark.timeout(600)
@pytest.mark.parametrize("point", ACTS)
def test_a_write_that_fails_is_repeated_and_the_scheduler_lives(jobs: Jobs, point: str) -> None:
    installed, log = jobs.installed, jobs.installed.folder / "scheduler.log"
    before = log.read_text().count("injected failure") if log.exists() else 0
    name = f"s-{point.removeprefix('api.').replace('/', '-')}"
    installed.start("operator", FAIRWAY_OPERATOR_ENDPOINT="http://127.0.0.1:1")
    scheduler = installed.start("scheduler", FAIRWAY_CRASH_AT=f"{point}:fails:{FAILURES}")
    try:
        jobs.submit(f"{name}-other")
        jobs.runs(f"{name}-other")
        ACTS[point](jobs, name)
        finish(jobs, f"{name}-other")
        wait_for(
            f"{point} is reached", lambda: log.read_text().count("injected failure") > before, PATIENCE, installed.last_words
        )
        assert scheduler.poll() is None, f"the scheduler ended: {installed.last_words()}"
    finally:
        installed.kill("operator")
        installed.kill("scheduler")


@pytest.mark.timeout(300)
def test_a_scheduler_whose_last_write_fails_ends_as_it_should(jobs: Jobs) -> None:
    installed = jobs.installed
    installed.start("operator", FAIRWAY_OPERATOR_ENDPOINT="http://127.0.0.1:1")
    scheduler = installed.start("scheduler", FAIRWAY_CRASH_AT=f"{AT_ITS_END}:fails")
    try:
        starts(jobs, "last")
        scheduler.terminate()
        assert scheduler.wait(60) == 0, installed.last_words()
        assert f"injected failure at {AT_ITS_END}" in (installed.folder / "scheduler.log").read_text()
    finally:
        installed.kill("operator")
        installed.processes.pop("scheduler", None)
        installed.end_lease("scheduler")


@pytest.fixture
def nursery() -> Iterator[Nursery]:
    found = Nursery()
    yield found
    found.close()


@pytest.mark.timeout(300)
@pytest.mark.parametrize("point", AGENT)
def test_a_write_that_fails_is_repeated_and_the_agent_lives(jobs: Jobs, point: str, tmp_path: Path, nursery: Nursery) -> None:
    """All its GPUs fail and recover: each write happens twice, and the first tries fail."""
    plane, agents = jobs.plane, Agents(jobs.plane, tmp_path)
    (node,) = kwok.add_nodes(plane, 1, prefix=f"gpu-{AGENT.index(point)}")
    agents.gpus(node, "2xT4,sick:0,sick:1")
    log = tmp_path / f"{node}.log"
    told = {**agents.environment(node), "FAIRWAY_CRASH_AT": f"{point}:fails:{FAILURES}"}
    agent = nursery.start("agent", told, log)

    def tainted() -> bool:
        found = plane.get(f"/api/v1/nodes/{node}")[1]["spec"].get("taints", [])
        return any("gpu" in one["key"] for one in found)

    agents.until(node, count=2, healthy=0)
    wait_for("the taint", tainted, PATIENCE, log.read_text)
    agents.gpus(node, "2xT4")
    agents.until(node, count=2, healthy=2, faults=[])
    wait_for("no taint", lambda: not tainted(), PATIENCE, log.read_text)
    assert sum(line.startswith("injected failure") for line in log.read_text().splitlines()) == FAILURES, log.read_text()
    assert agent.poll() is None, "the agent ended"
    kwok.remove_nodes(plane, [node])
