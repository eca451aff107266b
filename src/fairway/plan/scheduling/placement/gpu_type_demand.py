"""The demand for each GPU type by name."""

from __future__ import annotations

from collections.abc import Mapping

from fairway.plan.scheduling.gang import WHOLE
from fairway.plan.scheduling.score_input import NodeModel
from fairway.plan.scheduling.workload_mix import WorkloadMix


def scarcity(mix: WorkloadMix, models: Mapping[NodeModel, int]) -> dict[str, float]:
    """Return, by type, the fraction that tasks request by name when the mix fills the cluster, less the smallest such fraction.

    It is zero for all types when no task names a type, and for the type in least demand, which tasks without a type should use.
    """
    capacity: dict[str, int] = {}
    for model, nodes in models.items():
        for kind in model.kinds:
            capacity[kind.type] = capacity.get(kind.type, 0) + WHOLE * nodes
    requested = sum(count * shape.gpus * shape.gpu_milli for shape, count in mix.counts)
    if not requested or not capacity:
        return dict.fromkeys(capacity, 0.0)
    named = dict.fromkeys(capacity, 0.0)
    scale = sum(capacity.values()) / requested
    for shape, count in mix.counts:
        choice = {name: capacity[name] for name in shape.gpu_types if name in capacity}
        for name, have in choice.items():
            named[name] += scale * count * shape.gpus * shape.gpu_milli * have / sum(choice.values())
    demand = {name: named[name] / capacity[name] for name in capacity}
    least = min(demand.values())
    return {name: part - least for name, part in demand.items()}
