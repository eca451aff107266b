"""The default framework: all variables together."""

from __future__ import annotations

import json

import pytest

from fairway.state.launcher import LIGHTNING


def test_all_three_together(launch):
    env = launch({"worker": 2})["worker-1"].processes[0].env
    assert (env["RANK"], env["MASTER_PORT"]) == ("1", "20001")
    assert (env["JAX_PROCESS_ID"], env["JAX_COORDINATOR_ADDRESS"]) == ("1", "127.0.0.1:20002")
    assert json.loads(env["TF_CONFIG"])["task"] == {"type": "worker", "index": 1}


def test_parameter_servers_get_their_config_and_no_rank(launch):
    env = launch({"ps": 1, "worker": 2})["ps-0"].processes[0].env
    assert json.loads(env["TF_CONFIG"])["task"] == {"type": "ps", "index": 0}
    assert not {"RANK", "JAX_PROCESS_ID"} & set(env)


def test_several_processes_a_task_leave_tensorflow_out(launch):
    env = launch({"worker": 1}, members={"worker": {"processes": 2}})["worker-0"].processes[1].env
    assert env["RANK"] == "1"
    assert "TF_CONFIG" not in env


def test_one_worker_gets_the_same_variables_as_many(launch):
    one = launch({"worker": 1})["worker-0"].processes[0].env
    many = launch({"worker": 2})["worker-0"].processes[0].env
    assert set(many) - set(one) <= {"ACCELERATE_USE_CPU", "OMP_NUM_THREADS"}  # these matter only for several ranks on one machine
    assert (one["RANK"], one["WORLD_SIZE"], one["LOCAL_RANK"], one["LOCAL_WORLD_SIZE"]) == ("0", "1", "0", "1")
    assert (one["JAX_NUM_PROCESSES"], one["JAX_COORDINATOR_ADDRESS"]) == ("1", "127.0.0.1:20002")
    assert json.loads(one["TF_CONFIG"]) == {"cluster": {"worker": ["127.0.0.1:20000"]}, "task": {"type": "worker", "index": 0}}
    assert (one["DMLC_NUM_WORKER"], one["DMLC_TASK_ID"]) == ("1", "0")


@pytest.mark.parametrize(
    ("members", "starters"),
    [({}, {"worker": LIGHTNING}), ({"worker": {"devices": ("GPU-a", "GPU-b")}}, {})],
    ids=["lightning", "one process with two GPUs"],
)
def test_alone_a_program_may_start_ranks_by_itself(launch, members, starters):
    env = launch({"worker": 1}, members=members, starters=starters)["worker-0"].processes[0].env
    assert (env["RANK"], env["WORLD_SIZE"]) == ("0", "1")
    assert not {"LOCAL_RANK", "TORCHELASTIC_RUN_ID", "TF_CONFIG", "OMPI_COMM_WORLD_SIZE"} & set(env)


def test_lightning_with_peers_is_one_of_them(launch):
    env = launch({"worker": 2}, starters={"worker": LIGHTNING})["worker-1"].processes[0].env
    assert (env["RANK"], env["TORCHELASTIC_RUN_ID"]) == ("1", "mnist-7")
    # Lightning treats a worker as a node: `Trainer(num_nodes=2, devices=1)` has one device.
    assert (env["LOCAL_RANK"], env["GROUP_RANK"]) == ("0", "1")


def test_roles_of_mxnet_are_known_by_default(launch):
    launches = launch({"scheduler": 1, "server": 1, "worker": 2})
    env = launches["server-0"].processes[0].env
    assert (env["DMLC_ROLE"], env["DMLC_PS_ROOT_PORT"], env["DMLC_NUM_WORKER"]) == ("server", "20000", "2")
    assert "DMLC_TRACKER_URI" not in launches["worker-0"].processes[0].env


def test_workers_of_xgboost_find_their_tracker(launch):
    env = launch({"worker": 2})["worker-1"].processes[0].env
    assert {name: env[name] for name in env if name.startswith("DMLC_")} == {
        "DMLC_TRACKER_URI": "127.0.0.1",
        "DMLC_TRACKER_PORT": "20001",
        "DMLC_TASK_ID": "1",
        "DMLC_NUM_WORKER": "2",
    }


def test_the_last_of_an_elastic_gang_still_has_its_rank(launch):
    env = launch({"worker": 1}, roles={"worker": {"replicas": {"min": 1, "max": 4}}})["worker-0"].processes[0].env
    assert (env["LOCAL_RANK"], env["TORCHELASTIC_RUN_ID"]) == ("0", "mnist-7")


def test_torchrun_and_mpirun_are_recognised(launch):
    torchrun = launch({"worker": 2}, roles={"worker": {"command": ("torchrun", "t.py")}})["worker-0"].processes[0].env
    assert torchrun["PET_NNODES"] == "2"
    assert not {"RANK", "TF_CONFIG", "OMPI_COMM_WORLD_RANK"} & set(torchrun)
    mpirun = launch({"worker": 1}, roles={"worker": {"command": ("mpirun", "-n", "2", "python", "t.py")}})["worker-0"]
    assert mpirun.processes[0].env["PRTE_MCA_prte_default_hostfile"] == "/job/attempt/hostfile"
    assert mpirun.files["hostfile"] == "127.0.0.1 slots=1\n"
