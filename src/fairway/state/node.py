"""Nodes and devices."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class NodeDevice:
    """One accelerator."""

    uuid: str
    index: int
    type: str = ""
    memory: int = 0
    """Memory in bytes."""
    healthy: bool = True
    busy_with: str = ""
    """Other user of the device: `pid 4711 (python)` or `another fairway home`; empty if there is none."""
    numa: int = -1
    """NUMA node of the device; -1 if not known."""
    island: str = ""
    """Island of the device: devices of one island are connected by direct links (NVLink, xGMI)."""


@dataclass(frozen=True, slots=True)
class ClusterNode:
    """One machine and its total capacity, regardless of what is in use."""

    name: str
    cpu: float
    memory: int
    devices: tuple[NodeDevice, ...] = ()
    other: dict[str, int] = field(default_factory=dict)
    labels: dict[str, str] = field(default_factory=dict)
    taints: tuple[str, ...] = ()
    """Only tasks that tolerate all taints are placed on the node."""
    rack: str = ""
    tasks: int = 0
    """Maximum number of tasks; 0 means any number."""
