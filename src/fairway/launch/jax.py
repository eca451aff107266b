"""JAX: the variables that `jax.distributed.initialize()` needs when it is called without arguments.

JAX reads the coordinator's address and the device ids from variables of its own. It finds the number of processes and the
process's number only by recognising the environment of a known launcher. The simplest of those is Open MPI's: three numbers and a
variable whose presence identifies the launcher. `JAX_NUM_PROCESSES` and `JAX_PROCESS_ID` are for programs that pass them by hand.
"""

from __future__ import annotations

from fairway.launch.rank_position import LaunchAdapter, RankPosition
from fairway.runtime import task_contract


def variables(seat: RankPosition) -> dict[str, str]:
    """Return the coordinator, the process's number, its devices, and the variable by which JAX recognises a launcher."""
    first = seat.first
    if first is None or seat.rank is None or seat.starter:
        return {}
    address = f"{first.host}:{first.ports[2]}"
    result = {
        "JAX_COORDINATOR_ADDRESS": address,
        # By default JAX listens on every interface; peers on the same machine only need the loopback interface.
        "JAX_COORDINATOR_BIND_ADDRESS": address,
        "JAX_NUM_PROCESSES": str(seat.world_size),
        "JAX_PROCESS_ID": str(seat.rank),
        task_contract.JAX_SIGN: f"{task_contract.NO_LAUNCHER}{address}",
        "OMPI_COMM_WORLD_SIZE": str(seat.world_size),
        "OMPI_COMM_WORLD_RANK": str(seat.rank),
        "OMPI_COMM_WORLD_LOCAL_RANK": str(seat.node_local_rank),
        "OMPI_COMM_WORLD_LOCAL_SIZE": str(seat.node_local_world_size),
    }
    devices = _devices(seat)
    return result | ({"JAX_LOCAL_DEVICE_IDS": devices} if devices else {})


def _devices(seat: RankPosition) -> str:
    """Return this process's share of the task's devices, as positions among them; without it JAX uses a single device."""
    count, ranks = len(seat.member.devices), seat.local_world_size
    begin, end = (count * local // ranks for local in (seat.local_rank, seat.local_rank + 1))
    return ",".join(str(position) for position in range(begin, end))


ADAPTER = LaunchAdapter(variables=variables)
