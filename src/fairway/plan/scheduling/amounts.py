"""How much of each resource: dictionaries of whole numbers by name, as queues count them.

`cpu` in thousandths of a core, `memory` in MiB, `gpu` and `gpu:TYPE` in thousandths of a device, others as counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from fairway.plan.scheduling.shape import WHOLE, Gang, Seat, Shape
from fairway.state.node import Node

Amounts = dict[str, int]


def of_gang(gang: Gang) -> Amounts:
    """What a gang asks for at the least. A type is counted only where no other will do."""
    total: Amounts = {}
    for part in gang.parts:
        kind = part.shape.gpu_types[0] if len(part.shape.gpu_types) == 1 else ""
        add(total, _of_task(part.shape, part.shape.gpu_milli, kind), part.least)
    return total


def of_seats(seats: Iterable[Seat], nodes: Mapping[str, Node]) -> Amounts:
    """What the seats take, with the types of their devices."""
    total: Amounts = {}
    alike: tuple[Shape, int, str] | None = None
    times = 0
    for seat in seats:
        node = nodes.get(seat.node)
        kind = ""
        if seat.devices and node is not None:
            kind = next((device.type for device in node.devices if device.uuid == seat.devices[0]), "")
        # The tasks of a gang are mostly alike, one after the other.
        if alike is not None and alike[0] is seat.shape and alike[1] == seat.milli and alike[2] == kind:
            times += 1
            continue
        if alike is not None:
            add(total, _of_task(*alike), times)
        alike, times = (seat.shape, seat.milli, kind), 1
    if alike is not None:
        add(total, _of_task(*alike), times)
    return total


def of_nodes(nodes: Iterable[Node]) -> Amounts:
    """What there is in all, sick devices left out."""
    total: Amounts = {}
    for node in nodes:
        add(total, {"cpu": round(node.cpu * 1000), "memory": node.memory >> 20, **node.other})
        for device in node.devices:
            if device.healthy:
                add(total, {"gpu": WHOLE, f"gpu:{device.type}": WHOLE} if device.type else {"gpu": WHOLE})
    return total


def add(total: Amounts, more: Mapping[str, int], times: int = 1) -> None:
    """Count it in; with -1 for `times` count it out, leaving no zeros behind."""
    for name, count in more.items():
        new = total.get(name, 0) + count * times
        if new:
            total[name] = new
        else:
            total.pop(name, None)


def _of_task(shape: Shape, milli: int, kind: str) -> Amounts:
    found: Amounts = {}
    if shape.cpu:
        found["cpu"] = shape.cpu
    if shape.memory:
        found["memory"] = shape.memory
    if shape.gpus:
        found["gpu"] = shape.gpus * milli
        if kind:
            found[f"gpu:{kind}"] = shape.gpus * milli
    found.update((name, count) for name, count in shape.other if count)
    return found
