from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from fairway.errors import SpecError, UsageError
from fairway.plan.scheduling.gang import TaskShape
from fairway.plan.scheduling.workload_mix import WorkloadMix
from fairway.simulation import openb_trace

PODS = """name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec
pod-2,12000,16384,1,460,V100M16|V100M32
pod-1,6000,12288,8,1000,
pod-3,4000,1024,0,0,
"""


def test_nodes_are_read_by_name(tmp_path: Path) -> None:
    path = tmp_path / "nodes.csv"
    path.write_text("sn,cpu_milli,memory_mib,gpu,model\nb,64000,262144,2,P100\na,8500,1024,0,\n")
    first, second = openb_trace.read_nodes(path)
    assert (first.name, first.cpu, first.memory, first.devices, first.tasks) == ("a", 8.5, 1 << 30, (), 1001)
    assert [(device.uuid, device.type) for device in second.devices] == [("b/0", "P100"), ("b/1", "P100")]


@pytest.mark.parametrize("zipped", [False, True])
def test_pods_are_read_in_order_of_name(tmp_path: Path, zipped: bool) -> None:
    path = tmp_path / ("pods.csv.gz" if zipped else "pods.csv")
    path.write_bytes(gzip.compress(PODS.encode()) if zipped else PODS.encode())
    pods = openb_trace.read_pods(path)
    assert pods == [
        TaskShape(6000, 12288, 8),
        TaskShape(12000, 16384, 1, 460, gpu_types=("V100M16", "V100M32")),
        TaskShape(4000, 1024),
    ]
    assert openb_trace.read_mix(path) == WorkloadMix.of(pods)


def test_an_order_belongs_to_its_pods_and_nodes(tmp_path: Path) -> None:
    path = tmp_path / "order.json"
    path.write_text(json.dumps({"pods": [1, 0], "node_rank": [0]}))
    order = openb_trace.read_order(path)
    assert order == openb_trace.ArrivalOrder((1, 0), (0,))
    with pytest.raises(UsageError, match="another list of pods"):
        openb_trace.check([], [TaskShape()], order)
    with pytest.raises(UsageError, match="another list of nodes"):
        openb_trace.check([], [TaskShape(), TaskShape()], order)


def test_another_format_is_refused_with_the_file(tmp_path: Path) -> None:
    path = tmp_path / "pods.csv"
    path.write_text("submit_s,gpus\n0,1\n")
    with pytest.raises(SpecError, match=r"pods\.csv"):
        openb_trace.read_pods(path)
    path.write_text(PODS.replace("12000", "many"))
    with pytest.raises(SpecError, match=r"many"):
        openb_trace.read_pods(path)
