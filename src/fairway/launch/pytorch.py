"""PyTorch: the variables that `torchrun` would set, together with those that `torchrun` reads.

Every process gets both, because a launcher may be called where it cannot be seen: by a script, or by a program. A plain
program reads the rank variables. `torchrun` forms the gang from `PET_*` (flags of the user win, by its own rules) and
sets the rank variables anew for what it starts; so both may name the same port. `accelerate launch` with several GPUs
reads `PET_*` too, through torchrun's parser; with one device it passes the rank variables on. As the command itself, it
gets the flags that are missing; without GPUs it starts one process, so there the engine starts the ranks.
"""

from __future__ import annotations

from fairway.launch.seat import Adapter, Seat
from fairway.launch.topology import Member
from fairway.spec.job import RestartScope
from fairway.units import programs
from fairway.units.programs import Starter

LAST_CALL = 5
"""Seconds that an elastic rendezvous waits for more members once it has enough: survivors go on this soon."""

_ACCELERATE_KINDS = frozenset({"cpu", "multi_gpu", "tpu", "use_deepspeed", "use_fsdp", "use_megatron_lm", "config_file"})
"""Flags by which a user says what kind of training `accelerate launch` starts."""


def variables(seat: Seat) -> dict[str, str]:
    """What PyTorch, or the starter of its processes, reads."""
    first = seat.first
    if seat.rank is None or first is None:
        return {}
    if seat.starter in (Starter.DEEPSPEED, Starter.MPI):
        return {}
    if _started_by_engine(seat):
        return meeting_point(first) | _for_torchrun(seat, first) | _for_rank(seat) | _as_launched(seat)
    if seat.starter_is_the_command:
        return _for_torchrun(seat, first) if seat.starter is Starter.TORCHRUN else {}
    # A script may do more than call the launcher, and may build the launcher's flags from these.
    return meeting_point(first) | _for_torchrun(seat, first) | _for_rank(seat)


def meeting_point(first: Member) -> dict[str, str]:
    """Where rank 0 listens: the second port of its task."""
    return {"MASTER_ADDR": first.host, "MASTER_PORT": str(first.ports[1])}


def _for_rank(seat: Seat) -> dict[str, str]:
    found = {
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
        found["ACCELERATE_USE_CPU"] = "true"
    return found


def _as_launched(seat: Seat) -> dict[str, str]:
    """The sign that this process is a rank, as `torchrun` gives it to what it starts."""
    return {
        # Lightning and others take this as the sign that ranks were started for them.
        "TORCHELASTIC_RUN_ID": seat.job,
        "TORCHELASTIC_RESTART_COUNT": str(seat.topology.attempt),
        "TORCHELASTIC_MAX_RESTARTS": str(seat.spec.restart.max),
        "TORCHELASTIC_USE_AGENT_STORE": "False",
    }


def _for_torchrun(seat: Seat, first: Member) -> dict[str, str]:
    """What a `torchrun` that this process calls reads: a member is a node to it, or a process where the engine starts several."""
    apart = _started_by_engine(seat)
    members = seat.world_size if apart else len(seat.topology.computing)
    found = {
        "PET_NPROC_PER_NODE": "1" if apart else str(seat.local_world_size),
        "PET_RDZV_ID": f"{seat.job}-{seat.topology.attempt}",
        "PET_LOCAL_ADDR": seat.member.host,
    }
    if not _shrinks(seat):
        return found | {
            "PET_NNODES": str(members),
            "PET_NODE_RANK": str(seat.rank if apart else seat.group_rank),
            "PET_RDZV_BACKEND": "static",
            "PET_MASTER_ADDR": first.host,
            "PET_MASTER_PORT": str(first.ports[1]),
            # A static gang starts again as a whole, and that is the engine's to do.
            "PET_MAX_RESTARTS": "0",
        }
    smallest = sum(role.replicas.min for name, role in seat.spec.roles.items() if name in _computing_roles(seat))
    smallest *= seat.local_world_size if apart else 1
    return found | {
        "PET_NNODES": f"{max(1, min(smallest, members))}:{members}",
        "PET_RDZV_BACKEND": "c10d",
        "PET_RDZV_ENDPOINT": f"{first.host}:{first.ports[1]}",
        "PET_RDZV_CONF": f"last_call_timeout={LAST_CALL}",
        "PET_MAX_RESTARTS": str(seat.spec.restart.max),
    }


def _shrinks(seat: Seat) -> bool:
    elastic = any(role.replicas.min < role.replicas.max for role in seat.spec.roles.values())
    return elastic and seat.spec.restart.scope is RestartScope.SHRINK


def _computing_roles(seat: Seat) -> frozenset[str]:
    return frozenset(member.role for member in seat.topology.computing)


def defaults(seat: Seat) -> dict[str, str]:
    """What torchrun sets as a default, and the store of its own that keeps its restarts from meeting stale peers."""
    return {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1", "TORCH_NCCL_ASYNC_ERROR_HANDLING": "1"}


def processes(seat: Seat) -> int:
    """One a rank, or one when a starter makes the ranks."""
    return seat.local_world_size if _started_by_engine(seat) else 1


def _started_by_engine(seat: Seat) -> bool:
    return seat.starter is None or _each_starts_one(seat)


def _each_starts_one(seat: Seat) -> bool:
    """Whether the starter starts a single process, so that it runs once a rank."""
    return seat.starter is Starter.ACCELERATE and not seat.member.devices


def command(seat: Seat, argv: tuple[str, ...]) -> tuple[str, ...]:
    """The command, with the flags of `accelerate launch` and `deepspeed` that the user left out."""
    found = programs.starter_at(argv)
    flags = _FLAGS.get(found[0]) if found and found[1] < len(argv) else None
    if found is None or flags is None:
        return argv
    place = found[1]
    given = _flags(argv[place:])
    wanted = {name: value for name, value in flags(seat).items() if name not in given}
    if given & _ACCELERATE_KINDS:
        wanted = {name: value for name, value in wanted.items() if name not in _ACCELERATE_KINDS}
    inserted = [word for name, value in wanted.items() for word in ((f"--{name}", value) if value else (f"--{name}",))]
    return (*argv[:place], *inserted, *argv[place:])


def _accelerate_flags(seat: Seat) -> dict[str, str]:
    first = seat.first
    if first is None or seat.rank is None or seat.world_size == 1:
        return {}
    if _each_starts_one(seat):
        return {"cpu": ""}
    machines = len(seat.topology.computing)
    found = {"multi_gpu": "", "num_processes": str(seat.world_size), "main_process_port": str(first.ports[1])}
    if machines > 1:
        found |= {"num_machines": str(machines), "machine_rank": str(seat.group_rank), "main_process_ip": first.host}
    return found


def _deepspeed_flags(seat: Seat) -> dict[str, str]:
    """A port of its own, where it would take the same one in every run of this machine."""
    return {"master_port": str(seat.first.ports[1])} if seat.first is not None else {}


_FLAGS = {Starter.ACCELERATE: _accelerate_flags, Starter.DEEPSPEED: _deepspeed_flags}


def _flags(argv: tuple[str, ...]) -> frozenset[str]:
    """Names of the options before the program, with underscores."""
    found = set()
    for word in argv:
        if word in ("-m", "--module") or word.endswith(".py"):
            break
        if word.startswith("--"):
            found.add(word[2:].partition("=")[0].replace("-", "_"))
    return frozenset(found)


ADAPTER = Adapter(variables=variables, defaults=defaults, command=command, processes=processes)
