"""One process's place in the gang, with what every adapter asks of it."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from fairway.launch.topology import Folders, Member, Topology
from fairway.spec.job import Framework, JobSpec, Role
from fairway.state.launching import LIGHTNING, framework_of, starter_of
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
        """The program that starts the ranks of this task, when its command or its script calls one."""
        return self._starter_of(self.member)

    @property
    def starter_is_the_command(self) -> bool:
        """Whether the command is the call of the starter itself, so that its arguments are known."""
        found = None if self.role.script else programs.starter_at(self.role.command)
        return found is not None and found[1] < len(self.role.command)

    @property
    def framework(self) -> Framework:
        """The framework in force."""
        return framework_of(self.spec, self.topology.starters)

    def ranks_of(self, member: Member) -> int:
        """Ranks that a member has, whether the engine or a starter starts them."""
        started_inside = self.framework is Framework.MPI or self._starter_of(member) is not None
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
    def node_local_rank(self) -> int:
        """This process among the ranks of its node, as `torchrun` counts; see `_together`."""
        before = itertools.takewhile(lambda member: member != self.member, self._node)
        return sum(self.ranks_of(member) for member in before) + self.local_rank

    @property
    def node_local_world_size(self) -> int:
        """Ranks of this process's node."""
        return sum(self.ranks_of(member) for member in self._node)

    @property
    def node_rank(self) -> int:
        """This process's node among those of the run."""
        return next((at for at, node in enumerate(self._nodes) if self.member in node), 0)

    @property
    def node_count(self) -> int:
        """Nodes of the run."""
        return len(self._nodes)

    @property
    def first_on_node(self) -> bool:
        """Whether this member does what is done once on its host: the one with the first ranks there, else the first there."""
        here = [member for member in self.topology.members if member.host == self.member.host]
        starts = [member for member in here if self.framework is Framework.MPI and member.role == "launcher"]
        ranked = [member for member in self.topology.computing if member in here]
        return self.member == (starts or ranked or here)[0]

    @property
    def _node(self) -> tuple[Member, ...]:
        here = tuple(member for member in self.topology.computing if member.host == self.member.host)
        return here if self.member in here and self._together(here) else (self.member,)

    @property
    def _nodes(self) -> list[tuple[Member, ...]]:
        """The members that have ranks, by node, in order of their first ranks."""
        hosts: dict[str, list[Member]] = {}
        for member in self.topology.computing:
            hosts.setdefault(member.host, []).append(member)
        return [
            node for here in hosts.values() for node in ([tuple(here)] if self._together(here) else [(each,) for each in here])
        ]

    def _together(self, here: Sequence[Member]) -> bool:
        """Whether the ranks of the members of a host are counted together.

        A local rank is the number of a device to most programs. So they are only where no device depends on it: no member
        there has one, or each sees the same, as many as there are ranks. Lightning takes a local rank for the number of a
        device on CPUs too: with `num_nodes=2, devices=1` there is no second one.
        """
        if LIGHTNING in self.topology.starters.values():
            return False
        seen = {member.devices for member in here}
        ranks = sum(self.ranks_of(member) for member in here)
        return len(seen) == 1 and all(not devices or len(devices) >= ranks for devices in seen)

    @property
    def alone(self) -> bool:
        """Whether the document asks for one process in all, now and always."""
        replicas = sum(role.replicas.max for role in self.spec.roles.values())
        return replicas == 1 and self.local_world_size == 1

    @property
    def starts_own_ranks(self) -> bool:
        """Whether the program is to start ranks by itself where it is alone: Lightning, or one process with several GPUs."""
        return self.topology.starters.get(self.member.role) == LIGHTNING or len(self.member.devices) > 1

    def _starter_of(self, member: Member) -> Starter | None:
        return starter_of(self.spec.roles[member.role], self.topology.starters.get(member.role, ""))


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
