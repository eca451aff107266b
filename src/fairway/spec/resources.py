"""What a task needs and where it may lie."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from fairway.spec.model import Amount, Bytes, SharedMemory, SpecModel


class Resources(SpecModel):
    """Amounts by name."""

    cpu: Amount | None = None
    """Cores; when nothing is said, one a process, or less where the whole gang would not fit otherwise."""
    memory: Bytes | None = None
    """Main memory."""
    gpu: Amount | None = None
    """GPUs; a fraction shares one."""
    gpu_type: tuple[str, ...] = ()
    """Any of these types will do."""
    gpu_memory: Bytes | None = None
    """Memory on a shared GPU."""
    shm: SharedMemory = "auto"
    """Size of /dev/shm in a container; auto lets the engine decide."""
    other: dict[str, Annotated[int, Field(ge=0)]] = {}
    """Any countable resource by name, such as `rdma/hca`."""


class Placement(SpecModel):
    """Hints on where replicas lie."""

    nodes: tuple[str, ...] = ()
    """Only on these nodes."""
    devices: tuple[str, ...] = ()
    """Only on these devices, by UUID or index."""
    labels: dict[str, str] = {}
    """Only on nodes with these labels."""
    together: bool = False
    """All replicas on one node."""
    apart: bool = False
    """No two replicas on one node."""
