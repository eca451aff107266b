"""The resources of a task and the constraints on its placement."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from fairway.spec.spec_model import Amount, Bytes, SharedMemory, SpecModel
from fairway.units import quantity

WHOLE_GPU = 1000
"""Thousandths of a GPU."""


class ResourceAmounts(SpecModel):
    """Amounts of resources."""

    cpu: Amount | None = None
    """CPU cores. Default: one per process, or less if the whole gang would not fit otherwise."""
    memory: Bytes | None = None
    """Main memory."""
    gpu: Amount | None = None
    """Number of GPUs. Less than 1 is a share of one GPU: `0.25` means `gpu: 1` with `gpu_share: 0.25`."""
    gpu_share: Amount | None = None
    """Share of each GPU, up to 1; the rest is available to other tasks. Without `gpu` it means a share of one GPU."""
    gpu_type: tuple[str, ...] = ()
    """Accepted GPU types; any one of them will do."""
    gpu_memory: Bytes | None = None
    """Memory on each GPU: reserved on a shared GPU, the minimum that a whole GPU must have. Without `gpu`: one GPU, shared by
    memory."""
    shm: SharedMemory = "auto"
    """Size of /dev/shm in a container; auto lets Fairway choose."""
    other: dict[str, Annotated[int, Field(ge=0)]] = {}
    """Any countable resource by name, such as `rdma/hca`."""


@dataclass(frozen=True, slots=True)
class GpuRequest:
    """The GPUs that a task requests, in normal form."""

    count: int = 0
    """Number of devices."""
    milli: int = WHOLE_GPU
    """Thousandths of each device; less than 1000 means that devices are shared."""
    memory: int = 0
    """Bytes of memory on each device: reserved on a shared device, the minimum that a whole one must have."""


def gpu_ask(asked: ResourceAmounts) -> GpuRequest:
    """Return the GPU request of a document in numbers.

    A task that requests GPU memory alone is shared by memory: it gets the part of the device that its memory is.
    """
    memory = quantity.byte_count(asked.gpu_memory) if asked.gpu_memory is not None else 0
    share = quantity.number(asked.gpu_share) if asked.gpu_share is not None else None
    if asked.gpu is None:
        if share is not None:
            return GpuRequest(1, _milli(share), memory)
        return GpuRequest(1, 1, memory) if memory else GpuRequest()
    count = quantity.number(asked.gpu)
    if not count:
        return GpuRequest()
    return (
        GpuRequest(1, _milli(count), memory)
        if count < 1
        else GpuRequest(int(count), _milli(1.0 if share is None else share), memory)
    )


def _milli(share: float) -> int:
    return max(1, round(share * WHOLE_GPU))


class PlacementConstraints(SpecModel):
    """Constraints on where replicas are placed, and next to which other tasks."""

    nodes: tuple[str, ...] = ()
    """Only on these nodes."""
    devices: tuple[str, ...] = ()
    """Only on these devices, by UUID or index."""
    labels: dict[str, str] = {}
    """Only on nodes with these labels."""
    tolerations: tuple[str, ...] = ()
    """Taints that the replicas tolerate; `*` means all."""
    together: bool = False
    """Place all replicas on one node."""
    apart: bool = False
    """Place each replica on a different node."""
    same_rack: bool = False
    """Place all tasks of the run within one rack."""
    alone: bool = False
    """Share its GPUs with no other task; the unused part of a shared GPU stays free."""
