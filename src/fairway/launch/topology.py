"""The members of a gang and their addresses: the input of launch adapters."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from fairway.units.role import computes

PORTS = 3
"""Minimum number of ports of a task: its address, and two rendezvous points for the collectives."""


def ports_needed(processes: int) -> int:
    """Return how many ports to reserve for a task with so many processes: each process after the first has its own address."""
    return PORTS + max(0, processes - 1)


@dataclass(frozen=True, slots=True)
class GangMember:
    """One task of the gang."""

    role: str
    index: int
    host: str
    ports: tuple[int, ...]
    """Ports that the engine reserved for this task, `ports_needed(processes)` of them; the first is its address."""
    processes: int = 1
    attempt: int = 0
    slots: int = 1
    """The number of processes requested for this task, whether the engine or a launcher starts them."""
    devices: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """`worker-0`."""
        return f"{self.role}-{self.index}"

    @property
    def address(self) -> str:
        """`host:port`."""
        return f"{self.host}:{self.ports[0]}"

    @property
    def remote_port(self) -> int:
        """The port on which the member's pod accepts remote starts: MPI needs no rendezvous points for collectives."""
        return self.ports[1]


@dataclass(frozen=True, slots=True)
class GangTopology:
    """The whole gang, in the order of the document's roles and of index."""

    job: str
    namespace: str
    members: tuple[GangMember, ...]
    attempt: int = 0
    """The gang's attempt: frameworks use it to keep old and new peers apart."""
    starters: Mapping[str, str] = field(default_factory=dict)
    """By role: the launcher that the role's script file calls."""

    def role(self, name: str) -> tuple[GangMember, ...]:
        """Return the members of one role."""
        return tuple(member for member in self.members if member.role == name)

    @property
    def roles(self) -> tuple[str, ...]:
        """The role names in order."""
        return tuple(dict.fromkeys(member.role for member in self.members))

    @property
    def computing(self) -> tuple[GangMember, ...]:
        """The members that have ranks: chief (or master) first, then the others in order."""
        ranked = [member for member in self.members if computes(member.role)]
        return tuple(sorted(ranked, key=lambda member: member.role not in ("chief", "master")))

    @property
    def world_size(self) -> int:
        """The number of ranked processes."""
        return sum(member.processes for member in self.computing)

    def first_rank(self, member: GangMember) -> int | None:
        """Return the global rank of the member's first process; None for roles without ranks."""
        rank = 0
        for other in self.computing:
            if (other.role, other.index) == (member.role, member.index):
                return rank
            rank += other.processes
        return None


@dataclass(frozen=True, slots=True)
class TaskFolders:
    """Paths that the engine created for a task, as text."""

    work: str
    """The working folder of the command: the code."""
    attempt: str
    shared: str
    checkpoints: str
    tensorboard: str
    outputs: dict[str, str] = field(default_factory=dict)
    data: dict[str, str] = field(default_factory=dict)
    """Resolved inputs by name: a path or a URI."""
    runtime: str = ""
    """A folder that contains `fairway.runtime`, to be put on PYTHONPATH."""
    agent: str = ""
    """A command that is called like ssh to run another on the host of a member; empty where all share one machine."""


@dataclass(frozen=True, slots=True)
class LaunchProcess:
    """A process to start: its command, and the variables to add to the task's environment.

    Without a command, the member hosts processes that other members start, with these variables.
    """

    argv: tuple[str, ...]
    env: dict[str, str]
    """Variables that override those of the task's environment. `PYTHONPATH` is prepended to the existing value instead."""
    local_rank: int = 0
    gives_way: frozenset[str] = frozenset()
    """Names in `env` that are only defaults: if the task's environment has the variable already, that value stays."""


@dataclass(frozen=True, slots=True)
class TaskLaunch:
    """What is needed to start a task."""

    processes: tuple[LaunchProcess, ...]
    files: dict[str, str] = field(default_factory=dict)
    """Text files to write into the attempt's folder before the start, by relative path."""
