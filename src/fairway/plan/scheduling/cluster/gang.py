"""Places for tasks that start together: all of them, or none."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from fairway.plan.scheduling.cluster import search
from fairway.plan.scheduling.cluster.floor import Floor, Positions
from fairway.plan.scheduling.placement.policy import NEVER
from fairway.plan.scheduling.placement.specs import Flags
from fairway.plan.scheduling.shape import Gang, Part, Seat, Shape


class Stuck(NamedTuple):
    """Where a gang got stuck."""

    part: Part
    placed: int
    """Tasks of the gang that had found a place."""
    rule: str = ""
    """`together`, `apart` or `rack` when a task alone would have found a place."""


class Missing(NamedTuple):
    """The tasks of a part that have no seat yet."""

    part: Part
    indexes: tuple[int, ...]
    used: tuple[int, ...]
    """Positions of the nodes where others of the part sit."""


def place(floor: Floor, gang: Gang, sizes: Mapping[str, int] | None, running: Sequence[Seat]) -> list[Seat] | Stuck:
    """Seats for what is missing, all taken; or where it got stuck, with nothing changed."""
    wanted = [each for each in (_missing(floor, part, sizes, running) for part in gang.parts) if each.indexes]
    if len(wanted) > 1:
        wanted.sort(key=_hardest_first)
    if sum(len(each.indexes) for each in wanted) > 1:
        for each in wanted:
            room = floor.room(each.part.shape)
            if room < len(each.indexes):
                return Stuck(each.part, room)
    if not wanted:
        return []
    stuck: Stuck | None = None
    for within in _grounds(floor, gang, wanted, running):
        found = _place_within(floor, wanted, within)
        if isinstance(found, list):
            return _in_order(found, gang)
        stuck = found
    return stuck or Stuck(wanted[0].part, 0, "rack")


def _missing(floor: Floor, part: Part, sizes: Mapping[str, int] | None, running: Sequence[Seat]) -> Missing:
    size = part.least if sizes is None else sizes.get(part.role, part.least)
    if not running:
        return Missing(part, tuple(range(size)), ())
    sitting = [seat for seat in running if seat.role == part.role]
    there = {seat.index for seat in sitting}
    used = tuple(sorted({floor.where[seat.node] for seat in sitting if seat.node in floor.where}))
    return Missing(part, tuple(index for index in range(size) if index not in there), used)


def _hardest_first(missing: Missing) -> tuple[bool, int, int, int]:
    part, shape = missing.part, missing.part.shape
    return (not part.together, -shape.gpus * shape.gpu_milli, -shape.cpu, -shape.memory)


def _in_order(seats: list[Seat], gang: Gang) -> list[Seat]:
    if len(gang.parts) == 1:
        return seats
    order = {part.role: number for number, part in enumerate(gang.parts)}
    return sorted(seats, key=lambda seat: (order[seat.role], seat.index))


def _grounds(floor: Floor, gang: Gang, wanted: Sequence[Missing], running: Sequence[Seat]) -> Iterator[Positions | None]:
    """Where to try, best first: one rack if it must be one; else as few racks as have the room, then everywhere."""
    lone = not running and len(wanted) == 1 and len(wanted[0].indexes) == 1
    if len(floor.racks) < 2 or (lone and not gang.same_rack):
        yield None
        return
    by_rack = np.array([floor.room_by_rack(each.part.shape) for each in wanted])
    need = np.array([[len(each.indexes)] for each in wanted])
    home = np.zeros(len(floor.racks), np.bool_)
    home[[floor.rack_of[floor.where[seat.node]] for seat in running if seat.node in floor.where]] = True
    # Of those that are alike, the first: it is a stable sort, by the last of these keys first.
    order = np.lexsort([*(-by_rack[::-1]), ~home])
    if gang.same_rack:
        suits: Flags = np.all(by_rack >= need, axis=0) & (home == home.any())
        yield from (floor.racks[rack] for rack in order if suits[rack])
        return
    enough: Flags = np.all(by_rack[:, order].cumsum(axis=1) >= need, axis=0)
    count = int(enough.argmax()) + 1
    if enough[count - 1]:
        yield floor.racks[order[0]] if count == 1 else np.sort(np.concatenate([floor.racks[each] for each in order[:count]]))
    yield None


def _place_within(floor: Floor, wanted: Sequence[Missing], within: Positions | None) -> list[Seat] | Stuck:
    """One task after the other, each where it is best; when that leads nowhere, a short search for another way."""
    logging, floor.logging = floor.logging, True
    mark = len(floor.log)
    seats: list[Seat] = []
    stuck: Stuck | None = None
    for missing in wanted:
        rule = _place_part(floor, missing, within, seats)
        if rule is not None:
            stuck = Stuck(missing.part, len(seats), rule)
            break
    if stuck is not None:
        floor.undo(mark)
        crowded = len(wanted) > 1 or (wanted[0].part.shape.shares and wanted[0].part.shape.gpus > 1)
        found = search.place(floor, [(each.part, each.indexes, each.used) for each in wanted], within) if crowded else None
        seats = found or []
        stuck = None if found else stuck
    floor.logging = logging
    if not logging:
        floor.log.clear()
    return seats if stuck is None else stuck


def _place_part(floor: Floor, missing: Missing, within: Positions | None, seats: list[Seat]) -> str | None:
    """Add seats for the tasks of one part; None when all found one, else the rule that stood in the way, if any."""
    part, shape = missing.part, missing.part.shape
    if part.together:
        at = _one_node(floor, missing, within)
        if at is None:
            return "together"
        for index in missing.indexes:
            if floor.machines[at].devices(shape) is None:
                # Those before it lie badly; the search may find another way.
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


def _one_node(floor: Floor, missing: Missing, within: Positions | None) -> int | None:
    shape, count = missing.part.shape, len(missing.indexes)
    room = floor.rooms(shape)
    if missing.used:
        only = missing.used[0]
        return only if room[only] >= count and (within is None or only in within) else None
    row = floor.open(shape, floor.board.row(shape), within)
    row[room < count] = NEVER
    at = floor.choose(row)
    return None if row[at] == NEVER else at


def sit(floor: Floor, seats: list[Seat], role: str, index: int, shape: Shape, at: int) -> None:
    """Take the best devices of the node."""
    machine = floor.machines[at]
    lone_share = shape.gpus == 1 and shape.shares and not shape.where.devices
    positions = machine.devices(shape, floor.board.pick(at, shape) if lone_share else None)
    seat = machine.seat(role, index, shape, positions or ())
    floor.change(seat, 1)
    seats.append(seat)
