"""Results of simulations as plain data, with the keys on which programs rely."""

from __future__ import annotations

from collections.abc import Sequence

from fairway.simulation.placement.placement_result import ChurnResult, PlacementResult
from fairway.simulation.queue.queue_result import QueueResult

Result = PlacementResult | ChurnResult | QueueResult

_DIGITS = 4


def figures(results: Sequence[Result]) -> dict[str, object]:
    """Return one object for one policy; `{"policies": [...]}`, in the requested order, for several."""
    objects = [_one(result) for result in results]
    return objects[0] if len(objects) == 1 else {"policies": objects}


def _one(result: Result) -> dict[str, object]:
    if isinstance(result, PlacementResult):
        return _placement(result)
    if isinstance(result, ChurnResult):
        return _churn(result)
    return {name: _rounded(value) for name, value in result.figures().items()}


def _placement(result: PlacementResult) -> dict[str, object]:
    return {
        "policy": result.policy,
        "mix": result.mix,
        "nodes": result.nodes,
        "gpus": result.gpus,
        "curve": _curve(result.curve),
        "fragmentation": _curve(result.fragmentation),
        "allocated": _rounded(result.allocated),
        **_shared(result),
    }


def _churn(result: ChurnResult) -> dict[str, object]:
    return {
        "policy": result.policy,
        "mix": result.mix,
        "load": result.load,
        "seed": result.seed,
        "allocation": _rounded(result.allocation),
        "rejected_gpus": _rounded(result.rejected_gpus),
        "series": [[_rounded(time), _rounded(percent)] for time, percent in result.series],
        **_shared(result),
    }


def _shared(result: PlacementResult | ChurnResult) -> dict[str, object]:
    pace = result.pace
    return {
        "kinds": {name: {"arrived": kind.arrived, "rejected": kind.rejected} for name, kind in result.kinds.items()},
        "decisions": pace.decisions,
        "decisions_per_second": round(pace.per_second, 1),
        "p50_us": round(pace.p50_us, 1),
        "p99_us": round(pace.p99_us, 1),
    }


def _curve(points: dict[int, float]) -> dict[str, object]:
    return {str(percent): _rounded(value) for percent, value in points.items()}


def _rounded(value: object) -> object:
    return round(value, _DIGITS) if isinstance(value, float) else value
