"""JAX: what `jax.distributed.initialize()` finds without arguments."""

from __future__ import annotations

import pytest


def test_variables(launch):
    env = launch({"worker": 2}, members={"worker": {"processes": 2}}, framework="jax")["worker-1"].processes[1].env
    assert {name: value for name, value in env.items() if name.startswith(("JAX_", "OMPI_"))} == {
        "JAX_COORDINATOR_ADDRESS": "127.0.0.1:20002",
        "JAX_COORDINATOR_BIND_ADDRESS": "127.0.0.1:20002",
        "JAX_NUM_PROCESSES": "4",
        "JAX_PROCESS_ID": "3",
        "OMPI_MCA_orte_hnp_uri": "4096.0;tcp://127.0.0.1:20002",
        "OMPI_COMM_WORLD_SIZE": "4",
        "OMPI_COMM_WORLD_RANK": "3",
        "OMPI_COMM_WORLD_LOCAL_RANK": "3",
        "OMPI_COMM_WORLD_LOCAL_SIZE": "4",
    }


@pytest.mark.parametrize(
    ("processes", "devices", "ids"),
    [
        pytest.param(1, ("a", "b", "c", "d"), ["0,1,2,3"], id="one process takes all"),
        pytest.param(2, ("a", "b"), ["0", "1"], id="one each"),
        pytest.param(2, ("a", "b", "c", "d"), ["0,1", "2,3"], id="two each"),
        pytest.param(2, (), [None, None], id="none"),
    ],
)
def test_devices_are_split_between_the_processes_of_a_task(launch, processes, devices, ids):
    launches = launch({"worker": 2}, members={"worker": {"processes": processes, "devices": devices}}, framework="jax")
    assert [process.env.get("JAX_LOCAL_DEVICE_IDS") for process in launches["worker-1"].processes] == ids


def test_roles_without_ranks_get_nothing(launch):
    env = launch({"worker": 2, "evaluator": 1}, framework="jax")["evaluator-0"].processes[0].env
    assert not [name for name in env if name.startswith(("JAX_", "OMPI_"))]
