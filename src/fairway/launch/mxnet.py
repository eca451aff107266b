"""MXNet: the `DMLC_*` variables of its parameter servers. Roles: worker, server (or ps) and one scheduler."""

from __future__ import annotations

from fairway.launch.seat import Adapter, Seat

_ROLES = {"worker": "worker", "chief": "worker", "master": "worker", "server": "server", "ps": "server", "scheduler": "scheduler"}


def variables(seat: Seat) -> dict[str, str]:
    """Who this process is, how many others there are, and where the scheduler listens."""
    schedulers = seat.topology.role("scheduler")
    if not schedulers or seat.member.role not in _ROLES:
        return {}
    return {
        "DMLC_ROLE": _ROLES[seat.member.role],
        "DMLC_PS_ROOT_URI": schedulers[0].host,
        "DMLC_PS_ROOT_PORT": str(schedulers[0].ports[0]),
        "DMLC_NUM_WORKER": str(_count(seat, "worker")),
        "DMLC_NUM_SERVER": str(_count(seat, "server")),
        "DMLC_NODE_HOST": seat.member.host,
    }


def _count(seat: Seat, kind: str) -> int:
    return sum(member.processes for member in seat.topology.members if _ROLES.get(member.role) == kind)


ADAPTER = Adapter(variables=variables)
