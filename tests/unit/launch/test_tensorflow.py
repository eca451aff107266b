"""TensorFlow: the cluster as each process sees it."""

from __future__ import annotations

import json

import pytest

from fairway.errors import BugError
from fairway.launch.task_launch import render
from fairway.launch.topology import GangMember, GangTopology, TaskFolders
from fairway.spec.job import JobSpec


def config(process):
    return json.loads(process.env["TF_CONFIG"])


def test_parameter_servers(launch):
    launches = launch({"chief": 1, "ps": 1, "worker": 2, "evaluator": 1}, framework="tensorflow")
    cluster = {"chief": ["127.0.0.1:20000"], "worker": ["127.0.0.1:20020", "127.0.0.1:20030"], "ps": ["127.0.0.1:20010"]}
    assert {name: config(each.processes[0]) for name, each in launches.items()} == {
        "chief-0": {"cluster": cluster, "task": {"type": "chief", "index": 0}},
        "ps-0": {"cluster": cluster, "task": {"type": "ps", "index": 0}},
        "worker-0": {"cluster": cluster, "task": {"type": "worker", "index": 0}},
        "worker-1": {"cluster": cluster, "task": {"type": "worker", "index": 1}},
        "evaluator-0": {"cluster": cluster, "task": {"type": "evaluator", "index": 0}},
    }
    assert launches["ps-0"].processes[0].env["GRPC_FAIL_FAST"] == "use_caller"


def test_workers_only_are_a_mirrored_gang(launch):
    launches = launch({"worker": 2}, framework="tensorflow")
    assert config(launches["worker-1"].processes[0]) == {
        "cluster": {"worker": ["127.0.0.1:20000", "127.0.0.1:20010"]},
        "task": {"type": "worker", "index": 1},
    }


def test_every_process_of_a_task_is_a_worker_with_its_own_port(launch):
    launches = launch({"worker": 2}, members={"worker": {"processes": 2}}, framework="tensorflow")
    found = [config(process) for each in launches.values() for process in each.processes]
    assert [each["task"]["index"] for each in found] == [0, 1, 2, 3]
    assert found[0]["cluster"]["worker"] == ["127.0.0.1:20000", "127.0.0.1:20003", "127.0.0.1:20010", "127.0.0.1:20013"]


def test_too_few_ports_are_the_engines_mistake():
    spec = JobSpec.model_validate({"framework": "tensorflow", "roles": {"worker": {"command": ("x",), "processes": 2}}})
    only = GangMember("worker", 0, "127.0.0.1", (1, 2, 3), processes=2)
    with pytest.raises(BugError, match="worker-0 has 2 processes and 3 ports; the engine must reserve 4"):
        render("j-1", spec, GangTopology("j-1", "default", (only,)), only, TaskFolders("w", "a", "s", "c", "t"))


def test_a_role_that_tensorflow_does_not_know_gets_nothing_and_is_no_part(launch):
    launches = launch({"worker": 1, "loader": 1}, framework="tensorflow")
    assert "TF_CONFIG" not in launches["loader-0"].processes[0].env
    assert set(config(launches["worker-0"].processes[0])["cluster"]) == {"worker"}
