"""TrainingJob objects on a real control plane: operator and scheduler with their own rights, simulated nodes."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from cluster.control_plane import ControlPlane
from cluster.installed import Installed, Jobs
from cluster.process import wait_for

Add = Callable[..., list[str]]


@pytest.fixture(scope="module")
def installed(control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installed]:
    found = Installed(control_plane, tmp_path_factory.mktemp("fairway"))
    found.install()
    found.start("operator")
    found.start("scheduler")
    yield found
    found.stop()


@pytest.fixture
def jobs(installed: Installed, namespace: str, kwok_nodes: Add) -> Iterator[Jobs]:
    """Jobs in a separate namespace; all are deleted while the nodes still exist."""
    del kwok_nodes
    found = Jobs(installed, namespace)
    accounts = f"/api/v1/namespaces/{namespace}/serviceaccounts/default"
    wait_for("the service account", lambda: installed.plane.get(accounts)[0] == 200)
    yield found
    for name in [one["metadata"]["name"] for one in installed.plane.get(found.path)[1]["items"]]:
        found.delete(name)
    wait_for("nothing is left", lambda: not found.pods(), 60.0)


def names(pods: list[dict[str, object]]) -> list[str]:
    return [str(pod["metadata"]["name"]) for pod in pods]  # type: ignore[index]


def test_a_gang_runs_and_succeeds_and_goes_with_its_object(jobs: Jobs, kwok_nodes: Add) -> None:
    kwok_nodes(2, capacity={"cpu": "2"})
    jobs.submit("mnist", workers=3)
    status = jobs.runs("mnist")
    assert (status["ready"], status["attempt"]) == ("3/3", 0)
    for pod in names(jobs.pods("mnist")):
        jobs.annotate(pod, runs_for="10ms")
    status = jobs.until("mnist", "has succeeded", lambda status: status["phase"] == "Succeeded")
    assert status["reason"] == "Completed"
    service = f"/api/v1/namespaces/{jobs.namespace}/services/mnist-run"
    assert jobs.plane.get(service)[0] == 200
    jobs.delete("mnist")
    wait_for("its pods and its Service go", lambda: not jobs.pods("mnist") and jobs.plane.get(service)[0] == 404, 60.0)


def test_a_gang_that_does_not_fit_says_why_and_starts_whole_when_there_is_room(jobs: Jobs, kwok_nodes: Add) -> None:
    kwok_nodes(1, capacity={"cpu": "2"})
    jobs.submit("wide", workers=3)
    status = jobs.until("wide", "says why", lambda status: "start together" in status.get("message", ""))
    assert status["phase"] == "Pending"
    assert not any(pod["spec"].get("nodeName") for pod in jobs.pods("wide"))
    kwok_nodes(1, prefix="more", capacity={"cpu": "2"}, awaited=True)
    assert jobs.runs("wide")["ready"] == "3/3"


def test_a_failure_is_forgiven_once_and_the_gang_starts_again_whole(jobs: Jobs, kwok_nodes: Add) -> None:
    kwok_nodes(1, capacity={"cpu": "4"})
    jobs.submit("flaky", workers=2, restart={"max": 1})
    jobs.runs("flaky")
    jobs.annotate("flaky-worker-1-r0", runs_for="10ms", exit_code="3")
    status = jobs.until("flaky", "runs again", lambda status: (status["phase"], status["attempt"]) == ("Running", 1))
    assert (status["ready"], status["restarts"]) == ("2/2", 1)
    assert {name for name in names(jobs.pods("flaky")) if name.endswith("r1")} == {"flaky-worker-0-r1", "flaky-worker-1-r1"}
    jobs.annotate("flaky-worker-0-r1", runs_for="10ms", exit_code="3")
    status = jobs.until("flaky", "has failed", lambda status: status["phase"] == "Failed")
    assert "all 1 restarts are used up" in status["message"]


def test_a_termination_message_that_cannot_be_is_named_on_its_run_and_stops_no_other(jobs: Jobs, kwok_nodes: Add) -> None:
    kwok_nodes(1, capacity={"cpu": "8"})
    record = '{"task": "worker-0", "rank": 0, "code": %s, "signal": null, "words": "x"}'
    messages = {
        "large": record % 2**70,
        "text": record % '"boom"',
        "nan": record % "NaN",
        "list": record % "[1]",
        "deep": "[" * 2000 + "]" * 2000,
        "junk": "\u0000\ufffd" * 2000,
    }
    for name in messages:
        jobs.submit(name, restart={"max": 0})
    for name, message in messages.items():
        jobs.runs(name)
        state = {"exitCode": 3, "reason": "Error", "message": message}
        task = {"name": "task", "image": "x", "imageID": "", "ready": False, "restartCount": 0, "state": {"terminated": state}}
        path = f"/api/v1/namespaces/{jobs.namespace}/pods/{name}-worker-0-r0/status"
        body = {"status": {"phase": "Failed", "containerStatuses": [task]}}
        status, answer = jobs.plane.request("PATCH", path, body, "application/merge-patch+json")
        assert status == 200, answer
    for name in messages:
        said = jobs.until(name, "has failed", lambda status: status["phase"] == "Failed")["message"]
        damaged = "its termination message is damaged: code is " in said and "the exit code 3 of its container counts" in said
        assert damaged == (name in ("large", "text", "nan", "list")), said
        assert damaged or "exited with 3" in said
    # Other jobs start and end, and finished ones can be deleted.
    jobs.submit("other")
    jobs.runs("other")
    jobs.annotate("other-worker-0-r0", runs_for="10ms")
    jobs.until("other", "has succeeded", lambda status: status["phase"] == "Succeeded")
    jobs.delete("large")
    wait_for("its pod goes", lambda: not jobs.pods("large"), 60.0)


def test_a_refusal_by_the_kubelet_costs_no_restart(jobs: Jobs, kwok_nodes: Add) -> None:
    # More than a node of another test has: a node that is being deleted could still be chosen.
    jobs.submit("unlucky", cpu="5", restart={"max": 0})
    wait_for("its pod", lambda: names(jobs.pods("unlucky")) == ["unlucky-worker-0-r0"])
    jobs.annotate("unlucky-worker-0-r0", refused="OutOfcpu")
    kwok_nodes(1, capacity={"cpu": "6"}, awaited=True)
    status = jobs.until("unlucky", "runs again", lambda status: (status["phase"], status["attempt"]) == ("Running", 1))
    assert status["restarts"] == 0


def test_the_more_urgent_job_makes_the_other_save_leave_and_wait(jobs: Jobs, kwok_nodes: Add) -> None:
    kwok_nodes(1, capacity={"cpu": "2"})
    jobs.submit("low", cpu="2")
    jobs.runs("low")
    jobs.submit("high", cpu="2", priority=100)
    assert jobs.runs("high")["restarts"] == 0
    status = jobs.until("low", "waits again", lambda status: (status["phase"], status["attempt"]) == ("Pending", 1))
    assert status["restarts"] == 0
    jobs.delete("high")
    assert jobs.runs("low")["attempt"] == 1


def test_a_suspended_job_is_held_stopped_and_goes_on(jobs: Jobs, kwok_nodes: Add) -> None:
    kwok_nodes(1, capacity={"cpu": "4"})
    jobs.submit("held", suspend=True)
    jobs.until("held", "is held", lambda status: status.get("reason") == "Suspended")
    assert jobs.pods("held") == []
    jobs.patch("held", suspend=False)
    jobs.runs("held")
    jobs.patch("held", suspend=True)
    jobs.until("held", "has stopped", lambda status: status["phase"] == "Stopped")
    jobs.patch("held", suspend=False)
    assert jobs.until("held", "runs", lambda status: status["phase"] == "Running")["attempt"] == 1


HOSTILE = {
    "folder": ({"volumes": [{"name": "x", "hostPath": {"path": "/etc"}}]}, "hostPath: '/etc' is not allowed on this cluster"),
    "account": ({"serviceAccountName": "fairway-operator"}, "'fairway-operator' is not allowed on this cluster"),
    "token": (
        {"volumes": [{"name": "x", "projected": {"sources": [{"serviceAccountToken": {"path": "t"}}]}}]},
        "'serviceAccountToken' is not allowed on this cluster",
    ),
    "runs": ({"containers": [{"name": "task", "volumeMounts": [{"name": "run", "mountPath": "/all"}]}]}, "'run' is not a volume"),
    "node": ({"nodeName": "fake-0"}, "every pod passes through the queue"),
    "scheduler": ({"schedulerName": "default-scheduler"}, "the administrator chooses the scheduler"),
    "class": ({"priorityClassName": "system-node-critical"}, "'system-node-critical' is not allowed on this cluster"),
    "words": ({"containers": "task"}, "containers: is not a list"),
}


def test_hostile_documents_are_refused_in_words(jobs: Jobs) -> None:
    for name, (pod, _) in HOSTILE.items():
        jobs.submit(name, kubernetes={"pod": pod})
    for name, (_, words) in HOSTILE.items():
        status = jobs.until(name, "has failed", lambda status: status.get("phase") == "Failed")
        assert words in status["message"]
        assert jobs.pods(name) == []


def test_a_pod_that_somebody_deletes_is_made_again_and_costs_nothing(jobs: Jobs, kwok_nodes: Add) -> None:
    kwok_nodes(1, capacity={"cpu": "4"})
    jobs.submit("robbed", restart={"max": 0})
    jobs.runs("robbed")
    jobs.plane.request("DELETE", f"/api/v1/namespaces/{jobs.namespace}/pods/robbed-worker-0-r0")
    status = jobs.until("robbed", "runs again", lambda status: (status["phase"], status["attempt"]) == ("Running", 1))
    assert status["restarts"] == 0


@pytest.mark.parametrize("process", ["operator", "scheduler"])
def test_a_process_that_is_killed_goes_on_where_it_was(installed: Installed, jobs: Jobs, kwok_nodes: Add, process: str) -> None:
    kwok_nodes(1, capacity={"cpu": "4"})
    jobs.submit("steady", workers=2)
    jobs.runs("steady")
    before = [(pod["metadata"]["name"], pod["metadata"]["uid"]) for pod in jobs.pods("steady")]
    installed.kill(process)
    jobs.submit("later")
    installed.start(process)
    jobs.runs("later")
    assert [(pod["metadata"]["name"], pod["metadata"]["uid"]) for pod in jobs.pods("steady")] == before
    assert jobs.status("steady")["attempt"] == 0
