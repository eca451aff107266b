"""Room on nodes where places are kept for somebody and devices are idle meanwhile."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fairway.plan.scheduling.ledger import Ledger
from fairway.plan.scheduling.request import Request
from fairway.plan.scheduling.shape import Gang

MOST_NODES = 64
"""So many nodes are freed of what is kept there, to see whether a gang would fit."""


@dataclass(frozen=True, slots=True)
class Idle:
    """One such node."""

    node: str
    devices: int
    until: float
    """When the first of those for whom places are kept there is expected to need them."""
    owners: tuple[str, ...]


def idle_nodes(ledger: Ledger) -> list[Idle]:
    """All of them, those that are needed last first."""
    kept = ledger.memory.reservations
    found = []
    for node, devices, names in ledger.promises.idle():
        if not any(kept[name].exact for name in names):
            found.append(Idle(node, devices, min(kept[name].at for name in names), tuple(sorted(names))))
    return sorted(found, key=lambda idle: (-idle.until, idle.node))


def may_hold(gang: Gang, nodes: Sequence[Idle]) -> bool:
    """Whether these nodes have so many devices idle that the gang could find room with what is there. Quick, and generous."""
    for part in gang.parts:
        gpus = part.shape.gpus
        if gpus and not any(idle.devices >= gpus for idle in nodes):
            return False
    return bool(nodes)


def give(ledger: Ledger, request: Request, nodes: Sequence[Idle]) -> None:
    """Free these nodes of what is kept there, as far as it may help; and what is kept for the run itself."""
    own = ledger.memory.reservations.get(str(request.key))
    if own is not None:
        ledger.cluster.give(own.seats)
    name = str(request.key)
    for idle in nodes[: max(MOST_NODES, 2 * request.gang.size)]:
        for owner, seats in ledger.promises.kept_for(idle.node):
            if owner != name:
                ledger.cluster.give(seats)
