"""The default framework: all variables together."""

from __future__ import annotations

import json


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


def test_alone_a_program_may_start_ranks_by_itself(launch):
    env = launch({"worker": 1})["worker-0"].processes[0].env
    assert (env["RANK"], env["WORLD_SIZE"]) == ("0", "1")
    assert not {"LOCAL_RANK", "TORCHELASTIC_RUN_ID", "TF_CONFIG", "OMPI_COMM_WORLD_SIZE"} & set(env)


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
