"""Idle devices on nodes with reservations, which other gangs may use until the reservations are needed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fairway.plan.scheduling.gang import GangShape
from fairway.plan.scheduling.gang_request import GangRequest
from fairway.plan.scheduling.scheduler_state import SchedulerState

MOST_NODES = 64
"""Maximum number of nodes whose reservations are lifted to test whether a gang fits."""


@dataclass(frozen=True, slots=True)
class IdleReservedNode:
    """A node with reservations and idle devices."""

    node: str
    devices: int
    until: float
    """When the first reservation on the node is expected to be needed."""
    owners: tuple[str, ...]


def idle_nodes(ledger: SchedulerState) -> list[IdleReservedNode]:
    """Return all such nodes, those needed last first."""
    kept = ledger.memory.reservations
    nodes = []
    for node, devices, names in ledger.promises.idle():
        if not any(kept[name].exact for name in names):
            nodes.append(IdleReservedNode(node, devices, min(kept[name].at for name in names), tuple(sorted(names))))
    return sorted(nodes, key=lambda idle: (-idle.until, idle.node))


def may_hold(gang: GangShape, nodes: Sequence[IdleReservedNode]) -> bool:
    """Return whether the gang might fit on these nodes, by their numbers of idle devices. A fast, optimistic check."""
    for part in gang.parts:
        gpus = part.shape.gpus
        if gpus and not any(idle.devices >= gpus for idle in nodes):
            return False
    return bool(nodes)


def give(ledger: SchedulerState, request: GangRequest, nodes: Sequence[IdleReservedNode]) -> None:
    """Free the seats reserved on these nodes, as far as it may help, and the run's own reservation."""
    own = ledger.memory.reservations.get(str(request.key))
    if own is not None:
        ledger.cluster.give(own.seats)
    name = str(request.key)
    for idle in nodes[: max(MOST_NODES, 2 * request.gang.size)]:
        for owner, seats in ledger.promises.kept_for(idle.node):
            if owner != name:
                ledger.cluster.give(seats)
