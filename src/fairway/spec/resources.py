"""What a task needs and where it may lie."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from fairway.spec.model import Amount, Bytes, SharedMemory, SpecModel
from fairway.units import quantity

WHOLE_GPU = 1000
"""Thousandths of a GPU."""


class Resources(SpecModel):
    """Amounts by name."""

    cpu: Amount | None = None
    """Cores; when nothing is said, one a process, or less where the whole gang would not fit otherwise."""
    memory: Bytes | None = None
    """Main memory."""
    gpu: Amount | None = None
    """GPUs; less than one is a share of one: `0.25` means `gpu: 1` with `gpu_share: 0.25`."""
    gpu_share: Amount | None = None
    """The part of each GPU, up to 1; the rest is for others. Alone it means a share of one GPU."""
    gpu_type: tuple[str, ...] = ()
    """Any of these types will do."""
    gpu_memory: Bytes | None = None
    """Memory on each GPU: taken from a shared one, the least that a whole one must have. Alone: one GPU, shared by memory."""
    shm: SharedMemory = "auto"
    """Size of /dev/shm in a container; auto lets the engine decide."""
    other: dict[str, Annotated[int, Field(ge=0)]] = {}
    """Any countable resource by name, such as `rdma/hca`."""


@dataclass(frozen=True, slots=True)
class GpuAsk:
    """The GPUs that a task asks for, whichever way it was written."""

    count: int = 0
    """Devices."""
    milli: int = WHOLE_GPU
    """Thousandths of each; fewer than all share it."""
    memory: int = 0
    """Bytes of each: taken from a shared device, the least that a whole one must have."""


def gpu_ask(asked: Resources) -> GpuAsk:
    """What the document says of GPUs, in numbers. Shared by memory alone, a task takes what its memory is of the device."""
    memory = quantity.byte_count(asked.gpu_memory) if asked.gpu_memory is not None else 0
    share = quantity.number(asked.gpu_share) if asked.gpu_share is not None else None
    if asked.gpu is None:
        if share is not None:
            return GpuAsk(1, _milli(share), memory)
        return GpuAsk(1, 1, memory) if memory else GpuAsk()
    count = quantity.number(asked.gpu)
    if not count:
        return GpuAsk()
    return GpuAsk(1, _milli(count), memory) if count < 1 else GpuAsk(int(count), _milli(1.0 if share is None else share), memory)


def _milli(share: float) -> int:
    return max(1, round(share * WHOLE_GPU))


class Placement(SpecModel):
    """Where replicas lie, and beside which others."""

    nodes: tuple[str, ...] = ()
    """Only on these nodes."""
    devices: tuple[str, ...] = ()
    """Only on these devices, by UUID or index."""
    labels: dict[str, str] = {}
    """Only on nodes with these labels."""
    tolerations: tuple[str, ...] = ()
    """Taints that do not keep it away from a node; `*` means all."""
    together: bool = False
    """All replicas on one node."""
    apart: bool = False
    """No two replicas on one node."""
    same_rack: bool = False
    """All tasks of the run within one rack."""
    alone: bool = False
    """No neighbours on its GPUs: what it leaves of a shared one stays empty."""
