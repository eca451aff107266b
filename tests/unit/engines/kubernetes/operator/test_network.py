"""The network of pods: the node's or their own, ports that never clash, and what only a network policy provides."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairway.engines.kubernetes.operator.installation import DocumentPermissions, FrameworkRuntime, InstallationSettings
from fairway.engines.kubernetes.operator.manifest import network
from fairway.engines.kubernetes.operator.manifest.pod import pod
from fairway.engines.kubernetes.operator.pod import name as pod_name
from fairway.engines.kubernetes.operator.pod import port as pod_port
from fairway.plan.task_expansion import make_tasks
from fairway.spec.job import JobSpec
from fairway.state.job import JobKey, JobState, SubmissionOrigin

ALLOWED = DocumentPermissions(host_network=True, capabilities=("IPC_LOCK",))


def job(name: str = "net-1", roles: dict[str, Any] | None = None, **wish: Any) -> JobState:
    worker = {"replicas": {"min": 2, "max": 2}, "command": ["python", "train.py"]}
    plain = {"framework": "pytorch", "roles": roles or {"worker": worker}, "kubernetes": {"network": wish}}
    return JobState(JobKey("team", name), "net", 1, JobSpec.model_validate(plain), SubmissionOrigin(), created=0.0)


def pods(run: JobState) -> list[dict[str, Any]]:
    tasks = tuple(make_tasks(run, {name: role.replicas.max for name, role in run.spec.roles.items()}, 8.0, 0.0))
    topology = pod_name.topology(run, tasks, "cluster.local")
    return [pod(run, task, topology, InstallationSettings(image="fairway:1"), FrameworkRuntime("torch:2")) for task in tasks]


def test_a_pod_has_a_network_of_its_own_unless_its_document_says_otherwise() -> None:
    (first, second) = pods(job())
    for body in (first, second):
        (task,) = body["spec"]["containers"]
        assert "hostNetwork" not in body["spec"]
        assert "ports" not in task
        assert "add" not in task["securityContext"]["capabilities"]
        assert not set(network.INTERFACES) & {one["name"] for one in task["env"]}
    assert network.refusals(job(), DocumentPermissions()) == []


def test_on_the_nodes_network_names_are_asked_of_the_cluster_and_ports_are_declared() -> None:
    first, second = pods(job(host=True))
    assert (first["spec"]["hostNetwork"], first["spec"]["dnsPolicy"]) == (True, "ClusterFirstWithHostNet")
    taken = [[port["hostPort"] for port in body["spec"]["containers"][0]["ports"]] for body in (first, second)]
    assert [len(each) for each in taken] == [3, 3]
    assert not set(taken[0]) & set(taken[1]), "both may lie on one node"
    again, _ = pods(job(host=True))
    assert again["spec"]["containers"][0]["ports"] == first["spec"]["containers"][0]["ports"], "the same at every attempt"


def test_the_interface_is_told_to_all_that_ask_and_rdma_may_lock_memory() -> None:
    body, _ = pods(job(interface="eth1", rdma=True))
    (task,) = body["spec"]["containers"]
    told = {one["name"]: one.get("value") for one in task["env"]}
    assert [told[name] for name in network.INTERFACES] == ["eth1"] * len(network.INTERFACES)
    assert task["securityContext"] == {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"], "add": ["IPC_LOCK"]}}


def test_what_no_administrator_allowed_is_refused() -> None:
    greedy = job(host=True, rdma=True)
    host, capability = network.refusals(greedy, DocumentPermissions())
    assert "hostNetwork: True is not allowed on this cluster" in host
    assert "'IPC_LOCK' is not allowed on this cluster" in capability
    assert network.refusals(greedy, ALLOWED) == []


def test_a_run_that_needs_more_ports_than_a_node_has_is_refused() -> None:
    wide = {"worker": {"replicas": {"min": 5000, "max": 5000}, "command": ["a"]}}
    (refusal,) = network.refusals(job(roles=wide, host=True), ALLOWED)
    assert refusal.startswith("kubernetes.network.host: the run needs 15000 ports of a node, and there are 12767")
    assert network.refusals(job(roles=wide), ALLOWED) == []


@given(
    st.text("abcdefgh", min_size=1, max_size=8),
    st.lists(st.tuples(st.integers(1, 40), st.integers(0, 8)), min_size=1, max_size=4),
)
def test_ports_on_a_node_are_each_taken_once_and_lie_where_nobody_else_takes_any(name: str, sizes: list[tuple[int, int]]) -> None:
    roles = {
        f"role-{number}": {"replicas": {"min": count, "max": count}, "processes": processes, "command": ["a"]}
        for number, (count, processes) in enumerate(sizes)
    }
    run = job(name, roles, host=True)
    tasks = make_tasks(run, {role: run.spec.roles[role].replicas.max for role in roles}, 8.0, 0.0)
    taken = [port for task in tasks for port in pod_port.ports_of(run, task)]
    assert len(taken) == len(set(taken))
    assert min(taken) >= pod_port.FIRST
    assert max(taken) <= pod_port.LAST


@pytest.mark.parametrize("wish", ["eth0; rm", "a b", "$(x)"])
def test_an_interface_is_a_name(wish: str) -> None:
    with pytest.raises(ValueError, match="interface"):
        job(interface=wish)
