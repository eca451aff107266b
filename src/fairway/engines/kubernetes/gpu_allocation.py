"""Which component allocates the GPUs of a node: our scheduler, or a device plug-in with the kubelet. Pure.

Both on one node would allocate the same GPU twice. So our scheduler never allocates GPUs on a node that reports those of a device
plug-in, whatever its `GpuNode` contains.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fairway.engines.kubernetes import annotation, quantity
from fairway.engines.kubernetes.objects import GpuNode
from fairway.engines.kubernetes.objects import KubernetesNode as NodeObject
from fairway.state.node import NodeDevice

VENDOR = "nvidia.com/"
"""The resources of NVIDIA's device plug-in: `nvidia.com/gpu`, `nvidia.com/gpu.shared`, `nvidia.com/mig-1g.5gb`."""
WHOLE = 1000


def by_plugin(found: NodeObject) -> bool:
    """Whether a device plug-in allocates GPUs there.

    A plug-in that restarts reports none for a while, but their capacity remains.
    """
    status = found.status
    reported = (*status.capacity.items(), *status.allocatable.items())
    return any(name.startswith(VENDOR) and quantity.whole(text) > 0 for name, text in reported)


def ours(found: NodeObject | None, gpus: GpuNode | None) -> tuple[NodeDevice, ...]:
    """Return the GPUs of a node that our scheduler allocates; none where it allocates none."""
    if gpus is None or not gpus.spec.managed or (found is not None and by_plugin(found)):
        return ()
    return devices_of(gpus)


def devices_of(gpus: GpuNode, *, excluding: bool = True) -> tuple[NodeDevice, ...]:
    """Return the GPUs of a node, whichever component allocates them; excluded ones count as unhealthy."""
    excluded = frozenset(gpus.spec.exclude if excluding else ())
    return tuple(
        NodeDevice(
            uuid=gpu.uuid,
            index=gpu.index,
            type=gpu.type,
            memory=gpu.memory,
            healthy=gpu.healthy and gpu.uuid not in excluded,
            numa=gpu.numa,
            island=gpu.island,
        )
        for gpu in sorted(gpus.status.gpus, key=lambda gpu: gpu.index)
    )


def chosen(devices: Sequence[str], milli: int, part: float) -> dict[str, str]:
    """Return the GPU annotations for a pod's Binding.

    `part`: fraction of GPU memory, for frameworks that would allocate all of it.
    """
    if not devices:
        return {}
    annotations = {annotation.GPU_IDS: ",".join(devices)}
    return (
        annotations if milli >= WHOLE else {**annotations, annotation.GPU_SHARE: str(milli), annotation.GPU_PART: f"{part:.3f}"}
    )


def share_of(annotations: Mapping[str, str]) -> int:
    """Return the thousandths of each of its GPUs that a bound pod was given."""
    return annotation.read_count(annotations.get(annotation.GPU_SHARE), WHOLE, 1, WHOLE)


def memory_part(asked: int, milli: int, memory: Sequence[int]) -> float:
    """Return the fraction of each GPU's memory that a task which shares them may use. Amounts are in MiB, or any one unit."""
    if not asked:
        return milli / WHOLE
    return min((asked / total for total in memory if total), default=milli / WHOLE)
