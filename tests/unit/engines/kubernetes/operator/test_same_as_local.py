"""A task gets the same in a pod as on one machine, except for addresses and folders: every framework, in every shape."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest

from fairway.engines.kubernetes.operator.installation import FrameworkRuntime
from fairway.engines.kubernetes.operator.manifest import mpi
from fairway.engines.kubernetes.operator.manifest.pod import CODE, INJECTED, RUN, attempt_folder, order
from fairway.engines.kubernetes.operator.pod import name as pod_name
from fairway.launch.task_launch import ADAPTERS, render
from fairway.launch.topology import GangTopology, TaskFolders
from fairway.plan.task_expansion import make_tasks
from fairway.runtime.pod.pod_order import PodOrder
from fairway.spec.job import JobSpec, TrainingFramework
from fairway.state.job import JobKey, JobState, SubmissionOrigin
from fairway.state.task import Task

DOMAIN = "cluster.local"
PYTHON = [
    "python",
    "train.py",
    "--peers",
    "{{worker_hosts}}",
    "--at",
    "{{address}}",
    "--point",
    "{{master_addr}}:{{master_port}}",
]


def role(replicas: int = 1, command: list[str] | None = None, **more: Any) -> dict[str, Any]:
    return {"replicas": {"min": replicas, "max": replicas}, "command": command or PYTHON, **more}


WORKERS = {"worker": role(2)}
SHAPES: dict[str, dict[str, Any]] = {
    "workers": {"roles": WORKERS},
    "one": {"roles": {"worker": role()}},
    "processes": {"roles": {"worker": role(2, processes=2)}},
    "torchrun": {"roles": {"worker": role(2, ["torchrun", "train.py"], processes=2)}},
    "elastic": {"roles": {"worker": {**role(2), "replicas": {"min": 1, "max": 3}}}},
    "script": {"roles": {"worker": {"replicas": {"min": 2, "max": 2}, "script": "python train.py\n"}}},
    "chief": {"roles": {"chief": role(), "worker": role(2), "ps": role(), "evaluator": role()}},
    "servers": {"roles": {"scheduler": role(), "server": role(), "worker": role(2)}},
    "launcher": {"roles": {"launcher": role(1, ["mpirun", *PYTHON]), "worker": role(2, ["sleep", "infinity"], processes=2)}},
    "mpirun": {"roles": {"worker": role(1, ["mpirun", "-n", "{{world_size}}", *PYTHON], processes=3)}},
    "given": {
        "roles": {"worker": role(2, env={"A": "{{rank}}", "OMP_NUM_THREADS": "3"}, resources={"cpu": "4"})},
        "env": {"B": "{{data.train}}", "PYTHONPATH": "lib"},
        "data": {"train": "s3://bucket/train"},
        "outputs": {"model": "mnist"},
        "checkpoint": {"every": "1m", "keep": 7},
    },
}
OF_ONE_MACHINE = {"OMPI_MCA_oob_tcp_if_include", "OMPI_MCA_btl_tcp_if_include"}
"""Variables set only for a gang on loopback."""
OF_A_NODE = re.compile(r"(OMPI_COMM_WORLD_)?LOCAL_(RANK|WORLD_SIZE|SIZE)|GROUP_(RANK|WORLD_SIZE)|FAIRWAY_FIRST_ON_NODE")
"""Variables that are counted per node: on one machine all tasks share the node, while each pod counts as its own."""
OF_SEVERAL = re.compile(r"FAIRWAY_REMOTE_HOSTS|(OMPI|PRTE)_MCA_(plm.*|(orte|prte)_(leave_session_attached|keep_fqdn_hostnames))")
"""Variables set only for a gang on several machines: how MPI reaches the others."""


def gang(framework: str, shape: dict[str, Any]) -> tuple[JobState, tuple[Task, ...], GangTopology]:
    """Return a run as it is on a cluster."""
    spec = JobSpec.model_validate({"framework": framework, **shape})
    job = JobState(JobKey("team", "mnist-7"), "mnist", 7, spec, SubmissionOrigin(spread=True), created=0.0)
    tasks = tuple(make_tasks(job, {name: role.replicas.min for name, role in spec.roles.items()}, 8.0, 0.0))
    return job, tasks, pod_name.topology(job, tasks, DOMAIN)


def on_one_machine(topology: GangTopology) -> GangTopology:
    """Return the same gang on loopback, each port used once."""
    members = [
        replace(member, host="127.0.0.1", ports=tuple(range(30000 + 100 * at, 30000 + 100 * at + len(member.ports))))
        for at, member in enumerate(topology.members)
    ]
    return replace(topology, members=tuple(members))


def plain(text: str, topology: GangTopology, folders: dict[str, str]) -> str:
    """Return the text without addresses and folders; member and port stay in it where they can be identified."""
    for member in topology.members:
        for number, port in enumerate(member.ports):
            text = text.replace(f"{member.host}:{port}", f"<{member.name}:{number}>")
    for member in topology.members:
        text = text.replace(member.host, "<host>")
    for member in topology.members:
        for number, port in enumerate(member.ports):
            text = re.sub(rf"\b{port}\b", f"<port {number}>", text)
    for folder in sorted(folders, key=len, reverse=True):
        text = text.replace(folder, folders[folder])
    return text


def seen(argv: Any, env: dict[str, str], topology: GangTopology, folders: dict[str, str]) -> tuple[list[str], dict[str, str]]:
    apart = [name for name in env if name in OF_ONE_MACHINE or OF_SEVERAL.fullmatch(name) or OF_A_NODE.fullmatch(name)]
    known = {name: value for name, value in env.items() if name not in apart}
    return (
        [plain(word, topology, folders) for word in argv],
        {name: plain(value, topology, folders) for name, value in known.items()},
    )


FOLDERS = TaskFolders(
    work="/home/code",
    attempt="/home/attempt",
    shared="/home/shared",
    checkpoints="/home/checkpoints",
    tensorboard="/home/tensorboard",
    outputs={"model": "/home/outputs/model"},
    data={"train": "s3://bucket/train"},
    runtime="/home/inject",
)
HERE = {
    "/home/code": "<code>",
    "/home/attempt": "<attempt>",
    "/home/inject": "<inject>",
    "/home/": "<run>/",
}


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("framework", [one.value for one in TrainingFramework])
def test_a_pod_gets_what_a_process_gets(framework: str, shape: str) -> None:
    job, tasks, there = gang(framework, SHAPES[shape])
    here = on_one_machine(there)
    local = replace(FOLDERS, outputs=FOLDERS.outputs if job.spec.outputs else {}, data=dict(job.spec.data))
    for task, member in zip(tasks, here.members, strict=True):
        told = order(job, task, there, dict(job.spec.data), mpi.agent(job, FrameworkRuntime("x"), INJECTED))
        launch = render(job.key.name, job.spec, here, member, local)
        pods = {CODE: "<code>", attempt_folder(task.key): "<attempt>", INJECTED: "<inject>", f"{RUN}/": "<run>/"}
        assert [seen(start.argv, start.env, there, pods) for start in told.starts] == [
            seen(process.argv, process.env, here, HERE) for process in launch.processes
        ]
        assert [start.gives_way - OF_ONE_MACHINE for start in told.starts] == [
            process.gives_way - OF_ONE_MACHINE for process in launch.processes
        ]
        assert set(told.files) == set(launch.files)
        if "hostfile" not in told.files or shape != "launcher":
            continue
        assert told.files["hostfile"] == "".join(f"{one.host} slots={one.slots}\n" for one in there.role("worker"))
    assert {TrainingFramework(framework)} <= set(ADAPTERS)


@pytest.mark.parametrize("framework", [one.value for one in TrainingFramework])
def test_only_pods_of_mpi_listen(framework: str) -> None:
    job, tasks, topology = gang(framework, SHAPES["workers"])
    told = order(job, tasks[1], topology, {})
    assert (told.remote is not None) is (framework == "mpi")
    assert PodOrder.decode(told.encode()).encode() == told.encode()


def orders(shape: str) -> dict[str, PodOrder]:
    job, tasks, topology = gang("mpi", SHAPES[shape])
    agent = mpi.agent(job, FrameworkRuntime("x", python="/opt/python3"), INJECTED)
    return {task.key.task: order(job, task, topology, {}, agent) for task in tasks}


def test_the_first_worker_starts_all_ranks_and_the_others_wait_for_them() -> None:
    first, other = orders("workers").values()
    assert first.starts[0].argv[:4] == ["mpiexec", "-n", "2", "python"]
    assert other.starts[0].argv == []
    assert other.starts[0].env["FAIRWAY_TASK"] == "worker-1", "its ranks are its own, whoever starts them"
    env = first.starts[0].env
    host = "mnist-7-worker-{}.mnist-7-run.team.svc.cluster.local"
    assert env["FAIRWAY_REMOTE_HOSTS"] == f'{{"{host.format(0)}":20001,"{host.format(1)}":20001}}'
    agent = "/opt/python3 /fairway/inject/fairway/runtime/pod/remote_agent.py"
    assert env["OMPI_MCA_plm_rsh_agent"] == env["PRTE_MCA_plm_ssh_agent"] == agent
    assert "FAIRWAY_REMOTE_HOSTS" not in other.starts[0].env
    assert first.files == {"hostfile": f"{host.format(0)} slots=1\n{host.format(1)} slots=1\n"}


def test_the_first_rank_speaks_for_the_task_that_speaks_for_the_run() -> None:
    speaks = {name: (order.remote.task, order.remote.ranks) for name, order in orders("launcher").items() if order.remote}
    assert speaks == {"launcher-0": ("launcher-0", 1), "worker-0": ("launcher-0", 2), "worker-1": ("worker-1", 2)}
    assert [order.remote.task for order in orders("workers").values() if order.remote] == ["worker-0", "worker-1"]


def test_ranks_that_stayed_in_one_pod_are_noticed_where_we_wrote_the_call() -> None:
    host = "mnist-7-worker-1.mnist-7-run.team.svc.cluster.local"
    must = {name: order.remote.must_reach for name, order in orders("workers").items() if order.remote}
    assert must == {"worker-0": [host], "worker-1": []}
    for shape in ("launcher", "mpirun"):
        assert not any(order.remote.must_reach for order in orders(shape).values() if order.remote)
