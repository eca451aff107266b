"""Who hands out the GPUs of a node: our scheduler, or a device plug-in and the kubelet. Pure.

Where both could, nobody may: a plug-in would give away again what we gave. So a node that ever showed a plug-in's GPUs is never
ours, whatever its `GpuNode` says.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fairway.engines.kubernetes import amounts, marks
from fairway.engines.kubernetes.objects import GpuNode
from fairway.engines.kubernetes.objects import Node as NodeObject
from fairway.state.node import Device

VENDOR = "nvidia.com/"
"""The resources of NVIDIA's device plug-in: `nvidia.com/gpu`, `nvidia.com/gpu.shared`, `nvidia.com/mig-1g.5gb`."""
WHOLE = 1000


def by_plugin(found: NodeObject) -> bool:
    """Whether a device plug-in hands out GPUs there. One that restarts shows none for a while, but their number stays."""
    status = found.status
    amounts_told = (*status.capacity.items(), *status.allocatable.items())
    return any(name.startswith(VENDOR) and amounts.whole(text) > 0 for name, text in amounts_told)


def ours(found: NodeObject | None, gpus: GpuNode | None) -> tuple[Device, ...]:
    """The GPUs of a node that our scheduler hands out; none where it does not."""
    if gpus is None or not gpus.spec.managed or (found is not None and by_plugin(found)):
        return ()
    return devices_of(gpus)


def devices_of(gpus: GpuNode, *, excluding: bool = True) -> tuple[Device, ...]:
    """The GPUs of a node, whoever hands them out; those that are excluded are as good as sick."""
    excluded = frozenset(gpus.spec.exclude if excluding else ())
    return tuple(
        Device(
            uuid=one.uuid,
            index=one.index,
            type=one.type,
            memory=one.memory,
            healthy=one.healthy and one.uuid not in excluded,
            numa=one.numa,
            island=one.island,
        )
        for one in sorted(gpus.status.gpus, key=lambda one: one.index)
    )


def chosen(devices: Sequence[str], milli: int, part: float) -> dict[str, str]:
    """What the Binding of a pod says of its GPUs. `part`: of their memory, for frameworks that would take all of it."""
    if not devices:
        return {}
    said = {marks.GPU_IDS: ",".join(devices)}
    return said if milli >= WHOLE else {**said, marks.GPU_SHARE: str(milli), marks.GPU_PART: f"{part:.3f}"}


def share_of(annotations: Mapping[str, str]) -> int:
    """Thousandths that a bound pod was given of each of its GPUs."""
    return marks.read_count(annotations.get(marks.GPU_SHARE), WHOLE, 1, WHOLE)


def memory_part(asked: int, milli: int, memory: Sequence[int]) -> float:
    """Of the memory of each of its GPUs: what a task that shares them may take. In MiB, or any unit."""
    if not asked:
        return milli / WHOLE
    return min((asked / one for one in memory if one), default=milli / WHOLE)
