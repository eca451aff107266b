"""Amounts of resources: dictionaries of whole numbers by resource name, as queues count them.

`cpu` in thousandths of a core, `memory` in MiB, `gpu` and `gpu:TYPE` in thousandths of a device, others as counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from fairway.plan.scheduling.gang import WHOLE, GangShape, TaskSeat, TaskShape
from fairway.state.node import ClusterNode

Amounts = dict[str, int]


def of_gang(gang: GangShape) -> Amounts:
    """Return the minimum request of a gang. A GPU type is counted only where exactly one type is allowed."""
    total: Amounts = {}
    for part in gang.parts:
        kind = part.shape.gpu_types[0] if len(part.shape.gpu_types) == 1 else ""
        add(total, _of_task(part.shape, part.shape.gpu_milli, kind), part.least)
    return total


def of_seats(seats: Iterable[TaskSeat], nodes: Mapping[str, ClusterNode]) -> Amounts:
    """Return what the seats take, including the types of their devices."""
    total: Amounts = {}
    previous: tuple[TaskShape, int, str] | None = None
    times = 0
    for seat in seats:
        node = nodes.get(seat.node)
        kind = ""
        if seat.devices and node is not None:
            kind = next((device.type for device in node.devices if device.uuid == seat.devices[0]), "")
        # Consecutive seats of a gang are mostly equal, so equal ones are added in one step.
        if previous is not None and previous[0] is seat.shape and previous[1] == seat.milli and previous[2] == kind:
            times += 1
            continue
        if previous is not None:
            add(total, _of_task(*previous), times)
        previous, times = (seat.shape, seat.milli, kind), 1
    if previous is not None:
        add(total, _of_task(*previous), times)
    return total


def of_nodes(nodes: Iterable[ClusterNode]) -> Amounts:
    """Return the total capacity of the nodes, without unhealthy devices."""
    total: Amounts = {}
    for node in nodes:
        add(total, {"cpu": round(node.cpu * 1000), "memory": node.memory >> 20, **node.other})
        for device in node.devices:
            if device.healthy:
                add(total, {"gpu": WHOLE, f"gpu:{device.type}": WHOLE} if device.type else {"gpu": WHOLE})
    return total


def add(total: Amounts, more: Mapping[str, int], times: int = 1) -> None:
    """Add `more` to `total` in place, or subtract it with `times=-1`; zero entries are removed."""
    for name, count in more.items():
        new = total.get(name, 0) + count * times
        if new:
            total[name] = new
        else:
            total.pop(name, None)


def _of_task(shape: TaskShape, milli: int, kind: str) -> Amounts:
    amounts: Amounts = {}
    if shape.cpu:
        amounts["cpu"] = shape.cpu
    if shape.memory:
        amounts["memory"] = shape.memory
    if shape.gpus:
        amounts["gpu"] = shape.gpus * milli
        if kind:
            amounts[f"gpu:{kind}"] = shape.gpus * milli
    amounts.update((name, count) for name, count in shape.other if count)
    return amounts
