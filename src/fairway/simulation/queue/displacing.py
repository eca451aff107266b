"""Room by displacing: of those who may be displaced, the fewest and highest that let a gang start."""

from __future__ import annotations

from collections.abc import Mapping

from fairway.simulation.queue.floor import Places
from fairway.simulation.queue.hall import Active, Hall

Way = tuple[list[Active], Places]
"""Who leaves, and the places that the gang then gets."""


def cheapest(hall: Hall, gpus: int, levels: Mapping[int, int]) -> Way | None:
    """The cheapest way to start a gang of so many GPUs when only those with a level here may leave; None when there is none.

    One is cheaper than another when the lowest level among those who leave is higher, then when they hold fewer GPUs.
    """
    by_node: dict[int, list[Active]] = {}
    for index in levels:
        running = hall.running[index]
        for node, _ in running.places:
            by_node.setdefault(node, []).append(running)
    if not by_node:
        return None
    return _on_one(hall, gpus, levels, by_node) if gpus <= hall.floor.nodes.gpus else _on_many(hall, gpus, by_node)


def _on_one(hall: Hall, gpus: int, levels: Mapping[int, int], by_node: dict[int, list[Active]]) -> Way | None:
    best: tuple[tuple[int, int, int], list[Active]] | None = None
    for node in sorted(by_node):
        order = sorted(by_node[node], key=lambda victim: (-levels[victim.index], -(victim.since or 0.0), victim.index))
        leaving = _enough(hall.floor.free[node], gpus, [(victim, dict(victim.places)[node]) for victim in order])
        if leaving:
            lowest = min(levels[victim.index] for victim in leaving)
            price = (-lowest, sum(victim.entry.gpus for victim in leaving), node)
            if best is None or price < best[0]:
                best = (price, leaving)
    return None if best is None else (best[1], ((best[0][2], gpus),))


def _enough(free: int, gpus: int, order: list[tuple[Active, int]]) -> list[Active]:
    """The first of them until so many GPUs are free, without those who need not leave after all; empty when all are too few."""
    leaving: list[tuple[Active, int]] = []
    for victim, held in order:
        if free >= gpus:
            break
        leaving.append((victim, held))
        free += held
    if free < gpus:
        return []
    needed: list[Active] = []
    for victim, held in reversed(leaving):
        if free - held >= gpus:
            free -= held
        else:
            needed.append(victim)
    return needed


def _on_many(hall: Hall, gpus: int, by_node: dict[int, list[Active]]) -> Way | None:
    """Whole nodes: those where the fewest GPUs must be left."""
    size = hall.floor.nodes.gpus
    count = -(-gpus // size)
    ways: list[tuple[int, int]] = []
    for node, free in enumerate(hall.floor.free):
        victims = by_node.get(node, [])
        if free + sum(dict(victim.places)[node] for victim in victims) == size:
            ways.append((sum(victim.entry.gpus for victim in victims), node))
    if len(ways) < count:
        return None
    nodes = [node for _, node in sorted(ways)[:count]]
    leaving = {victim.index: victim for node in nodes for victim in by_node.get(node, [])}
    return list(leaving.values()), tuple((node, size) for node in nodes)
