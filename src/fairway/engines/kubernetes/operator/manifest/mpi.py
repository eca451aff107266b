"""MPI over pods: which pods start ranks in other pods, and which task those ranks report for. Pure."""

from __future__ import annotations

from fairway.engines.kubernetes.operator.installation import FrameworkRuntime
from fairway.launch.topology import GangMember, GangTopology
from fairway.runtime.pod.pod_order import RemoteOrder
from fairway.spec.job import JobSpec, TrainingFramework
from fairway.state.job import JobState
from fairway.state.launcher import framework_of, starter_of
from fairway.units.role import leader

AGENT = "fairway/runtime/pod/remote_agent.py"
"""Run by its path, so that no file in the code folder can shadow a module that it imports."""


def agent(job: JobState, runtime: FrameworkRuntime, injected: str) -> str:
    """Return the command that `mpirun` runs in place of ssh; empty for runs that do not use MPI."""
    uses_mpi = framework_of(job.spec, job.origin.starters) is TrainingFramework.MPI
    return f"{runtime.python} {injected}/{AGENT}" if uses_mpi else ""


def listening(spec: JobSpec, topology: GangTopology, member: GangMember) -> RemoteOrder | None:
    """Return how a pod accepts ranks that other pods start in it; None for runs without MPI.

    The run's first rank reports for the run's leading task, as it does where everything is one task.
    """
    if framework_of(spec, topology.starters) is not TrainingFramework.MPI:
        return None
    speaker = member
    if topology.computing and topology.computing[0] == member:
        first = leader(tuple(spec.roles))
        speaker = next((other for other in topology.members if other.name == first), member)
    ranks = max(member.processes, member.slots)
    return RemoteOrder(
        member.remote_port, topology.attempt, speaker.name, speaker.attempt, ranks, _must_reach(spec, topology, member)
    )


def _must_reach(spec: JobSpec, topology: GangTopology, member: GangMember) -> list[str]:
    """Return the hosts where an `mpiexec` command that we generate must start ranks; empty for commands that users write."""
    if set(spec.roles) != {"worker"} or member.index or starter_of(spec.roles["worker"], topology.starters.get("worker", "")):
        return []
    return [other.host for other in topology.computing if other != member]
