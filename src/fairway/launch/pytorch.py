"""PyTorch: the variables that `torchrun` would set, together with those that `torchrun` reads.

Every process gets both, because a script or a program may call a launcher where that cannot be detected. A plain program reads
the rank variables. `torchrun` forms the gang from `PET_*` (flags of the user take precedence, by its own rules) and sets the rank
variables of the processes that it starts; so both may name the same port. `accelerate launch` with several GPUs reads `PET_*`,
too, through torchrun's parser; with one device it passes the rank variables on. When it is the command itself, it gets the flags
that are missing; without GPUs it starts one process, so there the engine starts the ranks.
"""

from __future__ import annotations

from fairway.launch.rank_position import LaunchAdapter, RankPosition
from fairway.launch.topology import GangMember
from fairway.spec.job import RestartScope
from fairway.units import launcher
from fairway.units.launcher import Launcher

LAST_CALL = 5
"""Seconds for which an elastic rendezvous waits for more members once it has enough: survivors continue after this time."""

_ACCELERATE_KINDS = frozenset({"cpu", "multi_gpu", "tpu", "use_deepspeed", "use_fsdp", "use_megatron_lm", "config_file"})
"""Flags that select the kind of training that `accelerate launch` starts."""


def variables(seat: RankPosition) -> dict[str, str]:
    """Return the variables for PyTorch, or for the launcher of its processes."""
    first = seat.first
    if seat.rank is None or first is None:
        return {}
    if seat.starter in (Launcher.DEEPSPEED, Launcher.MPI):
        return {}
    if _started_by_engine(seat):
        return meeting_point(first) | _for_torchrun(seat, first) | _for_rank(seat) | _as_launched(seat)
    if seat.starter_is_the_command:
        return _for_torchrun(seat, first) if seat.starter is Launcher.TORCHRUN else {}
    # A script may do more than call the launcher, and may build the launcher's flags from these variables.
    return meeting_point(first) | _for_torchrun(seat, first) | _for_rank(seat)


def meeting_point(first: GangMember) -> dict[str, str]:
    """Return the rendezvous address on which rank 0 listens: the second port of its task."""
    return {"MASTER_ADDR": first.host, "MASTER_PORT": str(first.ports[1])}


def _for_rank(seat: RankPosition) -> dict[str, str]:
    result = {
        "RANK": str(seat.rank),
        "WORLD_SIZE": str(seat.world_size),
        "LOCAL_RANK": str(seat.node_local_rank),
        "LOCAL_WORLD_SIZE": str(seat.node_local_world_size),
        "GROUP_RANK": str(seat.node_rank),
        "GROUP_WORLD_SIZE": str(seat.node_count),
        "ROLE_NAME": "default",
        "ROLE_RANK": str(seat.rank),
        "ROLE_WORLD_SIZE": str(seat.world_size),
    }
    if not seat.member.devices and seat.world_size > 1:
        # Without this, Accelerate looks for a GPU, finds none, and every rank trains for itself.
        result["ACCELERATE_USE_CPU"] = "true"
    return result


def _as_launched(seat: RankPosition) -> dict[str, str]:
    """Return the variables that mark this process as a rank, as `torchrun` sets them for the processes that it starts."""
    return {
        # Lightning and others take this as the sign that ranks were started for them.
        "TORCHELASTIC_RUN_ID": seat.job,
        "TORCHELASTIC_RESTART_COUNT": str(seat.topology.attempt),
        "TORCHELASTIC_MAX_RESTARTS": str(seat.spec.restart.max),
        "TORCHELASTIC_USE_AGENT_STORE": "False",
    }


def _for_torchrun(seat: RankPosition, first: GangMember) -> dict[str, str]:
    """Return the variables for a `torchrun` that this process calls.

    To torchrun, each member is a node; where the engine starts several processes of a member, each process is a node.
    """
    by_engine = _started_by_engine(seat)
    members = seat.world_size if by_engine else len(seat.topology.computing)
    result = {
        "PET_NPROC_PER_NODE": "1" if by_engine else str(seat.local_world_size),
        "PET_RDZV_ID": f"{seat.job}-{seat.topology.attempt}",
        "PET_LOCAL_ADDR": seat.member.host,
    }
    if not _shrinks(seat):
        return result | {
            "PET_NNODES": str(members),
            "PET_NODE_RANK": str(seat.rank if by_engine else seat.group_rank),
            "PET_RDZV_BACKEND": "static",
            "PET_MASTER_ADDR": first.host,
            "PET_MASTER_PORT": str(first.ports[1]),
            # A static gang restarts as a whole, which is the engine's task.
            "PET_MAX_RESTARTS": "0",
        }
    smallest = sum(role.replicas.min for name, role in seat.spec.roles.items() if name in _computing_roles(seat))
    smallest *= seat.local_world_size if by_engine else 1
    return result | {
        "PET_NNODES": f"{max(1, min(smallest, members))}:{members}",
        "PET_RDZV_BACKEND": "c10d",
        "PET_RDZV_ENDPOINT": f"{first.host}:{first.ports[1]}",
        "PET_RDZV_CONF": f"last_call_timeout={LAST_CALL}",
        "PET_MAX_RESTARTS": str(seat.spec.restart.max),
    }


def _shrinks(seat: RankPosition) -> bool:
    elastic = any(role.replicas.min < role.replicas.max for role in seat.spec.roles.values())
    return elastic and seat.spec.restart.scope is RestartScope.SHRINK


def _computing_roles(seat: RankPosition) -> frozenset[str]:
    return frozenset(member.role for member in seat.topology.computing)


def defaults(seat: RankPosition) -> dict[str, str]:
    """Return torchrun's defaults, and one that gives torchrun its own store, so that its restarts never meet stale peers."""
    return {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1", "TORCH_NCCL_ASYNC_ERROR_HANDLING": "1"}


def processes(seat: RankPosition) -> int:
    """Return one process per rank, or a single one when a launcher starts the ranks."""
    return seat.local_world_size if _started_by_engine(seat) else 1


def _started_by_engine(seat: RankPosition) -> bool:
    return seat.starter is None or _each_starts_one(seat)


def _each_starts_one(seat: RankPosition) -> bool:
    """Whether the launcher starts a single process, so that it is run once per rank."""
    return seat.starter is Launcher.ACCELERATE and not seat.member.devices


def command(seat: RankPosition, argv: tuple[str, ...]) -> tuple[str, ...]:
    """Return the command with the flags of `accelerate launch` and `deepspeed` that the user left out."""
    starter = launcher.starter_at(argv)
    flags = _FLAGS.get(starter[0]) if starter and starter[1] < len(argv) else None
    if starter is None or flags is None:
        return argv
    position = starter[1]
    present = _flags(argv[position:])
    missing = {name: value for name, value in flags(seat).items() if name not in present}
    if present & _ACCELERATE_KINDS:
        missing = {name: value for name, value in missing.items() if name not in _ACCELERATE_KINDS}
    inserted = [word for name, value in missing.items() for word in ((f"--{name}", value) if value else (f"--{name}",))]
    return (*argv[:position], *inserted, *argv[position:])


def _accelerate_flags(seat: RankPosition) -> dict[str, str]:
    first = seat.first
    if first is None or seat.rank is None or seat.world_size == 1:
        return {}
    if _each_starts_one(seat):
        return {"cpu": ""}
    machines = len(seat.topology.computing)
    result = {"multi_gpu": "", "num_processes": str(seat.world_size), "main_process_port": str(first.ports[1])}
    if machines > 1:
        result |= {"num_machines": str(machines), "machine_rank": str(seat.group_rank), "main_process_ip": first.host}
    return result


def _deepspeed_flags(seat: RankPosition) -> dict[str, str]:
    """Return a port of the task's own, since DeepSpeed would use the same port in all runs on this machine."""
    return {"master_port": str(seat.first.ports[1])} if seat.first is not None else {}


_FLAGS = {Launcher.ACCELERATE: _accelerate_flags, Launcher.DEEPSPEED: _deepspeed_flags}


def _flags(argv: tuple[str, ...]) -> frozenset[str]:
    """Return the names of the options before the program, with underscores."""
    names = set()
    for word in argv:
        if word in ("-m", "--module") or word.endswith(".py"):
            break
        if word.startswith("--"):
            names.add(word[2:].partition("=")[0].replace("-", "_"))
    return frozenset(names)


ADAPTER = LaunchAdapter(variables=variables, defaults=defaults, command=command, processes=processes)
