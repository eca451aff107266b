"""MPI over pods: who starts ranks in other pods, and for whom those speak. Pure."""

from __future__ import annotations

from fairway.engines.kubernetes.operator.installation import Runtime
from fairway.launch.topology import Member, Topology
from fairway.runtime.pod.order import Remote
from fairway.spec.job import Framework, JobSpec
from fairway.state.job import Job
from fairway.state.launching import framework_of, starter_of
from fairway.units.roles import leader

AGENT = "fairway/runtime/pod/remote_agent.py"
"""By its path: nothing in the folder of the code can take the place of a module that it needs."""


def agent(job: Job, runtime: Runtime, injected: str) -> str:
    """What `mpirun` calls in place of ssh; empty for runs that need no such thing."""
    uses_mpi = framework_of(job.spec, job.origin.starters) is Framework.MPI
    return f"{runtime.python} {injected}/{AGENT}" if uses_mpi else ""


def listening(spec: JobSpec, topology: Topology, member: Member) -> Remote | None:
    """How a pod listens for what others start in it; None for runs that start nothing there.

    The run's first rank speaks for the task that speaks for the run, as it does where all are one task.
    """
    if framework_of(spec, topology.starters) is not Framework.MPI:
        return None
    speaker = member
    if topology.computing and topology.computing[0] == member:
        first = leader(tuple(spec.roles))
        speaker = next((each for each in topology.members if each.name == first), member)
    ranks = max(member.processes, member.slots)
    return Remote(member.remote_port, topology.attempt, speaker.name, speaker.attempt, ranks, _must_reach(spec, topology, member))


def _must_reach(spec: JobSpec, topology: Topology, member: Member) -> list[str]:
    """Where the call of `mpiexec` that we have written ourselves must start ranks; what users write is theirs."""
    if set(spec.roles) != {"worker"} or member.index or starter_of(spec.roles["worker"], topology.starters.get("worker", "")):
        return []
    return [other.host for other in topology.computing if other != member]
