"""`DMLC_*` variables: for MXNet's parameter servers, and for the tracker of XGBoost.

MXNet has the roles worker, server (or ps) and one scheduler. Without a scheduler these are the variables of a tracker, which an
XGBoost program starts in its first worker.
"""

from __future__ import annotations

from fairway.launch.rank_position import LaunchAdapter, RankPosition

_ROLES = {"worker": "worker", "chief": "worker", "master": "worker", "server": "server", "ps": "server", "scheduler": "scheduler"}


def variables(seat: RankPosition) -> dict[str, str]:
    """Return this process's role, the number of workers and servers, and the scheduler's address."""
    schedulers = seat.topology.role("scheduler")
    if not schedulers:
        return _tracker(seat)
    if seat.member.role not in _ROLES:
        return {}
    return {
        "DMLC_ROLE": _ROLES[seat.member.role],
        "DMLC_PS_ROOT_URI": schedulers[0].host,
        "DMLC_PS_ROOT_PORT": str(schedulers[0].ports[0]),
        "DMLC_NUM_WORKER": str(_count(seat, "worker")),
        "DMLC_NUM_SERVER": str(_count(seat, "server")),
        "DMLC_NODE_HOST": seat.member.host,
    }


def _tracker(seat: RankPosition) -> dict[str, str]:
    """Return the address on which the tracker is to listen, and this process's number among the workers."""
    if seat.first is None or seat.rank is None or seat.starter:
        return {}
    return {
        "DMLC_TRACKER_URI": seat.first.host,
        "DMLC_TRACKER_PORT": str(seat.first.ports[1]),
        "DMLC_TASK_ID": str(seat.rank),
        "DMLC_NUM_WORKER": str(seat.world_size),
    }


def _count(seat: RankPosition, kind: str) -> int:
    return sum(member.processes for member in seat.topology.members if _ROLES.get(member.role) == kind)


ADAPTER = LaunchAdapter(variables=variables)
