"""Price-guided descent, the default: fragmentation, value of GPU remainders, cores for GPUs, and GPU types in demand.

The cost of a place is the sum of: the GPU capacity that typical tasks can no longer use (as in `fgd`), the loss of better
fillings of a GPU (`prices`), GPUs left without cores, and the use of a GPU type that other tasks request by name. Costs are
rounded, so that of places that are about equally good the fuller node wins, and then the first.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fairway.plan.scheduling.gang import WHOLE
from fairway.plan.scheduling.placement.fragmentation_gradient import devices_of
from fairway.plan.scheduling.placement.gpu_type_demand import scarcity
from fairway.plan.scheduling.placement.placement_policy import NEVER, ScoreColumn, ScoreOnlyPolicy
from fairway.plan.scheduling.placement.share_price import SharePrices
from fairway.plan.scheduling.placement.typical_task import Numbers, TypicalTasks
from fairway.plan.scheduling.score_input import DeviceKind, NodeModel, NodeScoreState, ScoreRows, tally
from fairway.plan.scheduling.workload_mix import WorkloadMix

Wholes = NDArray[np.int64]

STEP = 40.0
"""Thousandths of a GPU by which equally good places may differ."""
SPOILT = 6.0
"""Weight of a lost better filling."""
STRANDED = 1.0
"""Weight of GPUs left without cores."""
SOUGHT = 2.0
"""Weight of GPU types that are requested by name."""
FULLER = 0.75
"""Steps by which a node with eight idle GPUs is worse than one with none."""
LARGE = 0.5
"""Exponent of the number of GPUs in the weight of a task."""
CORES = 0.92
"""Fraction of the mix's average cores per GPU below which an idle GPU has too few cores."""
CLOSE = 0.5
"""Tolerance for rounding errors of sums."""
FEWEST = 1e-3
"""Cores per GPU when the mix requests none."""
IMPOSSIBLE = 1e9
TIE = 10_000
"""Score of one step; smaller differences break ties."""


class _DeviceOptions(NamedTuple):
    """Ways to take capacity from devices, independent of the rest of the node: one array row for each way."""

    rows: NDArray[np.intp]
    """Rows of `ScoreRows` to which one of these ways applies."""
    lines: NDArray[np.intp]
    """The way for each of these rows."""
    hosts: Wholes
    """Change in the number of suitable devices, for each typical task."""
    usable: Wholes
    """Change in free thousandths on such devices."""
    taken: Numbers
    cost: Numbers
    """Cost of lost fillings and GPU types in demand."""


class _DevicePlan(NamedTuple):
    """Outcomes for a node's devices, independent of its cores, for each device (first index) and row of `ScoreRows`."""

    recovered: NDArray[np.float32]
    """Usable thousandths after each outcome, summed cumulatively over typical tasks in order of cores; flattened."""
    start: NDArray[np.intp]
    """Start index of the outcome's sums; add the number of typical tasks that have enough cores."""
    taken: Numbers
    gain: Numbers
    """Taken amount less the cost that is independent of cores; a large negative value where it does not fit."""
    slots: NDArray[np.int32]
    """The position of each device."""


class _CoreEffect(NamedTuple):
    """The effect of a number of free cores on each row of `ScoreRows`."""

    enough: NDArray[np.intp]
    """Number of typical tasks for which the remaining cores are enough."""
    served: Numbers
    """Thousandths of GPUs that would still have cores; negative where the cores do not suffice."""


class PriceGuidedPolicy(ScoreOnlyPolicy):
    """Fairway's own policy."""

    def __init__(self, mix: WorkloadMix, models: Mapping[NodeModel, int]) -> None:
        self._mix = mix
        self._typical = TypicalTasks(_weighted(mix))
        self._order = np.argsort(self._typical.cpu, kind="stable")
        self._cpu = self._typical.cpu[self._order]
        self._gpus = self._typical.gpus[self._order]
        self._share = self._typical.share[self._order]
        demand: dict[int, float] = {}
        for shape, count in mix.counts:
            if shape.shares:
                demand[shape.gpu_milli] = demand.get(shape.gpu_milli, 0.0) + count * shape.gpus
        self._prices = SharePrices(demand)
        self._needs: dict[DeviceKind, Wholes] = {}
        none, unchanged = np.zeros(0, np.intp), np.zeros((1, len(self._cpu)), np.int64)
        self._nothing = _DeviceOptions(none, none, unchanged, unchanged, np.zeros(1), np.zeros(1))
        self._sought = scarcity(mix, models)
        self._per_gpu = CORES * cores_per_gpu(mix)
        """Cores that an idle GPU is assumed to need; the same number in thousandths of a core per thousandth of a GPU."""

    @property
    def key(self) -> Hashable:
        """The mix, and the demand for the GPU types of these nodes."""
        return (self._mix, tuple(sorted(self._sought.items())))

    def column(self, specs: ScoreRows, state: NodeScoreState) -> ScoreColumn:
        """Score nodes by the descent in whole steps, with preference for fuller nodes among equals."""
        plan = specs.plans.get((state.model, state.free))
        if not isinstance(plan, _DevicePlan):
            plan = self._plan(specs, state)
            specs.keep((state.model, state.free), plan)
        cores = self._cores(specs, state.cpu)
        free = float(sum(state.free))
        now = plan.recovered[self._cpu.searchsorted(state.cpu, side="right")]
        stranded = np.maximum(free - plan.taken - cores.served, 0.0)
        gain = plan.gain + plan.recovered.take(plan.start + cores.enough)
        gain -= STRANDED * stranded
        best = gain.max(axis=0)
        fits = (cores.served >= 0) & (best > -IMPOSSIBLE / 2)
        best += STRANDED * max(free - state.cpu / self._per_gpu, 0.0) - now
        scores = np.floor((best + CLOSE) / STEP) * TIE - round(FULLER * TIE * free / 8000.0)
        return ScoreColumn(np.where(fits, scores, float(NEVER)).astype(np.int32), plan.slots[gain.argmax(axis=0)])

    def _cores(self, specs: ScoreRows, cpu: int) -> _CoreEffect:
        cores = specs.plans.get(cpu)
        if not isinstance(cores, _CoreEffect):
            free = cpu - specs.cpu
            cores = _CoreEffect(self._cpu.searchsorted(free, side="right"), free / self._per_gpu)
            specs.keep(cpu, cores)
        return cores

    def _plan(self, specs: ScoreRows, state: NodeScoreState) -> _DevicePlan:
        devices = tally(state)
        hosts = np.zeros(len(self._cpu), np.int64)
        usable = np.zeros(len(self._cpu), np.int64)
        for (kind, free), times in devices.items():
            can = self._need(kind) <= free
            hosts += times * can
            usable += times * free * can
        shares = [self._shares(specs, kind, free) for kind, free in devices]
        ways = [self._nothing, *shares, *self._others(specs, state)]
        starts = np.cumsum([0, *(len(way.taken) for way in ways)])
        outcome = np.full((max(1, len(devices)), len(specs.rows)), starts[-1], np.intp)
        for number, (way, start) in enumerate(zip(ways[1:], starts[1:-1].tolist(), strict=True)):
            outcome[number if number < len(shares) else 0, way.rows] = way.lines + start
        hosts = hosts + np.concatenate([way.hosts for way in ways])
        usable = usable + np.concatenate([way.usable for way in ways])
        width = len(self._cpu) + 1
        recovered = np.zeros((len(hosts) + 1, width), np.float32)
        np.cumsum(usable * self._share * (hosts >= self._gpus), axis=1, out=recovered[:-1, 1:])
        taken = np.concatenate([*(way.taken for way in ways), [0.0]])
        cost = np.concatenate([*(way.cost for way in ways), [IMPOSSIBLE]])
        pairs = list(zip(state.model.kinds, state.free, strict=True))
        slots = np.array([pairs.index(device) for device in devices] or [0], np.int32)
        return _DevicePlan(recovered.ravel(), outcome * width, taken[outcome], (taken - cost)[outcome], slots)

    def _need(self, kind: DeviceKind) -> Wholes:
        need = self._needs.get(kind)
        if need is None:
            need = self._needs[kind] = self._typical.need(kind)[self._order]
        return need

    def _shares(self, specs: ScoreRows, kind: DeviceKind, free: int) -> _DeviceOptions:
        """Return the ways to place shares of one device of this kind with this much free."""
        cached = specs.plans.get((kind, free))
        if isinstance(cached, _DeviceOptions):
            return cached
        need = specs.need(kind)
        rows = np.flatnonzero(specs.single & (need <= free))
        sizes, lines = np.unique(need[rows], return_inverse=True)
        after = free - sizes[:, None]
        before, then = self._need(kind) <= free, self._need(kind) <= after
        spoilt = np.array([self._prices.loss(free, int(size)) for size in sizes], np.float64)
        cost = SPOILT * 1000.0 * spoilt + SOUGHT * self._sought.get(kind.type, 0.0) * sizes
        hosts = then.astype(np.int64) - before
        ways = _DeviceOptions(rows, lines, hosts, after * then - free * before, sizes.astype(np.float64), cost)
        specs.keep((kind, free), ways)
        return ways

    def _others(self, specs: ScoreRows, state: NodeScoreState) -> list[_DeviceOptions]:
        """Return the ways for tasks without GPUs, with whole devices and with several shares: one for each."""
        ways_list = []
        for members in specs.groups():
            first = specs.rows[members[0]]
            devices = tuple(devices_of(first, specs, int(members[0]), state)) if first.gpus else ()
            if len(devices) == first.gpus:
                key = (int(members[0]), devices)
                ways = specs.plans.get(key)
                if not isinstance(ways, _DeviceOptions):
                    ways = self._one_way(members, devices)
                    specs.keep(key, ways)
                ways_list.append(ways)
        return ways_list

    def _one_way(self, rows: NDArray[np.intp], devices: Sequence[tuple[DeviceKind, int, int]]) -> _DeviceOptions:
        way = self._nothing._replace(rows=rows, lines=rows * 0)
        for kind, free, taken in devices:
            need, after = self._need(kind), free - taken
            hosts = way.hosts + (need <= after) - (need <= free)
            usable = way.usable + after * (need <= after) - free * (need <= free)
            spoilt = self._prices.loss(free, taken) if taken < WHOLE else 0.0
            cost = way.cost + SPOILT * 1000.0 * spoilt + SOUGHT * self._sought.get(kind.type, 0.0) * taken
            way = way._replace(hosts=hosts, usable=usable, cost=cost, taken=way.taken + taken)
        return way


def _weighted(mix: WorkloadMix) -> WorkloadMix:
    """Return the mix with more weight of tasks with several GPUs: these are few, but a fragmented node costs them many GPUs."""
    return WorkloadMix.of({shape: round(100 * count * max(1, shape.gpus) ** LARGE) for shape, count in mix.counts})


def cores_per_gpu(mix: WorkloadMix) -> float:
    """Return the average cores per GPU that tasks with GPUs request; `FEWEST` when they request none."""
    milli = sum(count * shape.gpus * shape.gpu_milli for shape, count in mix.counts)
    cpu = sum(count * shape.cpu for shape, count in mix.counts if shape.gpus)
    return max(cpu / milli, FEWEST) if milli else FEWEST
