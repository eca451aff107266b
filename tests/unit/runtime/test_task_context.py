"""Rank, world size and names, inside and outside of a job."""

from __future__ import annotations

from pathlib import Path

import pytest

from fairway.runtime import task_context


def test_outside_of_a_job_everything_has_a_value() -> None:
    assert not task_context.in_job()
    assert (task_context.job(), task_context.role(), task_context.index(), task_context.attempt()) == ("", "worker", 0, 0)
    assert (task_context.rank(), task_context.world_size(), task_context.local_rank(), task_context.local_world_size()) == (
        0,
        1,
        0,
        1,
    )
    assert task_context.peers() == {}
    assert task_context.attempt_dir() is None
    assert task_context.shared_dir() is None


def test_inside_a_job_the_variables_decide(monkeypatch: pytest.MonkeyPatch) -> None:
    values = {"JOB": "a-1", "ROLE": "chief", "INDEX": "2", "ATTEMPT": "3", "RANK": "5", "WORLD_SIZE": "8", "LOCAL_RANK": "1"}
    values |= {"LOCAL_WORLD_SIZE": "4", "PEERS": '{"worker": ["h:1", "h:2"], "ps": []}'}
    for name, value in values.items():
        monkeypatch.setenv(f"FAIRWAY_{name}", value)
    assert task_context.in_job()
    assert (task_context.job(), task_context.role(), task_context.index(), task_context.attempt()) == ("a-1", "chief", 2, 3)
    assert (task_context.rank(), task_context.world_size(), task_context.local_rank(), task_context.local_world_size()) == (
        5,
        8,
        1,
        4,
    )
    assert task_context.peers() == {"worker": ["h:1", "h:2"], "ps": []}


def test_a_role_without_a_rank_is_never_rank_0(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAIRWAY_JOB", "a-1")
    monkeypatch.setenv("FAIRWAY_ROLE", "ps")
    assert task_context.rank() == task_context.NO_RANK


@pytest.mark.parametrize(
    "variables",
    [
        {"TORCHELASTIC_RUN_ID": "x", "RANK": "3", "WORLD_SIZE": "4", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2"},
        {
            "OMPI_COMM_WORLD_RANK": "3",
            "OMPI_COMM_WORLD_SIZE": "4",
            "OMPI_COMM_WORLD_LOCAL_RANK": "1",
            "OMPI_COMM_WORLD_LOCAL_SIZE": "2",
        },
        {"PMI_RANK": "3", "PMI_SIZE": "4", "MPI_LOCALRANKID": "1", "MPI_LOCALNRANKS": "2"},
    ],
)
def test_a_launcher_inside_the_task_knows_better(
    in_job: Path, monkeypatch: pytest.MonkeyPatch, variables: dict[str, str]
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert (task_context.rank(), task_context.world_size(), task_context.local_rank(), task_context.local_world_size()) == (
        3,
        4,
        1,
        2,
    )


def test_a_plain_rank_variable_without_torchrun_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "3")
    assert task_context.rank() == 0


@pytest.mark.parametrize(("variable", "value"), [("FAIRWAY_RANK", "one"), ("FAIRWAY_INDEX", "1.5")])
def test_a_broken_number_names_variable_and_value(monkeypatch: pytest.MonkeyPatch, variable: str, value: str) -> None:
    monkeypatch.setenv(variable, value)
    with pytest.raises(ValueError, match=f"{variable}='{value}' is not a whole number"):
        (task_context.rank if variable.endswith("RANK") else task_context.index)()


@pytest.mark.parametrize("text", ["{", "[1]", '{"worker": 3}'])
def test_broken_peers_name_the_variable(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv("FAIRWAY_PEERS", text)
    with pytest.raises(ValueError, match="FAIRWAY_PEERS="):
        task_context.peers()


def test_data_is_found_by_name_and_a_missing_one_lists_what_there_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAIRWAY_DATA_TRAIN_SET", "/data/train")
    assert task_context.data("train-set") == "/data/train"
    with pytest.raises(KeyError, match="FAIRWAY_DATA_TEST is not set; available: FAIRWAY_DATA_TRAIN_SET"):
        task_context.data("test")


def test_an_output_is_a_folder_inside_and_outside_of_a_job(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert task_context.output("model") == Path("outputs/model")
    assert (tmp_path / "outputs" / "model").is_dir()
    monkeypatch.setenv("FAIRWAY_OUTPUT_MODEL", str(tmp_path / "kept"))
    assert task_context.output("model") == tmp_path / "kept"
    assert (tmp_path / "kept").is_dir()


def test_tensorboard_has_a_place(monkeypatch: pytest.MonkeyPatch) -> None:
    assert task_context.tensorboard_dir() == Path("runs")
    monkeypatch.setenv("FAIRWAY_TENSORBOARD_DIR", "/tb")
    assert task_context.tensorboard_dir() == Path("/tb")


def test_a_restart_by_torchrun_is_another_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAIRWAY_ATTEMPT", "2")
    assert task_context.attempt_token() == "2.0"
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", "1")
    assert task_context.attempt_token() == "2.1"


def test_the_variables_of_the_engine_itself_are_no_launcher(in_job: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The engine's `LOCAL_RANK` is counted per node, while metrics files and devices are counted per task."""
    ours = {"TORCHELASTIC_RUN_ID": task_context.job(), "RANK": "7", "LOCAL_RANK": "3", "OMPI_COMM_WORLD_RANK": "7"}
    ours |= {"OMPI_MCA_orte_hnp_uri": "4096.0;tcp://127.0.0.1:1", "OMPI_COMM_WORLD_LOCAL_RANK": "3"}
    for name, value in ours.items():
        monkeypatch.setenv(name, value)
    assert (task_context.rank(), task_context.local_rank()) == (0, 0)
    monkeypatch.setenv("PMIX_NAMESPACE", "prterun@1")  # mpirun, started without the engine's knowledge
    assert (task_context.rank(), task_context.local_rank()) == (7, 3)


@pytest.mark.parametrize(
    ("variables", "leads"),
    [
        ({}, True),
        ({"FAIRWAY_FIRST_ON_NODE": "1", "LOCAL_RANK": "0"}, True),
        ({"FAIRWAY_FIRST_ON_NODE": "0", "LOCAL_RANK": "0"}, False),
        ({"FAIRWAY_FIRST_ON_NODE": "1", "FAIRWAY_LOCAL_RANK": "1"}, False),
        ({"FAIRWAY_FIRST_ON_NODE": "1", "TORCHELASTIC_RUN_ID": "none", "LOCAL_RANK": "0"}, True),
        ({"FAIRWAY_FIRST_ON_NODE": "1", "TORCHELASTIC_RUN_ID": "none", "LOCAL_RANK": "1"}, False),
        ({"FAIRWAY_FIRST_ON_NODE": "0", "TORCHELASTIC_RUN_ID": "none", "LOCAL_RANK": "0"}, False),
        ({"FAIRWAY_FIRST_ON_NODE": "1", "LOCAL_RANK": "1"}, False),
    ],
    ids=[
        "outside of a job", "first", "another task", "another process", "torchrun", "its second rank", "torchrun in another task",
        "a rank of Lightning's own",
    ],
)  # fmt: skip
def test_one_process_leads_its_node(monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], leads: bool) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert task_context.local_leader() is leads
