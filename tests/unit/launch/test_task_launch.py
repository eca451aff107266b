"""What every process gets, for every framework."""

from __future__ import annotations

import json

import pytest

from fairway.launch.macro_value import macro_values
from fairway.launch.rank_position import RankPosition
from fairway.launch.task_launch import ADAPTERS
from fairway.launch.topology import GangMember, GangTopology, TaskFolders
from fairway.runtime import task_contract
from fairway.spec import macro
from fairway.spec.job import JobSpec, TrainingFramework


def test_every_framework_has_an_adapter():
    assert set(ADAPTERS) == set(TrainingFramework)


def test_contract_of_each_process(launch):
    launches = launch({"chief": 1, "ps": 1, "worker": 2}, members={"worker": {"processes": 2, "attempt": 3}}, framework="command")
    second = launches["worker-1"].processes[1]
    assert {name: value for name, value in second.env.items() if name.startswith("FAIRWAY_")} == {
        "FAIRWAY_JOB": "mnist-7",
        "FAIRWAY_NAMESPACE": "default",
        "FAIRWAY_TASK": "worker-1",
        "FAIRWAY_ROLE": "worker",
        "FAIRWAY_INDEX": "1",
        "FAIRWAY_ATTEMPT": "3",
        "FAIRWAY_RANK": "4",
        "FAIRWAY_LOCAL_RANK": "1",
        "FAIRWAY_LOCAL_WORLD_SIZE": "2",
        "FAIRWAY_WORLD_SIZE": "5",
        "FAIRWAY_PEERS": '{"chief":["127.0.0.1:20000"],"ps":["127.0.0.1:20010"],"worker":["127.0.0.1:20020","127.0.0.1:20030"]}',
        "FAIRWAY_CHECKPOINT_DIR": "/job/checkpoints",
        "FAIRWAY_CHECKPOINT_EVERY": "300",
        "FAIRWAY_FIRST_ON_NODE": "0",
        "FAIRWAY_CHECKPOINT_KEEP": "3",
        "FAIRWAY_TENSORBOARD_DIR": "/job/tensorboard",
        "FAIRWAY_ATTEMPT_DIR": "/job/attempt",
        "FAIRWAY_SHARED_DIR": "/job/shared",
        "FAIRWAY_OUTPUT_MODEL": "/job/outputs/model",
        "FAIRWAY_DATA_TRAIN_SET": "/data/train",
        "FAIRWAY_LINES": "1",
    }
    assert second.local_rank == 1


def test_roles_that_do_not_compute_have_no_rank_but_know_the_world(launch):
    env = launch({"ps": 1, "worker": 2}, framework="command")["ps-0"].processes[0].env
    assert task_contract.RANK not in env
    assert env[task_contract.WORLD_SIZE] == "2"


def test_chief_has_rank_0_wherever_the_document_names_it(launch):
    launches = launch({"worker": 2, "chief": 1}, framework="command")
    assert [launches[name].processes[0].env[task_contract.RANK] for name in ("chief-0", "worker-0", "worker-1")] == [
        "0",
        "1",
        "2",
    ]


def test_role_variables_win_over_the_jobs_and_both_over_the_frameworks(launch):
    launches = launch(
        {"worker": 2},
        framework="pytorch",
        env={"A": "job", "B": "job", "MASTER_PORT": "1"},
        roles={"worker": {"env": {"B": "role"}}},
    )
    env = launches["worker-0"].processes[0].env
    assert (env["A"], env["B"], env["MASTER_PORT"]) == ("job", "role", "1")


def test_a_document_cannot_change_the_contract(launch):
    env = launch({"worker": 1}, env={"FAIRWAY_RANK": "9"})["worker-0"].processes[0].env
    assert env["FAIRWAY_RANK"] == "0"


def test_macros_are_replaced_in_words_and_variables_per_process(launch):
    launches = launch(
        {"ps": 1, "worker": 2},
        members={"worker": {"processes": 2}},
        framework="command",
        data={"train-set": "s3://x"},
        env={"WHO": "{{role}}/{{index}} of {{job}}"},
        roles={
            "worker": {
                "command": (
                    "run",
                    "--ps_hosts={{ps_hosts}}",
                    "--task={{index}}",
                    "{{rank}}",
                    "{{ data.train-set }}",
                    "a b;{{port}}",
                )
            }
        },
    )
    last = launches["worker-1"].processes[1]
    assert last.argv == ("run", "--ps_hosts=127.0.0.1:20000", "--task=1", "3", "/data/train", "a b;20020")
    assert last.env["WHO"] == "worker/1 of mnist-7"


def test_every_macro_that_documents_may_use_has_a_value():
    spec = JobSpec.model_validate({"roles": {"my-role": {"command": ("x",)}}, "data": {"train": "a"}, "outputs": {"model": "m"}})
    only = GangMember("my-role", 0, "h", (1, 2, 3))
    seat = RankPosition(
        "j-1",
        spec,
        GangTopology("j-1", "default", (only,)),
        only,
        TaskFolders("w", "a", "s", "c", "t", {"model": "o"}, {"train": "d"}),
    )
    assert frozenset(macro_values(seat)) == macro.known(spec.roles, spec.data, spec.outputs)


def test_scripts_run_by_bash_from_a_file_and_nothing_is_pasted_into_them(launch):
    made = launch({"worker": 1}, roles={"worker": {"command": (), "script": "echo {{index}} $FAIRWAY_INDEX\n"}})["worker-0"]
    assert made.processes[0].argv == ("bash", "-eu", "/job/attempt/script.sh")
    assert made.files == {"script.sh": "echo {{index}} $FAIRWAY_INDEX\n"}


def test_runtime_goes_in_front_of_the_documents_python_path(launch):
    assert launch({"worker": 1})["worker-0"].processes[0].env["PYTHONPATH"] == "/inject"
    assert launch({"worker": 1}, env={"PYTHONPATH": "lib"})["worker-0"].processes[0].env["PYTHONPATH"] == "/inject:lib"


def test_output_is_unbuffered_unless_somebody_said_otherwise(launch):
    plain = launch({"worker": 1})["worker-0"].processes[0]
    assert plain.env["PYTHONUNBUFFERED"] == "1"
    assert "PYTHONUNBUFFERED" in plain.gives_way
    said = launch({"worker": 1}, env={"PYTHONUNBUFFERED": ""})["worker-0"].processes[0]
    assert said.env["PYTHONUNBUFFERED"] == ""
    assert plain.env["FAIRWAY_LINES"] == "1"
    assert "FAIRWAY_LINES" not in said.env
    assert "PYTHONUNBUFFERED" not in said.gives_way


@pytest.mark.parametrize(
    ("sizes", "members", "resources", "threads"),
    [
        pytest.param({"worker": 1}, {}, {}, None, id="alone it keeps the machine"),
        pytest.param({"worker": 2}, {}, {}, "1", id="ranks that share a machine"),
        pytest.param({"worker": 1}, {"processes": 2}, {}, "1", id="ranks of one task"),
        pytest.param({"worker": 1}, {}, {"cpu": "4"}, "4", id="all of what was asked"),
        pytest.param({"worker": 2}, {"processes": 2}, {"cpu": "7"}, "3", id="its share of what was asked"),
        pytest.param({"worker": 2}, {"processes": 4}, {"cpu": "500m"}, "1", id="never none"),
    ],
)
def test_threads(launch, sizes, members, resources, threads):
    made = launch(sizes, members={"worker": members}, roles={"worker": {"resources": resources}})["worker-0"].processes[0]
    assert made.env.get("OMP_NUM_THREADS") == threads
    assert ("OMP_NUM_THREADS" in made.gives_way) == (threads is not None)


def test_command_adds_nothing_of_a_framework(launch):
    env = launch({"worker": 2}, framework="command")["worker-0"].processes[0].env
    assert {name for name in env if not name.startswith("FAIRWAY_")} == {
        "OMP_NUM_THREADS", "PYTHONFAULTHANDLER", "PYTHONPATH", "PYTHONUNBUFFERED",
    }  # fmt: skip


def test_peers_are_json(launch):
    env = launch({"worker": 2})["worker-1"].processes[0].env
    assert json.loads(env["FAIRWAY_PEERS"]) == {"worker": ["127.0.0.1:20000", "127.0.0.1:20010"]}
