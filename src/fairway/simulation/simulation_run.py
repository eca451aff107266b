"""Run simulations as requested: one after the other for each policy, on the same cluster and the same arrivals."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace

import numpy as np

from fairway.errors import UsageError
from fairway.plan.scheduling.gang import WHOLE, TaskShape
from fairway.plan.scheduling.placement import policy_catalogue
from fairway.plan.scheduling.workload_mix import WorkloadMix
from fairway.simulation.openb_trace import ArrivalOrder, check
from fairway.simulation.placement import churn_experiment, fill_experiment
from fairway.simulation.placement.placement_player import milli_of
from fairway.simulation.placement.placement_result import ChurnResult, PlacementResult
from fairway.simulation.queue.free_gpus import EqualNodes
from fairway.simulation.queue.queue_replay import POLICIES, replay
from fairway.simulation.queue.queue_result import QueueResult
from fairway.simulation.queue.recorded_job import RecordedJob
from fairway.state.node import ClusterNode
from fairway.units.suggestion import did_you_mean

PLACEMENT_POLICIES = tuple(policy_catalogue.POLICIES)
QUEUE_POLICIES = tuple(POLICIES)
DEFAULT_POLICY = "fairway"
FILL = 1.3
"""A random order continues until this many times the existing GPUs have been requested."""

Progress = Callable[[str, int, int], None]
"""Called with the current policy, the number of arrivals or jobs done, and the total."""


@dataclass(frozen=True, slots=True)
class NodeChange:
    """A change of the given machines, for what-if runs."""

    add: int = 0
    gpus: int | None = None
    """GPUs of each added node; None: as many as the most common nodes have."""
    remove: int = 0

    @classmethod
    def parse(cls, add: str, remove: int) -> NodeChange:
        """Parse `4` or `4x8`, and a number of nodes to remove."""
        if not add:
            return cls(remove=remove)
        count, cross, gpus = add.partition("x")
        if not count.isdecimal() or (cross and not gpus.isdecimal()):
            raise UsageError(f"--add-nodes {add}: a number of nodes is needed", fix="write 4, or 4x8 for nodes with 8 GPUs each")
        return cls(int(count), int(gpus) if cross else None, remove)


def check_policies(names: Sequence[str], known: Collection[str]) -> None:
    """Raise `UsageError` for a policy that does not exist."""
    for name in names:
        kind, _, seed = name.partition(":")
        if kind not in known or (seed and (kind != "random" or not seed.isdecimal())):
            fix = did_you_mean(name, known) or f"use one of {', '.join(sorted(known))}"
            raise UsageError(f"--policy {name}: there is no such policy", fix=fix)


def place(
    nodes: Sequence[ClusterNode],
    pods: Sequence[TaskShape],
    order: ArrivalOrder,
    policies: Sequence[str],
    mix: str | WorkloadMix,
    progress: Progress,
) -> list[PlacementResult]:
    """Fill the cluster once for each policy."""
    check_order(nodes, pods, order)
    return [fill_experiment.run(nodes, pods, order, policy, mix, _told(progress, policy)) for policy in policies]


def come_and_go(
    nodes: Sequence[ClusterNode],
    pods: Sequence[TaskShape],
    load: float,
    policies: Sequence[str],
    mix: str | WorkloadMix,
    seed: int,
    progress: Progress,
    *,
    count: int | None = None,
) -> list[ChurnResult]:
    """Run the churn experiment once for each policy, with the same tasks at the same times. `count`: number of tasks."""
    if not load > 0:
        raise UsageError(f"--churn {load:g}: a load above 0 is needed", fix="1.1 requests 10 % more GPUs than there are")
    return [
        churn_experiment.churn(nodes, pods, load, policy, mix, seed, count=count, progress=_told(progress, policy))
        for policy in policies
    ]


def queue(entries: Sequence[RecordedJob], nodes: EqualNodes, policies: Sequence[str], progress: Progress) -> list[QueueResult]:
    """Replay a recorded queue once for each policy."""
    check_policies(policies, QUEUE_POLICIES)
    return [replay(entries, nodes, policy, progress=_told(progress, policy)) for policy in policies]


def _told(progress: Progress, policy: str) -> Callable[[int, int], None]:
    return lambda done, total: progress(policy, done, total)


def check_order(nodes: Sequence[ClusterNode], pods: Sequence[TaskShape], order: ArrivalOrder) -> None:
    """Raise `UsageError` if nodes, pods and order do not belong together."""
    if not nodes or not pods:
        raise UsageError(
            f"the list of {'pods' if nodes else 'nodes'} is empty", fix="use a list with one line for each below the header"
        )
    try:
        check(nodes, pods, order)
    except UsageError as problem:
        fix = "use the order made for these pods and nodes, or omit it to draw one (--seed N)"
        raise UsageError(problem.message, fix=fix) from problem


def drawn_order(nodes: Sequence[ClusterNode], pods: Sequence[TaskShape], seed: int) -> ArrivalOrder:
    """Return a random order: all pods shuffled, then more of them at random, as in the published experiment."""
    random = np.random.default_rng(seed)
    drawn = [int(index) for index in random.permutation(len(pods))]
    target = FILL * WHOLE * sum(len(node.devices) for node in nodes)
    requested = sum(milli_of(pod) for pod in pods)
    if not requested:
        return ArrivalOrder(tuple(drawn))
    while requested < target:
        drawn.append(int(random.integers(len(pods))))
        requested += milli_of(pods[drawn[-1]])
    return ArrivalOrder(tuple(drawn))


def change_queue_nodes(nodes: EqualNodes, change: NodeChange) -> EqualNodes:
    """Return the changed nodes of a queue."""
    if change.gpus not in (None, nodes.gpus):
        fix = f"write --add-nodes {change.add} or {change.add}x{nodes.gpus}"
        raise UsageError(f"nodes with {change.gpus} GPUs cannot be mixed with nodes with {nodes.gpus}", fix=fix)
    return nodes.changed(change.add, change.remove)


def change_nodes(nodes: Sequence[ClusterNode], order: ArrivalOrder, change: NodeChange) -> tuple[list[ClusterNode], ArrivalOrder]:
    """Return the changed nodes of a cluster, and the order with ranks for them: new nodes come last in a tie."""
    if not change.add and not change.remove:
        return list(nodes), order
    if change.remove >= len(nodes):
        raise UsageError(f"--remove-nodes {change.remove}: there are only {len(nodes)} nodes", fix="remove fewer")
    more = [(_commonest(nodes, change.gpus).name, change.add)] if change.add else []
    changed = fill_experiment.changed(nodes, more, _spread(nodes, change.remove))
    if not order.ranks:
        return changed, order
    names = sorted(node.name for node in nodes)
    if len(names) != len(order.ranks):
        check_order(nodes, [TaskShape()] * (1 + max(order.pods, default=0)), order)
    ranks = dict(zip(names, order.ranks, strict=True))
    new_names = sorted(node.name for node in changed)
    return changed, replace(order, ranks=tuple(ranks.get(name, len(ranks) + index) for index, name in enumerate(new_names)))


def _commonest(nodes: Sequence[ClusterNode], gpus: int | None) -> ClusterNode:
    """Return a node of the most common kind, among those with this many GPUs."""
    fitting = [node for node in nodes if (len(node.devices) == gpus if gpus is not None else node.devices)]
    if not fitting:
        sizes = sorted({len(node.devices) for node in nodes})
        fix = f"nodes here have {', '.join(map(str, sizes))} GPUs"
        raise UsageError(f"no node has {'any' if gpus is None else gpus} GPUs, so none can be added", fix=fix)
    kinds = Counter(map(_kind, fitting))
    return max(fitting, key=lambda node: kinds[_kind(node)])


def _kind(node: ClusterNode) -> tuple[float, int, tuple[str, ...]]:
    return (node.cpu, node.memory, tuple(device.type for device in node.devices))


def _spread(nodes: Sequence[ClusterNode], count: int) -> list[str]:
    """Return this many nodes, spread evenly over all kinds."""
    by_kind = sorted(nodes, key=lambda node: (_kind(node), node.name))
    return [by_kind[int((index + 0.5) * len(by_kind) / count)].name for index in range(count)]
