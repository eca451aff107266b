"""MPI over pods: who starts ranks in other pods, and for whom those speak. Pure."""

from __future__ import annotations

from fairway.engines.kubernetes.operator.installation import Runtime
from fairway.launch.topology import Member, Topology
from fairway.runtime.pod.order import Remote
from fairway.spec.job import Framework, JobSpec
from fairway.units.programs import starter_in_script, starter_of
from fairway.units.roles import leader

AGENT = "fairway/runtime/pod/remote_agent.py"
"""By its path: nothing in the folder of the code can take the place of a module that it needs."""


def agent(spec: JobSpec, runtime: Runtime, injected: str) -> str:
    """What `mpirun` calls in place of ssh; empty for runs that need no such thing."""
    return f"{runtime.python} {injected}/{AGENT}" if spec.framework is Framework.MPI else ""


def listening(spec: JobSpec, topology: Topology, member: Member) -> Remote | None:
    """How a pod listens for what others start in it; None for runs that start nothing there.

    The run's first rank speaks for the task that speaks for the run, as it does where all are one task.
    """
    if spec.framework is not Framework.MPI:
        return None
    speaker = member
    if topology.computing and topology.computing[0] == member:
        first = leader(tuple(spec.roles))
        speaker = next((each for each in topology.members if each.name == first), member)
    ranks = max(member.processes, member.slots)
    return Remote(member.remote_port, topology.attempt, speaker.name, speaker.attempt, ranks, _must_reach(spec, topology, member))


def _must_reach(spec: JobSpec, topology: Topology, member: Member) -> list[str]:
    """Where the call of `mpiexec` that we have written ourselves must start ranks; what users write is theirs."""
    if set(spec.roles) != {"worker"} or member.index or _starts_own(spec):
        return []
    return [other.host for other in topology.computing if other != member]


def _starts_own(spec: JobSpec) -> bool:
    """Whether the document calls `mpirun` itself."""
    role = spec.roles["worker"]
    return bool(starter_in_script(role.script) if role.script else starter_of(role.command))
