"""TensorFlow: `TF_CONFIG`, with every task of the cluster and this process's position in it."""

from __future__ import annotations

import json

from fairway.errors import BugError
from fairway.launch.rank_position import LaunchAdapter, RankPosition
from fairway.launch.topology import PORTS, GangMember, ports_needed

CLUSTER_ROLES = ("chief", "master", "worker", "ps")
"""Roles of the cluster. An evaluator gets the cluster but is no part of it."""


def variables(seat: RankPosition) -> dict[str, str]:
    """Return `TF_CONFIG`; nothing for a role that TensorFlow does not have."""
    role = seat.member.role
    if seat.starter or role not in (*CLUSTER_ROLES, "evaluator"):
        return {}
    cluster = {name: _addresses(seat.topology.role(name)) for name in CLUSTER_ROLES if name in seat.topology.roles}
    before = sum(member.processes for member in seat.topology.role(role) if member.index < seat.member.index)
    config = {"cluster": cluster, "task": {"type": role, "index": before + seat.local_rank}}
    return {"TF_CONFIG": json.dumps(config, separators=(",", ":"))}


def _addresses(members: tuple[GangMember, ...]) -> list[str]:
    return [f"{member.host}:{_port(member, local)}" for member in members for local in range(member.processes)]


def _port(member: GangMember, local: int) -> int:
    """Return a process's own port: the task's first port, or one after the rendezvous ports."""
    place = local and PORTS + local - 1
    if place >= len(member.ports):
        has = f"{member.name} has {member.processes} processes and {len(member.ports)} ports"
        message = f"{has}; the engine must reserve {ports_needed(member.processes)}"
        raise BugError(message)
    return member.ports[place]


def defaults(seat: RankPosition) -> dict[str, str]:
    """Return a default that makes servers which start at different times wait for each other instead of failing fast."""
    return {"GRPC_FAIL_FAST": "use_caller"}


ADAPTER = LaunchAdapter(variables=variables, defaults=defaults)
