"""Faults around operator and scheduler on a cluster: jobs continue, nothing is done twice, and no restart is counted."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator

import pytest
from cluster.control_plane import ControlPlane
from cluster.faulty import FaultyWay
from cluster.installed import SYSTEM, Installed, Jobs
from cluster.keeper import Keeper
from cluster.process import wait_for
from cluster.witness import Witness

pytestmark = pytest.mark.timeout(300)
Add = Callable[..., list[str]]
LEASES = f"/apis/coordination.k8s.io/v1/namespaces/{SYSTEM}/leases"


@pytest.fixture(scope="module")
def installed(control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installed]:
    found = Installed(control_plane, tmp_path_factory.mktemp("fairway"))
    found.install()
    yield found
    found.stop()


@pytest.fixture
def jobs(installed: Installed, namespace: str, kwok_nodes: Add) -> Jobs:
    accounts = f"/api/v1/namespaces/{namespace}/serviceaccounts/default"
    wait_for("the service account", lambda: installed.plane.get(accounts)[0] == 200)
    for process in ("operator", "scheduler"):  # the processes of the previous test are dead
        installed.end_lease(process)
    kwok_nodes(1, capacity={"cpu": "4"})
    return Jobs(installed, namespace, 120.0)


@pytest.fixture
def running(installed: Installed) -> Iterator[None]:
    """Both processes, kept alive."""
    with Keeper(installed, "operator"), Keeper(installed, "scheduler"):
        yield


def uids(jobs: Jobs, run: str) -> dict[str, str]:
    return {pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in jobs.pods(run)}


def leave_nothing(jobs: Jobs) -> None:
    """Delete all jobs while an operator still runs to clean up after them."""
    for name in [one["metadata"]["name"] for one in jobs.plane.get(jobs.path)[1]["items"]]:
        jobs.delete(name)
    wait_for("nothing is left", lambda: not jobs.pods(), 120.0, jobs.what_is_there)


def holder(plane: ControlPlane, process: str) -> str:
    return str(plane.get(f"{LEASES}/fairway-{process}")[1].get("spec", {}).get("holderIdentity", ""))


def test_of_two_operators_that_a_cut_has_parted_one_acts(installed: Installed, jobs: Jobs) -> None:
    plane = installed.plane
    with FaultyWay(plane, "operator") as way, Keeper(installed, "scheduler"), Witness(plane, jobs.namespace, 4) as seen:
        first = installed.start("operator", KUBECONFIG=str(way.kubeconfig))
        jobs.submit("before", workers=2)
        jobs.runs("before")
        before, led = uids(jobs, "before"), holder(plane, "operator")
        way.cut()
        os.kill(first.pid, signal.SIGSTOP)  # and it is stopped, so that it still considers itself the leader when it continues
        second = installed.start("operator")
        jobs.submit("after", workers=2)
        jobs.runs("after")
        assert holder(plane, "operator") != led
        written = len(way.wrote)
        way.mend()
        os.kill(first.pid, signal.SIGCONT)
        assert first.wait(60) != 0, "it must not act beside the other"
        assert way.wrote[written:] == []
        assert second.poll() is None
        assert uids(jobs, "before") == before
        leave_nothing(jobs)
        installed.kill("operator")
    assert seen.wrong == []


def test_what_happened_while_nobody_looked_and_the_past_was_forgotten_is_found(
    installed: Installed, jobs: Jobs, running: None
) -> None:
    """The API server restarts, etcd has compacted the versions that were seen last (410), watches were cut."""
    plane = installed.plane
    jobs.submit("steady", workers=2)
    jobs.submit("ends")
    jobs.runs("steady")
    jobs.runs("ends")
    before = uids(jobs, "steady")
    both = [installed.processes[name].pid for name in ("operator", "scheduler")]
    for pid in both:
        os.kill(pid, signal.SIGSTOP)
    jobs.submit("new")
    jobs.annotate("ends-worker-0-r0", runs_for="1ms")
    pods = f"/api/v1/namespaces/{jobs.namespace}/pods/ends-worker-0-r0"
    wait_for("it ends", lambda: plane.get(pods)[1]["status"]["phase"] == "Succeeded")
    plane.processes.end("kube-apiserver")
    plane.compact()
    plane.start_apiserver()
    for pid in both:
        os.kill(pid, signal.SIGCONT)
    jobs.until("ends", "has succeeded", lambda status: status["phase"] == "Succeeded")
    jobs.runs("new")
    assert uids(jobs, "steady") == before
    assert jobs.status("steady")["attempt"] == 0
    leave_nothing(jobs)


def test_a_storm_of_conflicts_costs_time_and_nothing_else(installed: Installed, jobs: Jobs) -> None:
    plane = installed.plane
    with FaultyWay(plane, "operator") as one, FaultyWay(plane, "scheduler") as other:
        for way in (one, other):
            way.conflicts = lambda number: number < 30 and number % 3 != 2
        with (
            Keeper(installed, "operator", KUBECONFIG=str(one.kubeconfig)),
            Keeper(installed, "scheduler", KUBECONFIG=str(other.kubeconfig)),
            Witness(plane, jobs.namespace, 4) as seen,
        ):
            jobs.submit("stormy", workers=2, restart={"max": 0})
            assert jobs.runs("stormy")["restarts"] == 0
            for pod in jobs.pods("stormy"):
                if pod["status"]["phase"] == "Running":
                    jobs.annotate(pod["metadata"]["name"], runs_for="1ms")
            jobs.until("stormy", "has succeeded", lambda status: status["phase"] == "Succeeded")
            leave_nothing(jobs)
    assert seen.wrong == []


def test_clocks_of_others_decide_nothing(installed: Installed, jobs: Jobs) -> None:
    """A lease that a dead process renewed an hour ago, or an hour ahead: both expire by our own clock."""
    plane = installed.plane
    for process, stamp in (("operator", "2099-01-01T00:00:00.000000Z"), ("scheduler", "2001-01-01T00:00:00.000000Z")):
        spec = {"holderIdentity": "somebody", "leaseDurationSeconds": 3, "renewTime": stamp, "acquireTime": stamp}
        head = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": f"fairway-{process}"}}
        status, answer = plane.request("POST", LEASES, {**head, "spec": spec})
        assert status == 201, answer
    with Keeper(installed, "operator") as operator, Keeper(installed, "scheduler") as scheduler:
        jobs.submit("late")
        jobs.runs("late")
        assert {holder(plane, name) for name in ("operator", "scheduler")}.isdisjoint({"somebody", ""})
        assert (operator.ended, scheduler.ended) == ([], [])
        leave_nothing(jobs)


def test_clocks_of_our_own_that_are_an_hour_wrong_change_nothing(installed: Installed, jobs: Jobs) -> None:
    """The operator is an hour ahead of the cluster, the scheduler an hour behind: a gang preempts, waits, continues and ends."""
    plane = installed.plane
    with (
        Keeper(installed, "operator", CLOCK_IS_WRONG_BY="3600") as operator,
        Keeper(installed, "scheduler", CLOCK_IS_WRONG_BY="-3600") as scheduler,
        Witness(plane, jobs.namespace, 4) as seen,
    ):
        jobs.submit("early", workers=2, restart={"max": 0})
        jobs.runs("early")
        jobs.submit("urgent", workers=4, priority=100, restart={"max": 0})
        jobs.runs("urgent")
        jobs.until("early", "waits", lambda status: status["phase"] == "Pending")
        for name in ("urgent", "early"):
            jobs.runs(name)
            for pod in jobs.pods(name):
                if pod["status"]["phase"] == "Running":
                    jobs.annotate(pod["metadata"]["name"], runs_for="1ms")
            jobs.until(name, "has succeeded", lambda status: status["phase"] == "Succeeded")
        assert [jobs.status(name)["restarts"] for name in ("early", "urgent")] == [0, 0]
        assert (operator.ended, scheduler.ended) == ([], [])
        leave_nothing(jobs)
    assert seen.wrong == []


def test_a_pod_that_others_evict_starts_its_gang_again_for_nothing(jobs: Jobs, running: None) -> None:
    jobs.submit("robbed", workers=2, restart={"max": 0})
    jobs.runs("robbed")
    name = "robbed-worker-1-r0"
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name, "namespace": jobs.namespace}}
    path = f"/api/v1/namespaces/{jobs.namespace}/pods/{name}/eviction"
    status, answer = jobs.plane.request("POST", path, body)
    assert status == 201, answer
    status = jobs.until("robbed", "runs again", lambda status: (status["phase"], status["attempt"]) == ("Running", 1))
    assert status["restarts"] == 0
    leave_nothing(jobs)


def test_a_namespace_that_is_deleted_under_a_job_goes_with_everything_in_it(jobs: Jobs, running: None) -> None:
    jobs.submit("doomed", workers=2)
    jobs.runs("doomed")
    path = f"/api/v1/namespaces/{jobs.namespace}"
    jobs.plane.request("DELETE", path)
    wait_for("the namespace goes", lambda: jobs.plane.get(path)[0] == 404, 120.0, lambda: str(jobs.plane.get(path)[1]))
    logs = jobs.installed.folder / "home" / "logs" / jobs.namespace
    wait_for("its record goes", lambda: not logs.exists() or not any(logs.iterdir()))
