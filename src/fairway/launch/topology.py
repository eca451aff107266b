"""Who is in the gang and where: what a launch adapter works from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from fairway.units.roles import computes

PORTS = 3
"""Ports that a task needs at least: its address, and two meeting points for the collectives."""


def ports_needed(processes: int) -> int:
    """Ports to reserve for a task with so many processes: each process after the first has an address of its own."""
    return PORTS + max(0, processes - 1)


@dataclass(frozen=True, slots=True)
class Member:
    """One task of the gang."""

    role: str
    index: int
    host: str
    ports: tuple[int, ...]
    """Ports that the engine reserved for this task, `ports_needed(processes)` of them; the first is its address."""
    processes: int = 1
    attempt: int = 0
    slots: int = 1
    """What a launcher may put here: the processes asked for, also when the launcher starts them."""
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
        """Where its pod listens for what others want started there: MPI needs no meeting points for collectives."""
        return self.ports[1]


@dataclass(frozen=True, slots=True)
class Topology:
    """The whole gang, in the order of the document's roles and of index."""

    job: str
    namespace: str
    members: tuple[Member, ...]
    attempt: int = 0
    """The gang's attempt: frameworks use it to keep old and new peers apart."""
    starters: Mapping[str, str] = field(default_factory=dict)
    """By role: the launcher that a script file of the role's command was seen to call."""

    def role(self, name: str) -> tuple[Member, ...]:
        """The members of one role."""
        return tuple(member for member in self.members if member.role == name)

    @property
    def roles(self) -> tuple[str, ...]:
        """Role names in order."""
        return tuple(dict.fromkeys(member.role for member in self.members))

    @property
    def computing(self) -> tuple[Member, ...]:
        """The members that have ranks: chief (or master) first, then the others in order."""
        ranked = [member for member in self.members if computes(member.role)]
        return tuple(sorted(ranked, key=lambda member: member.role not in ("chief", "master")))

    @property
    def world_size(self) -> int:
        """Number of ranked processes."""
        return sum(member.processes for member in self.computing)

    def first_rank(self, member: Member) -> int | None:
        """Global rank of the member's first process; None for roles without ranks."""
        rank = 0
        for other in self.computing:
            if (other.role, other.index) == (member.role, member.index):
                return rank
            rank += other.processes
        return None


@dataclass(frozen=True, slots=True)
class Folders:
    """Paths that the engine made for a task, as text."""

    work: str
    """Where the command runs: the code."""
    attempt: str
    shared: str
    checkpoints: str
    tensorboard: str
    outputs: dict[str, str] = field(default_factory=dict)
    data: dict[str, str] = field(default_factory=dict)
    """Resolved inputs by name: a path or a URI."""
    runtime: str = ""
    """A folder that holds `fairway.runtime`, to be put on PYTHONPATH."""
    agent: str = ""
    """A command that is called like ssh to run another on the host of a member; empty where all share one machine."""


@dataclass(frozen=True, slots=True)
class Process:
    """One process to start: what to run and the variables to add to the task's environment.

    Nothing to run: the member is there for what others start on its host, with these variables.
    """

    argv: tuple[str, ...]
    env: dict[str, str]
    """Variables over those that the task has anyway. One is joined, not set: `PYTHONPATH` goes in front of what is there."""
    local_rank: int = 0
    gives_way: frozenset[str] = frozenset()
    """Names in `env` that are only defaults: where the task's environment has the variable already, that value stays."""


@dataclass(frozen=True, slots=True)
class Launch:
    """What a task is made of."""

    processes: tuple[Process, ...]
    files: dict[str, str] = field(default_factory=dict)
    """Text files to write into the attempt's folder before the start, by relative path."""
