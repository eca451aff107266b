"""Nodes and devices: what there is to run on."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Device:
    """One accelerator."""

    uuid: str
    index: int
    type: str = ""
    memory: int = 0
    """Bytes."""
    healthy: bool = True
    busy_with: str = ""
    """Who uses it besides us: `pid 4711 (python)` or `another fairway home`; empty when nobody."""
    numa: int = -1
    """The NUMA node it hangs on; -1 when unknown."""
    island: str = ""
    """Devices of one island reach each other over direct links (NVLink, xGMI)."""


@dataclass(frozen=True, slots=True)
class Node:
    """One machine: its capacity, whatever is in use."""

    name: str
    cpu: float
    memory: int
    devices: tuple[Device, ...] = ()
    other: dict[str, int] = field(default_factory=dict)
    labels: dict[str, str] = field(default_factory=dict)
    taints: tuple[str, ...] = ()
    """Keep away whoever does not tolerate them."""
    rack: str = ""
    tasks: int = 0
    """How many tasks it takes at most; 0 means any number."""
