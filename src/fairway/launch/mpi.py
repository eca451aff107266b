"""MPI: one task calls `mpirun`, which starts every rank.

In a job with a `launcher`, that is the launcher; the workers are the slots it may use. In a job of workers only, the
workers are folded into one task, and a command that is not `mpirun` itself is put behind it. `mpirun` without
`-n` takes the hostfile's slots. Variables for Open MPI 4 (ORTE) and 5 (PRTE) are set together.
"""

from __future__ import annotations

from fairway.launch.seat import Adapter, Seat
from fairway.launch.topology import Member

HOSTFILE = "hostfile"
LOOPBACK = ("127.", "localhost", "::1")


def variables(seat: Seat) -> dict[str, str]:
    """Where the hostfile lies, for the task that starts the ranks."""
    if not _starts_ranks(seat):
        return {}
    path = f"{seat.folders.attempt}/{HOSTFILE}"
    return {"OMPI_MCA_orte_default_hostfile": path, "PRTE_MCA_prte_default_hostfile": path}


def defaults(seat: Seat) -> dict[str, str]:
    """More ranks than cores are allowed, none is pinned (jobs that share a machine would pin to the same cores), root may."""
    if not _starts_ranks(seat):
        return {}
    found = {
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        "PRTE_ALLOW_RUN_AS_ROOT": "1",
        "PRTE_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        "OMPI_MCA_rmaps_base_oversubscribe": "1",
        "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
        "OMPI_MCA_hwloc_base_binding_policy": "none",
        "PRTE_MCA_hwloc_default_binding_policy": "none",
        # Ranks that wait by spinning starve each other where there are more of them than cores.
        "OMPI_MCA_mpi_yield_when_idle": "1",
    }
    if all(member.host.startswith(LOOPBACK) for member in seat.topology.members):
        # PRTE itself refuses to talk over loopback alone, so there is no such line for it.
        found |= {"OMPI_MCA_oob_tcp_if_include": "127.0.0.0/8", "OMPI_MCA_btl_tcp_if_include": "127.0.0.0/8"}
    return found


def command(seat: Seat, argv: tuple[str, ...]) -> tuple[str, ...]:
    """The command, behind `mpiexec` when it is a plain program and its task starts the ranks."""
    if seat.starter or not _is_folded(seat):
        return argv
    return ("mpiexec", "-n", str(_slots(seat.member)), *argv)


def processes(seat: Seat) -> int:
    """One where `mpirun` starts the ranks; else as the document says."""
    return 1 if _starts_ranks(seat) else seat.member.processes


def files(seat: Seat) -> dict[str, str]:
    """The hostfile: each host once, with the slots of all its members."""
    if not _starts_ranks(seat):
        return {}
    slots: dict[str, int] = {}
    for member in seat.topology.computing or (seat.member,):
        slots[member.host] = slots.get(member.host, 0) + _slots(member)
    return {HOSTFILE: "".join(f"{host} slots={count}\n" for host, count in slots.items())}


def _slots(member: Member) -> int:
    return max(member.processes, member.slots)


def _is_folded(seat: Seat) -> bool:
    return set(seat.spec.roles) == {"worker"}


def _starts_ranks(seat: Seat) -> bool:
    return seat.starter is not None or seat.member.role == "launcher" or _is_folded(seat)


ADAPTER = Adapter(variables=variables, defaults=defaults, command=command, processes=processes, files=files)
