"""One process's place in the gang, with what every adapter asks of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from fairway.launch.topology import Folders, Member, Topology
from fairway.spec.job import Framework, JobSpec, Role
from fairway.units import programs
from fairway.units.programs import Starter


@dataclass(frozen=True, slots=True)
class Seat:
    """A process of a member of a gang.

    Ranks are counted over what the members compute with, whoever starts them: a task whose command is
    `torchrun` is one process to the engine, and as many ranks as it was asked for to the others.
    """

    job: str
    spec: JobSpec
    topology: Topology
    member: Member
    folders: Folders
    local_rank: int = 0

    @property
    def role(self) -> Role:
        """What the document says of the member's role."""
        return self.spec.roles[self.member.role]

    @property
    def starter(self) -> Starter | None:
        """The program that starts the ranks of this task, when its command is one."""
        return _starter(self.role)

    def ranks_of(self, member: Member) -> int:
        """Ranks that a member has, whether the engine or a starter starts them."""
        started_inside = self.spec.framework is Framework.MPI or _starter(self.spec.roles[member.role]) is not None
        return max(member.processes, member.slots) if started_inside else member.processes

    @property
    def local_world_size(self) -> int:
        """Ranks of this member."""
        return self.ranks_of(self.member)

    @property
    def world_size(self) -> int:
        """Ranks of the whole gang."""
        return sum(self.ranks_of(member) for member in self.topology.computing)

    @property
    def group_rank(self) -> int | None:
        """This member among those that compute; None for roles without ranks."""
        places = [(member.role, member.index) for member in self.topology.computing]
        own = (self.member.role, self.member.index)
        return places.index(own) if own in places else None

    @property
    def rank(self) -> int | None:
        """This process among all ranks; None for roles without ranks."""
        place = self.group_rank
        if place is None:
            return None
        return sum(self.ranks_of(member) for member in self.topology.computing[:place]) + self.local_rank

    @property
    def first(self) -> Member | None:
        """The member that has rank 0; None when nobody computes."""
        computing = self.topology.computing
        return computing[0] if computing else None

    @property
    def alone(self) -> bool:
        """Whether the document asks for one process in all, now and always."""
        replicas = sum(role.replicas.max for role in self.spec.roles.values())
        return replicas == 1 and self.local_world_size == 1


def _starter(role: Role) -> Starter | None:
    return programs.starter_in_script(role.script) if role.script else programs.starter_of(role.command)


def _nothing(seat: Seat) -> dict[str, str]:
    return {}


def _unchanged(seat: Seat, argv: tuple[str, ...]) -> tuple[str, ...]:
    return argv


def _as_placed(seat: Seat) -> int:
    return 1 if seat.starter else seat.member.processes


@dataclass(frozen=True, slots=True)
class Adapter:
    """How one framework is told of its peers. Each part is a pure function of the seat."""

    variables: Callable[[Seat], dict[str, str]] = _nothing
    """Variables that the framework reads; the document's own win over them."""
    defaults: Callable[[Seat], dict[str, str]] = _nothing
    """Variables that give way also to what the task's environment has."""
    command: Callable[[Seat, tuple[str, ...]], tuple[str, ...]] = _unchanged
    """What is run in place of the document's command."""
    processes: Callable[[Seat], int] = _as_placed
    """How many processes the engine starts."""
    files: Callable[[Seat], dict[str, str]] = field(default=_nothing)
    """Text files for the attempt's folder."""
