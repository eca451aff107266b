"""The placement policies by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from fairway.plan.scheduling.placement.best_fit import BestFit
from fairway.plan.scheduling.placement.bundle import Bundle
from fairway.plan.scheduling.placement.dot_product import DotProduct
from fairway.plan.scheduling.placement.fairway import Fairway
from fairway.plan.scheduling.placement.fgd import Fgd
from fairway.plan.scheduling.placement.gpu_clustering import GpuClustering
from fairway.plan.scheduling.placement.gpu_packing import GpuPacking
from fairway.plan.scheduling.placement.lots import Random
from fairway.plan.scheduling.placement.mix import Mix
from fairway.plan.scheduling.placement.policy import Policy
from fairway.plan.scheduling.placement.specs import Model
from fairway.plan.scheduling.placement.spread import Spread
from fairway.plan.scheduling.shape import Shape

UNKNOWN = Mix(((Shape(gpus=1), 1),))
"""The assumed mix without data: tasks that each use one whole GPU."""

POLICIES: dict[str, Callable[[Mix, Mapping[Model, int]], Policy]] = {
    "best-fit": lambda _mix, _models: BestFit(),
    "bundle": lambda _mix, _models: Bundle(),
    "dot-product": lambda _mix, _models: DotProduct(),
    "fairway": lambda mix, models: Fairway(mix, models),
    "fgd": lambda mix, _models: Fgd(mix),
    "gpu-clustering": lambda _mix, _models: GpuClustering(),
    "gpu-packing": lambda _mix, _models: GpuPacking(),
    "random": lambda _mix, _models: Random(),
    "spread": lambda _mix, _models: Spread(),
}


def make(name: str, mix: Mix, models: Mapping[Model, int]) -> Policy:
    """Return the policy of that name. Some policies use the mix, and the numbers of nodes of each model.

    `random:7` uses the seed 7.
    """
    kind, _, seed = name.partition(":")
    if kind == "random" and seed:
        return Random(int(seed))
    return POLICIES[name](mix or UNKNOWN, models)
