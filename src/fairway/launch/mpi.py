"""MPI: one task calls `mpirun`, which starts every rank.

In a job with a `launcher`, that is the launcher; the workers are the slots it may use. In a job of workers only it is the
first of them, and a command that is not `mpirun` itself is put behind it: on one machine the workers are folded into that
one task, on several the others wait for what it starts there. `mpirun` without `-n` takes the hostfile's slots.
Variables for Open MPI 4 (ORTE) and 5 (PRTE) are set together: each ignores the other's without a word, and a job of three
hosts would run on one.
"""

from __future__ import annotations

import json

from fairway.launch.seat import Adapter, Seat
from fairway.launch.topology import Member
from fairway.runtime import contract
from fairway.spec.job import Framework

HOSTFILE = "hostfile"
LOOPBACK = ("127.", "localhost", "::1")


def variables(seat: Seat) -> dict[str, str]:
    """Where the hostfile lies, for the task that starts the ranks."""
    if not _starts_ranks(seat):
        return {}
    path = f"{seat.folders.attempt}/{HOSTFILE}"
    found = {"OMPI_MCA_orte_default_hostfile": path, "PRTE_MCA_prte_default_hostfile": path}
    return found | (_reaching(seat) if seat.folders.agent else {})


def _reaching(seat: Seat) -> dict[str, str]:
    """How hosts are reached: each by our agent from here, and its daemon stays attached, so that it ends with the agent."""
    hosts = {member.host: member.remote_port for member in _hosts(seat)}
    return {
        contract.REMOTE_HOSTS: json.dumps(hosts, separators=(",", ":")),
        "OMPI_MCA_plm": "rsh",
        "PRTE_MCA_plm": "ssh",
        "OMPI_MCA_plm_rsh_agent": seat.folders.agent,
        "PRTE_MCA_plm_ssh_agent": seat.folders.agent,
        "OMPI_MCA_plm_rsh_no_tree_spawn": "1",
        "PRTE_MCA_plm_ssh_no_tree_spawn": "1",
        "OMPI_MCA_plm_rsh_num_concurrent": str(len(hosts) + 1),
        "PRTE_MCA_plm_ssh_num_concurrent": str(len(hosts) + 1),
        "OMPI_MCA_orte_leave_session_attached": "1",
        "PRTE_MCA_prte_leave_session_attached": "1",
        "OMPI_MCA_orte_keep_fqdn_hostnames": "true",
        "PRTE_MCA_prte_keep_fqdn_hostnames": "false",
    }


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
        "OMPI_MCA_rmaps_base_mapping_policy": "slot",
        "PRTE_MCA_rmaps_default_mapping_policy": "slot:oversubscribe",
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
    """The command, behind `mpiexec` where it is a plain program and starts the ranks; none where the task only hosts them."""
    if not _has_workers_only(seat):
        return argv
    if not _starts_ranks(seat):
        return ()
    return argv if seat.starter else ("mpiexec", "-n", str(seat.world_size), *argv)


def processes(seat: Seat) -> int:
    """One where `mpirun` starts the ranks; else as the document says."""
    return 1 if _starts_ranks(seat) or _has_workers_only(seat) else seat.member.processes


def files(seat: Seat) -> dict[str, str]:
    """The hostfile: each host once, with the slots of all its members."""
    if not _starts_ranks(seat):
        return {}
    slots: dict[str, int] = {}
    for member in _hosts(seat):
        slots[member.host] = slots.get(member.host, 0) + _slots(member)
    return {HOSTFILE: "".join(f"{host} slots={count}\n" for host, count in slots.items())}


def _slots(member: Member) -> int:
    return max(member.processes, member.slots)


def _hosts(seat: Seat) -> tuple[Member, ...]:
    return seat.topology.computing or (seat.member,)


def _has_workers_only(seat: Seat) -> bool:
    return seat.framework is Framework.MPI and set(seat.spec.roles) == {"worker"}


def _starts_ranks(seat: Seat) -> bool:
    if _has_workers_only(seat):
        return seat.member.index == 0
    return seat.starter is not None or seat.member.role == "launcher"


ADAPTER = Adapter(variables=variables, defaults=defaults, command=command, processes=processes, files=files)
