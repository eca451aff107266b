"""The values of macros: what `{{name}}` stands for in commands and variables of a process."""

from __future__ import annotations

from fairway.launch.pytorch import meeting_point
from fairway.launch.rank_position import RankPosition


def macro_values(seat: RankPosition) -> dict[str, str]:
    """Return a value for every macro that a document may use (`fairway.spec.macro.known`), for one process.

    The rank of a process without ranks, and the hosts of a role that the document lacks, are empty.
    """
    member, folders = seat.member, seat.folders
    values = {
        "job": seat.job,
        "task": member.name,
        "role": member.role,
        "index": str(member.index),
        "rank": "" if seat.rank is None else str(seat.rank),
        "world_size": str(seat.world_size),
        "attempt": str(member.attempt),
        "processes": str(seat.local_world_size),
        "local_rank": str(seat.local_rank),
        "host": member.host,
        "address": member.address,
        "port": str(member.ports[0]),
        "checkpoint_dir": folders.checkpoints,
        "tensorboard_dir": folders.tensorboard,
        "shared_dir": folders.shared,
    }
    point = meeting_point(seat.first or member)
    values |= {name.lower(): value for name, value in point.items()}
    for role in ("ps", "worker", *seat.spec.roles):
        values[f"{role}_hosts"] = ",".join(other.address for other in seat.topology.role(role))
    values |= {f"data.{name}": folders.data.get(name, reference) for name, reference in seat.spec.data.items()}
    values |= {f"output.{name}": folders.outputs.get(name, "") for name in seat.spec.outputs}
    return values
