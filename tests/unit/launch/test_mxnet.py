"""MXNet: the variables of its parameter servers."""

from __future__ import annotations

import pytest


@pytest.mark.parametrize("servers", ["ps", "server"])
def test_variables(launch, servers):
    launches = launch({"scheduler": 1, servers: 2, "worker": 3}, framework="mxnet")
    found = {
        name: {key: value for key, value in each.processes[0].env.items() if key.startswith("DMLC_")}
        for name, each in launches.items()
    }
    common = {
        "DMLC_PS_ROOT_URI": "127.0.0.1",
        "DMLC_PS_ROOT_PORT": "20000",
        "DMLC_NUM_WORKER": "3",
        "DMLC_NUM_SERVER": "2",
        "DMLC_NODE_HOST": "127.0.0.1",
    }
    assert found["scheduler-0"] == {"DMLC_ROLE": "scheduler", **common}
    assert found[f"{servers}-1"] == {"DMLC_ROLE": "server", **common}
    assert found["worker-2"] == {"DMLC_ROLE": "worker", **common}


def test_without_a_scheduler_there_are_no_servers_to_speak_of(launch):
    env = launch({"worker": 2}, framework="mxnet")["worker-0"].processes[0].env
    assert not {"DMLC_ROLE", "DMLC_PS_ROOT_URI", "DMLC_NUM_SERVER"} & set(env)
