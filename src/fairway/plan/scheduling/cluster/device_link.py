"""Choice of the devices of a node with the best links between them."""

from __future__ import annotations

from collections.abc import Sequence

from fairway.state.node import NodeDevice


def closest(devices: Sequence[NodeDevice], positions: Sequence[int], count: int) -> tuple[int, ...]:
    """Return `count` of the positions: on one island of direct links if possible, else on one NUMA node, else the first.

    Of several islands the smallest one that suffices is taken, so that larger ones stay whole. Devices of unknown island or NUMA
    node count as equal.
    """
    if count >= len(positions) or count < 2:
        return tuple(positions[:count])
    for groups in (_groups(positions, [devices[at].island for at in positions]), _numa(devices, positions)):
        enough = [group for group in groups if len(group) >= count]
        if enough:
            return tuple(min(enough, key=lambda group: (len(group), group))[:count])
    islands = _groups(positions, [devices[at].island for at in positions])
    by_size = sorted(islands, key=lambda group: (-len(group), group))
    chosen = [at for group in by_size for at in group][:count] if len(islands) > 1 else positions[:count]
    return tuple(sorted(chosen))


def _numa(devices: Sequence[NodeDevice], positions: Sequence[int]) -> list[list[int]]:
    return _groups(positions, [str(devices[at].numa) if devices[at].numa >= 0 else "" for at in positions])


def _groups(positions: Sequence[int], names: Sequence[str]) -> list[list[int]]:
    groups: dict[str, list[int]] = {}
    for at, name in zip(positions, names, strict=True):
        if name:
            groups.setdefault(name, []).append(at)
    return list(groups.values())
