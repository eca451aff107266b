"""Make room by moving: if enough GPUs are free but scattered, restart a few runs elsewhere, so that no run has to wait."""

from __future__ import annotations

from fairway.plan.scheduling.queueing import time_slice
from fairway.simulation.queue.free_gpus import Places
from fairway.simulation.queue.queue_state import SimulatedJob, SimulatedQueue

MOST_TRIALS = 4
"""Maximum number of nodes, or sets of nodes, that are tried, starting with those where the fewest GPUs must be moved."""


def make_room(hall: SimulatedQueue, job: SimulatedJob) -> bool:
    """Start the job by moving others, if all of them can continue running; otherwise do nothing."""
    size = hall.floor.nodes.gpus
    need = min(job.entry.gpus, size)
    count = -(-job.entry.gpus // size)
    if hall.floor.idle < need * count:
        return False
    ways = _ways(hall, need)
    for first in range(min(MOST_TRIALS, len(ways) - count + 1)):
        chosen = ways[first : first + count]
        places: Places = tuple((node, need) for _, node, _ in chosen)
        moved = [other for *_, leaving in chosen for other in leaving]
        targets = _targets(hall, places, moved)
        if targets is not None:
            for other, _ in targets:
                hall.stop(other)
            hall.start(job, places)
            for other, target in targets:
                hall.start(other, target)
                other.moves += 1
            return True
    return False


def _ways(hall: SimulatedQueue, need: int) -> list[tuple[int, int, list[SimulatedJob]]]:
    """Return, by node, the number of GPUs that must be moved away and the runs that hold them, fewest first."""
    movable: dict[int, list[SimulatedJob]] = {}
    for other in hall.running.values():
        if len(other.places) == 1 and time_slice.may_move(other.standing(hall.now), hall.now):
            movable.setdefault(other.places[0][0], []).append(other)
    ways: list[tuple[int, int, list[SimulatedJob]]] = []
    for node, free in enumerate(hall.floor.free):
        leaving = _fewest(movable.get(node, []), need - free)
        if leaving is not None:
            ways.append((sum(other.entry.gpus for other in leaving), node, leaving))
    return sorted(ways, key=lambda way: way[:2])


def _fewest(movable: list[SimulatedJob], lacking: int) -> list[SimulatedJob] | None:
    """Return the smallest run that is enough by itself, or else small runs until they are enough."""
    if lacking <= 0:
        return []
    by_size = sorted(movable, key=lambda other: (other.entry.gpus, other.index))
    alone = next((other for other in by_size if other.entry.gpus >= lacking), None)
    if alone is not None:
        return [alone]
    leaving: list[SimulatedJob] = []
    for other in by_size:
        leaving.append(other)
        lacking -= other.entry.gpus
        if lacking <= 0:
            return leaving
    return None


def _targets(hall: SimulatedQueue, places: Places, moved: list[SimulatedJob]) -> list[tuple[SimulatedJob, Places]] | None:
    """Return the new places of the moved runs; None if one of them would find no room."""
    floor = hall.floor.copy()
    for other in moved:
        floor.give(other.places)
    floor.take(places)
    targets: list[tuple[SimulatedJob, Places]] = []
    for other in sorted(moved, key=lambda other: (-other.entry.gpus, other.index)):
        target = floor.find(other.entry.gpus)
        if target is None:
            return None
        floor.take(target)
        targets.append((other, target))
    return targets
