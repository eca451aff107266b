"""PyTorch: rank variables, torchrun's variables, and the flags of accelerate."""

from __future__ import annotations

import pytest

CPU_FLAGS = ("accelerate", "launch", "--cpu", "train.py")


def test_rank_variables_of_a_gang(launch):
    launches = launch({"worker": 2}, members={"worker": {"processes": 2}}, attempt=1, framework="pytorch", restart={"max": 5})
    last = launches["worker-1"].processes[1].env
    wanted = {
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": "20001",
        "RANK": "3",
        "WORLD_SIZE": "4",
        "LOCAL_RANK": "3",
        "LOCAL_WORLD_SIZE": "4",
        "GROUP_RANK": "0",
        "GROUP_WORLD_SIZE": "1",
        "TORCHELASTIC_RUN_ID": "mnist-7",
        "TORCHELASTIC_RESTART_COUNT": "1",
        "TORCHELASTIC_MAX_RESTARTS": "5",
        "TORCHELASTIC_USE_AGENT_STORE": "False",
        "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1",
    }
    assert {name: last.get(name) for name in wanted} == wanted
    # A launcher that the process starts itself sees as many nodes as there are processes.
    assert (last["PET_NNODES"], last["PET_NODE_RANK"], last["PET_NPROC_PER_NODE"]) == ("4", "3", "1")
    assert (last["PET_MASTER_PORT"], last["PET_RDZV_BACKEND"]) == ("20001", "static")


@pytest.mark.parametrize("framework", ["auto", "pytorch"])
def test_a_launcher_that_a_script_calls_joins(launch, framework):
    """The task is started once per worker, with the worker's ranks; other commands of the script get a rank too."""
    launches = launch(
        {"worker": 2},
        members={"worker": {"processes": 1, "slots": 2}},
        roles={"worker": {"command": ("bash", "train.sh")}},
        starters={"worker": "torchrun"},
        framework=framework,
    )
    (only,) = launches["worker-1"].processes
    wanted = {"PET_NNODES": "2", "PET_NODE_RANK": "1", "PET_NPROC_PER_NODE": "2", "RANK": "2", "WORLD_SIZE": "4"}
    assert {name: only.env[name] for name in wanted} == wanted
    assert not [name for name in only.env if name.startswith("TORCHELASTIC_") and name != "TORCHELASTIC_ERROR_FILE"]


def test_deepspeed_gets_a_port_of_its_own(launch):
    def argv(*words):
        return launch({"worker": 1}, roles={"worker": {"command": ("deepspeed", *words)}})["worker-0"].processes[0].argv

    assert argv("train.py", "--lr", "1") == ("deepspeed", "--master_port", "20001", "train.py", "--lr", "1")
    assert argv("--master_port=4", "train.py") == ("deepspeed", "--master_port=4", "train.py")


def test_ranks_are_distinct_and_cover_the_world(launch):
    launches = launch({"master": 1, "worker": 3}, members={"worker": {"processes": 2}}, framework="pytorch")
    processes = [process for each in launches.values() for process in each.processes]
    assert sorted(int(process.env["RANK"]) for process in processes) == list(range(7))
    assert {process.env["WORLD_SIZE"] for process in processes} == {"7"}
    assert {process.env["MASTER_PORT"] for process in processes} == {"20001"}


def test_a_role_without_ranks_gets_none(launch):
    env = launch({"worker": 2, "evaluator": 1}, framework="pytorch")["evaluator-0"].processes[0].env
    assert "RANK" not in env
    assert "MASTER_ADDR" not in env


def test_torchrun_forms_a_static_gang_and_leaves_restarts_to_the_engine(launch):
    made = launch(
        {"worker": 2},
        members={"worker": {"slots": 2}},
        attempt=1,
        framework="pytorch",
        roles={"worker": {"command": ("torchrun", "train.py"), "processes": 2}},
    )["worker-1"]
    (only,) = made.processes
    assert only.argv == ("torchrun", "train.py")
    assert {name: value for name, value in only.env.items() if name.startswith("PET_")} == {
        "PET_NPROC_PER_NODE": "2",
        "PET_RDZV_ID": "mnist-7-1",
        "PET_LOCAL_ADDR": "127.0.0.1",
        "PET_NNODES": "2",
        "PET_NODE_RANK": "1",
        "PET_RDZV_BACKEND": "static",
        "PET_MASTER_ADDR": "127.0.0.1",
        "PET_MASTER_PORT": "20001",
        "PET_MAX_RESTARTS": "0",
    }
    assert "RANK" not in only.env
    assert (only.env["FAIRWAY_RANK"], only.env["FAIRWAY_WORLD_SIZE"]) == ("2", "4")


def test_elastic_torchrun_meets_by_c10d_and_may_shrink(launch):
    made = launch(
        {"worker": 3},
        framework="pytorch",
        restart={"max": 4, "scope": "shrink"},
        roles={"worker": {"command": ("torchrun", "train.py"), "replicas": {"min": 2, "max": 5}}},
    )["worker-2"]
    assert {name: value for name, value in made.processes[0].env.items() if name.startswith("PET_")} == {
        "PET_NPROC_PER_NODE": "1",
        "PET_RDZV_ID": "mnist-7-0",
        "PET_LOCAL_ADDR": "127.0.0.1",
        "PET_NNODES": "2:3",
        "PET_RDZV_BACKEND": "c10d",
        "PET_RDZV_ENDPOINT": "127.0.0.1:20001",
        "PET_RDZV_CONF": "last_call_timeout=5",
        "PET_MAX_RESTARTS": "4",
    }


def test_a_role_that_may_grow_but_restarts_whole_stays_static(launch):
    roles = {"worker": {"command": ("torchrun", "train.py"), "replicas": {"min": 1, "max": 5}}}
    env = launch({"worker": 2}, framework="pytorch", roles=roles)["worker-0"].processes[0].env
    assert (env["PET_RDZV_BACKEND"], env["PET_NNODES"]) == ("static", "2")


def test_torchrun_in_a_script_is_started_once(launch):
    roles = {"worker": {"command": (), "script": "cd src\ntorchrun train.py\n", "processes": 2}}
    made = launch({"worker": 1}, members={"worker": {"processes": 2, "slots": 2}}, framework="pytorch", roles=roles)["worker-0"]
    assert len(made.processes) == 1
    assert made.processes[0].env["PET_NPROC_PER_NODE"] == "2"


@pytest.mark.parametrize(
    ("given", "made"),
    [
        pytest.param(("accelerate", "launch", "train.py"), CPU_FLAGS, id="told that there is no GPU"),
        pytest.param(CPU_FLAGS, CPU_FLAGS, id="already told"),
        pytest.param(
            ("accelerate", "launch", "--config-file=c.yaml", "t.py"),
            ("accelerate", "launch", "--config-file=c.yaml", "t.py"),
            id="own config",
        ),
        pytest.param(
            ("accelerate", "launch", "train.py", "--cpu"),
            ("accelerate", "launch", "--cpu", "train.py", "--cpu"),
            id="the program's own flag",
        ),
        pytest.param(
            ("bash", "-c", "accelerate launch t.py"),
            ("bash", "-c", "accelerate launch t.py"),
            id="nothing goes into a shell's text",
        ),
    ],
)
def test_accelerate_without_gpus_runs_once_a_rank(launch, given, made):
    tasks = launch(
        {"worker": 2}, members={"worker": {"slots": 2}}, framework="pytorch", roles={"worker": {"command": given, "processes": 2}}
    )
    processes = [process for task in tasks.values() for process in task.processes]
    assert [process.argv for process in processes] == [made] * 4
    assert [process.env["RANK"] for process in processes] == ["0", "1", "2", "3"]
    assert {process.env["ACCELERATE_USE_CPU"] for process in processes} == {"true"}


def test_accelerate_with_gpus_gets_the_flags_that_the_user_left_out(launch):
    roles = {"worker": {"command": ("accelerate", "launch", "--main-process-port", "99", "train.py")}}
    launches = launch(
        {"worker": 2}, members={"worker": {"slots": 4, "devices": ("a", "b", "c", "d")}}, framework="pytorch", roles=roles
    )
    (only,) = launches["worker-1"].processes
    assert only.argv == (
        "accelerate", "launch", "--multi_gpu", "--num_processes", "8", "--num_machines", "2", "--machine_rank", "1",
        "--main_process_ip", "127.0.0.1", "--main-process-port", "99", "train.py",
    )  # fmt: skip
    assert "RANK" not in only.env


def test_accelerate_in_a_program_is_told_to_use_the_cpu_only_where_no_gpu_was_given(launch):
    with_gpu = launch({"worker": 2}, members={"worker": {"devices": ("a",)}}, framework="pytorch")["worker-0"].processes[0]
    without = launch({"worker": 2}, framework="pytorch")["worker-0"].processes[0]
    assert "ACCELERATE_USE_CPU" not in with_gpu.env
    assert without.env["ACCELERATE_USE_CPU"] == "true"
