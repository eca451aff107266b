"""Tasks on one node that each share several devices: all of them get their devices, or none is placed."""

from __future__ import annotations

from fairway.plan.scheduling.cluster import ClusterModel
from fairway.plan.scheduling.gang import GangRole, GangShape, TaskShape
from fairway.state.node import ClusterNode, NodeDevice


def test_tasks_together_that_share_several_devices_all_get_them() -> None:
    node = ClusterNode("a", 8.0, 1 << 40, tuple(NodeDevice(f"G{index}", index) for index in range(3)))
    found = ClusterModel([node], "best-fit").place(
        GangShape((GangRole("w", TaskShape(cpu=1000, gpus=2, gpu_milli=500), 3, 3, together=True),))
    )
    assert isinstance(found, tuple)
    assert [len(seat.devices) for seat in found] == [2, 2, 2]
