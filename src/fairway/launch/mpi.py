"""MPI: one task calls `mpirun`, which starts every rank.

In a job with a `launcher`, that is the launcher; the workers are the slots that it may use. In a job with workers only it is the
first worker. A command that is not `mpirun` itself is run by `mpiexec` then. On one machine the workers are merged into that one
task; on several the others wait for the ranks that it starts on their hosts. `mpirun` without `-n` uses the hostfile's slots.
Variables for Open MPI 4 (ORTE) and 5 (PRTE) are set together: each silently ignores the other's, and with the wrong ones a job of
three hosts would run on one.
"""

from __future__ import annotations

import json

from fairway.launch.rank_position import LaunchAdapter, RankPosition
from fairway.launch.topology import GangMember
from fairway.runtime import task_contract
from fairway.spec.job import TrainingFramework

HOSTFILE = "hostfile"
LOOPBACK = ("127.", "localhost", "::1")


def variables(seat: RankPosition) -> dict[str, str]:
    """Return the path of the hostfile, for the task that starts the ranks."""
    if not _starts_ranks(seat):
        return {}
    path = f"{seat.folders.attempt}/{HOSTFILE}"
    result = {"OMPI_MCA_orte_default_hostfile": path, "PRTE_MCA_prte_default_hostfile": path}
    return result | (_reaching(seat) if seat.folders.agent else {})


def _reaching(seat: RankPosition) -> dict[str, str]:
    """Return how hosts are reached: through our agent. Its remote daemon stays attached, so that it ends with the agent."""
    hosts = {member.host: member.remote_port for member in _hosts(seat)}
    return {
        task_contract.REMOTE_HOSTS: json.dumps(hosts, separators=(",", ":")),
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


def defaults(seat: RankPosition) -> dict[str, str]:
    """Return defaults that allow more ranks than cores, pin no rank, and allow running as root.

    Ranks are not pinned because jobs that share a machine would pin to the same cores.
    """
    if not _starts_ranks(seat):
        return {}
    result = {
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        "PRTE_ALLOW_RUN_AS_ROOT": "1",
        "PRTE_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        "OMPI_MCA_rmaps_base_oversubscribe": "1",
        "OMPI_MCA_rmaps_base_mapping_policy": "slot",
        "PRTE_MCA_rmaps_default_mapping_policy": "slot:oversubscribe",
        "OMPI_MCA_hwloc_base_binding_policy": "none",
        "PRTE_MCA_hwloc_default_binding_policy": "none",
        # Ranks that busy-wait starve each other where there are more of them than cores.
        "OMPI_MCA_mpi_yield_when_idle": "1",
    }
    if all(member.host.startswith(LOOPBACK) for member in seat.topology.members):
        # PRTE refuses to communicate over loopback only, so there are no such variables for it.
        result |= {"OMPI_MCA_oob_tcp_if_include": "127.0.0.0/8", "OMPI_MCA_btl_tcp_if_include": "127.0.0.0/8"}
    return result


def command(seat: RankPosition, argv: tuple[str, ...]) -> tuple[str, ...]:
    """Return the command: run by `mpiexec` if it is a plain program and starts the ranks; empty if the task only hosts ranks."""
    if not _has_workers_only(seat):
        return argv
    if not _starts_ranks(seat):
        return ()
    return argv if seat.starter else ("mpiexec", "-n", str(seat.world_size), *argv)


def processes(seat: RankPosition) -> int:
    """Return one where `mpirun` starts the ranks; otherwise the number in the document."""
    return 1 if _starts_ranks(seat) or _has_workers_only(seat) else seat.member.processes


def files(seat: RankPosition) -> dict[str, str]:
    """Return the hostfile: each host once, with the slots of all its members."""
    if not _starts_ranks(seat):
        return {}
    slots: dict[str, int] = {}
    for member in _hosts(seat):
        slots[member.host] = slots.get(member.host, 0) + _slots(member)
    return {HOSTFILE: "".join(f"{host} slots={count}\n" for host, count in slots.items())}


def _slots(member: GangMember) -> int:
    return max(member.processes, member.slots)


def _hosts(seat: RankPosition) -> tuple[GangMember, ...]:
    return seat.topology.computing or (seat.member,)


def _has_workers_only(seat: RankPosition) -> bool:
    return seat.framework is TrainingFramework.MPI and set(seat.spec.roles) == {"worker"}


def _starts_ranks(seat: RankPosition) -> bool:
    if _has_workers_only(seat):
        return seat.member.index == 0
    return seat.starter is not None or seat.member.role == "launcher"


ADAPTER = LaunchAdapter(variables=variables, defaults=defaults, command=command, processes=processes, files=files)
