"""Place the tasks of a gang, which start together: all of them, or none."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from fairway.plan.scheduling.cluster import placement_search
from fairway.plan.scheduling.cluster.node_pool import NodePool, Positions
from fairway.plan.scheduling.gang import GangRole, GangShape, TaskSeat, TaskShape
from fairway.plan.scheduling.placement.placement_policy import NEVER
from fairway.plan.scheduling.score_input import Flags


class FailedPlacement(NamedTuple):
    """Where the placement of a gang failed."""

    part: GangRole
    placed: int
    """Number of the gang's tasks that could be placed before."""
    rule: str = ""
    """`together`, `apart` or `rack` when only this rule prevented the placement."""


class UnplacedTasks(NamedTuple):
    """The tasks of a part that have no seat yet."""

    part: GangRole
    indexes: tuple[int, ...]
    used: tuple[int, ...]
    """Positions of the nodes of the part's placed tasks."""


def place(
    floor: NodePool, gang: GangShape, sizes: Mapping[str, int] | None, running: Sequence[TaskSeat]
) -> list[TaskSeat] | FailedPlacement:
    """Take and return seats for the missing tasks; or return where placement failed, with nothing changed."""
    missing_parts = [missing for missing in (_missing(floor, part, sizes, running) for part in gang.parts) if missing.indexes]
    if len(missing_parts) > 1:
        missing_parts.sort(key=_hardest_first)
    if sum(len(missing.indexes) for missing in missing_parts) > 1:
        for missing in missing_parts:
            room = floor.room(missing.part.shape)
            if room < len(missing.indexes):
                return FailedPlacement(missing.part, room)
    if not missing_parts:
        return []
    stuck: FailedPlacement | None = None
    for within in _grounds(floor, gang, missing_parts, running):
        result = _place_within(floor, missing_parts, within)
        if isinstance(result, list):
            return _in_order(result, gang)
        stuck = result
    return stuck or FailedPlacement(missing_parts[0].part, 0, "rack")


def _missing(floor: NodePool, part: GangRole, sizes: Mapping[str, int] | None, running: Sequence[TaskSeat]) -> UnplacedTasks:
    size = part.least if sizes is None else sizes.get(part.role, part.least)
    if not running:
        return UnplacedTasks(part, tuple(range(size)), ())
    placed = [seat for seat in running if seat.role == part.role]
    placed_indexes = {seat.index for seat in placed}
    used = tuple(sorted({floor.where[seat.node] for seat in placed if seat.node in floor.where}))
    return UnplacedTasks(part, tuple(index for index in range(size) if index not in placed_indexes), used)


def _hardest_first(missing: UnplacedTasks) -> tuple[bool, int, int, int]:
    part, shape = missing.part, missing.part.shape
    return (not part.together, -shape.gpus * shape.gpu_milli, -shape.cpu, -shape.memory)


def _in_order(seats: list[TaskSeat], gang: GangShape) -> list[TaskSeat]:
    if len(gang.parts) == 1:
        return seats
    order = {part.role: number for number, part in enumerate(gang.parts)}
    return sorted(seats, key=lambda seat: (order[seat.role], seat.index))


def _grounds(
    floor: NodePool, gang: GangShape, wanted: Sequence[UnplacedTasks], running: Sequence[TaskSeat]
) -> Iterator[Positions | None]:
    """Yield sets of nodes to try, best first: single racks if required; else the fewest racks with capacity, then all nodes."""
    lone = not running and len(wanted) == 1 and len(wanted[0].indexes) == 1
    if len(floor.racks) < 2 or (lone and not gang.same_rack):
        yield None
        return
    by_rack = np.array([floor.room_by_rack(each.part.shape) for each in wanted])
    need = np.array([[len(each.indexes)] for each in wanted])
    current_racks = np.zeros(len(floor.racks), np.bool_)
    current_racks[[floor.rack_of[floor.where[seat.node]] for seat in running if seat.node in floor.where]] = True
    # The sort is stable, so ties go to the first rack. The last key is the primary one.
    order = np.lexsort([*(-by_rack[::-1]), ~current_racks])
    if gang.same_rack:
        suits: Flags = np.all(by_rack >= need, axis=0) & (current_racks == current_racks.any())
        yield from (floor.racks[rack] for rack in order if suits[rack])
        return
    enough: Flags = np.all(by_rack[:, order].cumsum(axis=1) >= need, axis=0)
    count = int(enough.argmax()) + 1
    if enough[count - 1]:
        yield (floor.racks[order[0]] if count == 1 else np.sort(np.concatenate([floor.racks[each] for each in order[:count]])))
    yield None


def _place_within(floor: NodePool, wanted: Sequence[UnplacedTasks], within: Positions | None) -> list[TaskSeat] | FailedPlacement:
    """Place one task after another, each on its best node; when that fails, run a bounded search."""
    logging, floor.logging = floor.logging, True
    mark = len(floor.log)
    seats: list[TaskSeat] = []
    stuck: FailedPlacement | None = None
    for missing in wanted:
        rule = _place_part(floor, missing, within, seats)
        if rule is not None:
            stuck = FailedPlacement(missing.part, len(seats), rule)
            break
    if stuck is not None:
        floor.undo(mark)
        crowded = len(wanted) > 1 or (wanted[0].part.shape.shares and wanted[0].part.shape.gpus > 1)
        search_result = (
            placement_search.place(floor, [(entry.part, entry.indexes, entry.used) for entry in wanted], within)
            if crowded
            else None
        )
        seats = search_result or []
        stuck = None if search_result else stuck
    floor.logging = logging
    if not logging:
        floor.log.clear()
    return seats if stuck is None else stuck


def _place_part(floor: NodePool, missing: UnplacedTasks, within: Positions | None, seats: list[TaskSeat]) -> str | None:
    """Add seats for the tasks of one part; return None on success, else the rule that prevented it, or an empty string."""
    part, shape = missing.part, missing.part.shape
    if part.together:
        at = _one_node(floor, missing, within)
        if at is None:
            return "together"
        for index in missing.indexes:
            if floor.machines[at].devices(shape) is None:
                # The previous tasks occupy unfavourable devices; the search may find another way.
                return "together"
            sit(floor, seats, part.role, index, shape, at)
        return None
    used = list(missing.used) if part.apart else []
    for index in missing.indexes:
        at = floor.best(shape, within, used)
        if at is None:
            if used and floor.best(shape, within) is not None:
                return "apart"
            return "rack" if within is not None and floor.best(shape) is not None else ""
        sit(floor, seats, part.role, index, shape, at)
        if part.apart:
            used.append(at)
    return None


def _one_node(floor: NodePool, missing: UnplacedTasks, within: Positions | None) -> int | None:
    shape, count = missing.part.shape, len(missing.indexes)
    room = floor.rooms(shape)
    if missing.used:
        only = missing.used[0]
        return only if room[only] >= count and (within is None or only in within) else None
    row = floor.open(shape, floor.board.row(shape), within)
    row[room < count] = NEVER
    at = floor.choose(row)
    return None if row[at] == NEVER else at


def sit(floor: NodePool, seats: list[TaskSeat], role: str, index: int, shape: TaskShape, at: int) -> None:
    """Take a seat on the best devices of the node."""
    machine = floor.machines[at]
    lone_share = shape.gpus == 1 and shape.shares and not shape.where.devices
    positions = machine.devices(shape, floor.board.pick(at, shape) if lone_share else None)
    seat = machine.seat(role, index, shape, positions or ())
    floor.change(seat, 1)
    seats.append(seat)
