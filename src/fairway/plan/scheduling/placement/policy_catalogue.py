"""The placement policies by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from fairway.plan.scheduling.gang import TaskShape
from fairway.plan.scheduling.placement.best_fit import BestFitPolicy
from fairway.plan.scheduling.placement.bundle import BundlePolicy
from fairway.plan.scheduling.placement.dot_product import DotProductPolicy
from fairway.plan.scheduling.placement.fragmentation_gradient import FragmentationGradientPolicy
from fairway.plan.scheduling.placement.gpu_clustering import GpuClusteringPolicy
from fairway.plan.scheduling.placement.gpu_packing import GpuPackingPolicy
from fairway.plan.scheduling.placement.placement_policy import PlacementPolicy
from fairway.plan.scheduling.placement.price_guided import PriceGuidedPolicy
from fairway.plan.scheduling.placement.random_choice import RandomPolicy
from fairway.plan.scheduling.placement.spread import SpreadPolicy
from fairway.plan.scheduling.score_input import NodeModel
from fairway.plan.scheduling.workload_mix import WorkloadMix

UNKNOWN = WorkloadMix(((TaskShape(gpus=1), 1),))
"""The assumed mix without data: tasks that each use one whole GPU."""

POLICIES: dict[str, Callable[[WorkloadMix, Mapping[NodeModel, int]], PlacementPolicy]] = {
    "best-fit": lambda _mix, _models: BestFitPolicy(),
    "bundle": lambda _mix, _models: BundlePolicy(),
    "dot-product": lambda _mix, _models: DotProductPolicy(),
    "fairway": lambda mix, models: PriceGuidedPolicy(mix, models),
    "fgd": lambda mix, _models: FragmentationGradientPolicy(mix),
    "gpu-clustering": lambda _mix, _models: GpuClusteringPolicy(),
    "gpu-packing": lambda _mix, _models: GpuPackingPolicy(),
    "random": lambda _mix, _models: RandomPolicy(),
    "spread": lambda _mix, _models: SpreadPolicy(),
}


def make(name: str, mix: WorkloadMix, models: Mapping[NodeModel, int]) -> PlacementPolicy:
    """Return the policy of that name. Some policies use the mix, and the numbers of nodes of each model.

    `random:7` uses the seed 7.
    """
    kind, _, seed = name.partition(":")
    if kind == "random" and seed:
        return RandomPolicy(int(seed))
    return POLICIES[name](mix or UNKNOWN, models)
