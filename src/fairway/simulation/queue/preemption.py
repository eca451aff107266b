"""Make room by preemption: choose the fewest runs, of the highest levels, that let a gang start."""

from __future__ import annotations

from collections.abc import Mapping

from fairway.simulation.queue.free_gpus import Places
from fairway.simulation.queue.queue_state import SimulatedJob, SimulatedQueue

Way = tuple[list[SimulatedJob], Places]
"""The runs to preempt, and the places that the gang then gets."""


def cheapest(hall: SimulatedQueue, gpus: int, levels: Mapping[int, int]) -> Way | None:
    """Return the cheapest way to start a gang of this many GPUs by preemption; None if there is none.

    Only runs with a level here may be preempted. A way is cheaper if the lowest level among its preempted runs is higher, then if
    they hold fewer GPUs.
    """
    by_node: dict[int, list[SimulatedJob]] = {}
    for index in levels:
        running = hall.running[index]
        for node, _ in running.places:
            by_node.setdefault(node, []).append(running)
    if not by_node:
        return None
    return _on_one(hall, gpus, levels, by_node) if gpus <= hall.floor.nodes.gpus else _on_many(hall, gpus, by_node)


def _on_one(hall: SimulatedQueue, gpus: int, levels: Mapping[int, int], by_node: dict[int, list[SimulatedJob]]) -> Way | None:
    best: tuple[tuple[int, int, int], list[SimulatedJob]] | None = None
    for node in sorted(by_node):
        order = sorted(by_node[node], key=lambda victim: (-levels[victim.index], -(victim.since or 0.0), victim.index))
        leaving = _enough(hall.floor.free[node], gpus, [(victim, dict(victim.places)[node]) for victim in order])
        if leaving:
            lowest = min(levels[victim.index] for victim in leaving)
            price = (-lowest, sum(victim.entry.gpus for victim in leaving), node)
            if best is None or price < best[0]:
                best = (price, leaving)
    return None if best is None else (best[1], ((best[0][2], gpus),))


def _enough(free: int, gpus: int, order: list[tuple[SimulatedJob, int]]) -> list[SimulatedJob]:
    """Return the first runs until enough GPUs are free, except those that turn out not to be needed; empty if too few."""
    leaving: list[tuple[SimulatedJob, int]] = []
    for victim, held in order:
        if free >= gpus:
            break
        leaving.append((victim, held))
        free += held
    if free < gpus:
        return []
    needed: list[SimulatedJob] = []
    for victim, held in reversed(leaving):
        if free - held >= gpus:
            free -= held
        else:
            needed.append(victim)
    return needed


def _on_many(hall: SimulatedQueue, gpus: int, by_node: dict[int, list[SimulatedJob]]) -> Way | None:
    """Choose whole nodes: those where the fewest GPUs must be vacated."""
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
