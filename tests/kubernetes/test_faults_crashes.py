"""Operator and scheduler crash with SIGKILL before and after every write; their successor finds everything and continues.

Their writes are read from the API server's audit log, so that a write that is not among the crash points is noticed.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator

import pytest
from cluster import kwok
from cluster.audit import writes_of
from cluster.control_plane import ControlPlane
from cluster.installed import Installed, Jobs
from cluster.keeper import Keeper
from cluster.points import AT_ITS_END, OPERATOR_OF_JOBS, SCHEDULER_OF_JOBS, STORIES, as_seen, places
from cluster.process import wait_for
from cluster.witness import Witness

MOST_STORIES = 8
PATIENCE = 240.0
"""Seconds for a step of the story, in which each process may crash and restart a dozen times."""
CORES = 2


@pytest.fixture
def installed(own_control_plane: Callable[..., ControlPlane], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installed]:
    found = Installed(own_control_plane(), tmp_path_factory.mktemp("fairway"))
    found.install()
    yield found
    found.stop()


@pytest.fixture
def jobs(installed: Installed) -> Jobs:
    plane = installed.plane
    plane.request("POST", "/api/v1/namespaces", {"metadata": {"name": "crashes"}})
    wait_for("its account", lambda: plane.get("/api/v1/namespaces/crashes/serviceaccounts/default")[0] == 200)
    kwok.add_nodes(plane, 2, capacity={"cpu": str(CORES)})
    refuse_to_bind_the_second_of_broken_gangs(plane)
    return Jobs(installed, "crashes", PATIENCE)


def refuse_to_bind_the_second_of_broken_gangs(plane: ControlPlane) -> None:
    """Deny a binding, so that gangs are bound in part and must be rolled back."""
    root = "/apis/admissionregistration.k8s.io/v1"
    head = {"apiVersion": "admissionregistration.k8s.io/v1", "metadata": {"name": "half"}}
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods/binding"]}
    holds = "!(object.metadata.name.startsWith('broken') && object.metadata.name.endsWith('-1-r0'))"
    spec = {"matchConstraints": {"resourceRules": [rule]}, "validations": [{"expression": holds}]}
    policy = {**head, "kind": "ValidatingAdmissionPolicy", "spec": spec}
    plane.apply(policy, f"{root}/validatingadmissionpolicies/half")
    binding = {**head, "kind": "ValidatingAdmissionPolicyBinding", "spec": {"policyName": "half", "validationActions": ["Deny"]}}
    plane.apply(binding, f"{root}/validatingadmissionpolicybindings/half")


def stranger(jobs: Jobs, name: str) -> None:
    """Create a pod that does not belong to Fairway, placed by our scheduler."""
    need = {"requests": {"cpu": "1"}}
    container = {"name": "main", "image": "none", "resources": need}
    spec = {"schedulerName": "fairway", "containers": [container], "tolerations": [{"operator": "Exists"}]}
    path = f"/api/v1/namespaces/{jobs.namespace}/pods"
    status, answer = jobs.plane.request("POST", path, {"metadata": {"name": name}, "spec": spec})
    assert status == 201, answer
    wait_for(
        "the stranger to run",
        lambda: jobs.plane.get(f"{path}/{name}")[1]["status"]["phase"] == "Running",
        PATIENCE,
        jobs.what_is_there,
    )


def finish(jobs: Jobs, name: str) -> None:
    """Let its pods succeed, however often it restarts meanwhile."""

    def over() -> bool:
        for pod in jobs.pods(name):
            if pod["status"]["phase"] == "Running" and not pod["metadata"].get("deletionTimestamp"):
                jobs.annotate(pod["metadata"]["name"], runs_for="1ms")
        return jobs.status(name)["phase"] == "Succeeded"

    wait_for(f"{name} has succeeded", over, PATIENCE, lambda: jobs.why_not(name))


def story(jobs: Jobs, number: int) -> None:
    """Play a day on a cluster: gangs start, are rolled back, preempt, wait, end, are deleted."""
    gang, broken, urgent = (f"{name}-{number}" for name in ("gang", "broken", "urgent"))
    for name in (broken, gang):
        jobs.submit(name, workers=2, restart={"max": 0})
        jobs.runs(name)
        if name == broken:
            finish(jobs, name)
    stranger(jobs, f"stranger-{number}")
    jobs.submit(urgent, workers=4, priority=100, restart={"max": 0})
    jobs.runs(urgent)
    jobs.until(gang, "waits", lambda status: status["phase"] == "Pending")
    finish(jobs, urgent)
    jobs.runs(gang)
    assert jobs.status(gang)["attempt"] >= 1
    finish(jobs, gang)
    assert [jobs.status(name)["restarts"] for name in (gang, broken, urgent)] == [0, 0, 0]
    for name in (gang, broken, urgent):
        jobs.delete(name)
    services = f"/api/v1/namespaces/{jobs.namespace}/services"
    wait_for(
        "everything goes", lambda: not jobs.pods() and not jobs.plane.get(services)[1]["items"], PATIENCE, jobs.what_is_there
    )


@pytest.mark.timeout(600)
def test_nothing_is_lost_and_nothing_twice_wherever_operator_and_scheduler_die(installed: Installed, jobs: Jobs) -> None:
    endpoint = {"FAIRWAY_OPERATOR_ENDPOINT": "http://nobody"}
    with (
        Keeper(installed, "operator", places(OPERATOR_OF_JOBS), **endpoint) as operator,
        Keeper(installed, "scheduler", places(SCHEDULER_OF_JOBS)) as scheduler,
        Witness(installed.plane, jobs.namespace, CORES) as seen,
    ):
        for number in range(MOST_STORIES):
            story(jobs, number)
            if not operator.left and not scheduler.left:
                break
    assert seen.wrong == []
    assert (operator.left, scheduler.left) == ([], []), "nothing reaches these"
    assert (operator.ended, scheduler.ended) == ([], []), "they end only where they are told to"
    with Keeper(installed, "operator"):
        for number, place in enumerate(places((AT_ITS_END,))):
            assert die_at_its_end(installed, jobs, f"last-{number}", place) == -signal.SIGKILL
        with Keeper(installed, "scheduler"):
            jobs.submit("last")
            jobs.runs("last")
    for process, points in (("operator", OPERATOR_OF_JOBS), ("scheduler", (*SCHEDULER_OF_JOBS, AT_ITS_END))):
        # Leftovers of a crashed process may be removed by a write of the other story.
        assert as_seen(points) <= writes_of(installed.plane.folder, process) <= as_seen(STORIES[process]), process


def die_at_its_end(installed: Installed, jobs: Jobs, name: str, place: str) -> int:
    """Stop a scheduler that has state to save, which crashes at that write; return its exit code."""
    process = installed.start("scheduler", FAIRWAY_CRASH_AT=place)
    jobs.submit(name)
    jobs.runs(name)
    process.terminate()
    code = process.wait(60)
    installed.end_lease("scheduler")
    return code
