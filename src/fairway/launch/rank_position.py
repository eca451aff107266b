"""The position of a process in the gang, with the values that adapters derive from it."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from fairway.launch.topology import GangMember, GangTopology, TaskFolders
from fairway.spec.job import JobSpec, TaskRole, TrainingFramework
from fairway.state.launcher import LIGHTNING, framework_of, starter_of
from fairway.units import launcher
from fairway.units.launcher import Launcher


@dataclass(frozen=True, slots=True)
class RankPosition:
    """A process of a member of a gang.

    Ranks are counted for all members that compute, whatever starts them. A task whose command is `torchrun` is one process to the
    engine, but to the other members as many ranks as torchrun starts.
    """

    job: str
    spec: JobSpec
    topology: GangTopology
    member: GangMember
    folders: TaskFolders
    local_rank: int = 0

    @property
    def role(self) -> TaskRole:
        """The document's description of the member's role."""
        return self.spec.roles[self.member.role]

    @property
    def starter(self) -> Launcher | None:
        """The launcher that starts the ranks of this task, if its command or its script calls one."""
        return self._starter_of(self.member)

    @property
    def starter_is_the_command(self) -> bool:
        """Whether the command itself is the call of the launcher, so that its arguments are known."""
        call = None if self.role.script else launcher.starter_at(self.role.command)
        return call is not None and call[1] < len(self.role.command)

    @property
    def framework(self) -> TrainingFramework:
        """The framework in force."""
        return framework_of(self.spec, self.topology.starters)

    def ranks_of(self, member: GangMember) -> int:
        """Return the number of ranks of a member, whether the engine or a launcher starts them."""
        started_inside = self.framework is TrainingFramework.MPI or self._starter_of(member) is not None
        return max(member.processes, member.slots) if started_inside else member.processes

    @property
    def local_world_size(self) -> int:
        """The number of ranks of this member."""
        return self.ranks_of(self.member)

    @property
    def world_size(self) -> int:
        """The number of ranks of the whole gang."""
        return sum(self.ranks_of(member) for member in self.topology.computing)

    @property
    def group_rank(self) -> int | None:
        """This member's position among those that compute; None for roles without ranks."""
        places = [(member.role, member.index) for member in self.topology.computing]
        own = (self.member.role, self.member.index)
        return places.index(own) if own in places else None

    @property
    def rank(self) -> int | None:
        """This process's number among all ranks; None for roles without ranks."""
        position = self.group_rank
        if position is None:
            return None
        return sum(self.ranks_of(member) for member in self.topology.computing[:position]) + self.local_rank

    @property
    def first(self) -> GangMember | None:
        """The member that has rank 0; None when no member computes."""
        computing = self.topology.computing
        return computing[0] if computing else None

    @property
    def node_local_rank(self) -> int:
        """This process's number among the ranks of its node, as `torchrun` counts; see `_together`."""
        before = itertools.takewhile(lambda member: member != self.member, self._node)
        return sum(self.ranks_of(member) for member in before) + self.local_rank

    @property
    def node_local_world_size(self) -> int:
        """The number of ranks of this process's node."""
        return sum(self.ranks_of(member) for member in self._node)

    @property
    def node_rank(self) -> int:
        """The number of this process's node among those of the run."""
        return next((at for at, node in enumerate(self._nodes) if self.member in node), 0)

    @property
    def node_count(self) -> int:
        """The number of nodes of the run."""
        return len(self._nodes)

    @property
    def first_on_node(self) -> bool:
        """Whether this member does what must be done once on its host.

        That is the member with the first ranks on the host, or else the first member there.
        """
        here = [member for member in self.topology.members if member.host == self.member.host]
        starts = [member for member in here if self.framework is TrainingFramework.MPI and member.role == "launcher"]
        ranked = [member for member in self.topology.computing if member in here]
        return self.member == (starts or ranked or here)[0]

    @property
    def _node(self) -> tuple[GangMember, ...]:
        here = tuple(member for member in self.topology.computing if member.host == self.member.host)
        return here if self.member in here and self._together(here) else (self.member,)

    @property
    def _nodes(self) -> list[tuple[GangMember, ...]]:
        """The members that have ranks, by node, in order of their first ranks."""
        hosts: dict[str, list[GangMember]] = {}
        for member in self.topology.computing:
            hosts.setdefault(member.host, []).append(member)
        return [
            node
            for members in hosts.values()
            for node in ([tuple(members)] if self._together(members) else [(ranked,) for ranked in members])
        ]

    def _together(self, here: Sequence[GangMember]) -> bool:
        """Whether the ranks of the members of a host are counted together.

        Most programs use a local rank as the number of a device. So ranks are only counted together where no device depends on
        it: no member of the host has a device, or each sees the same devices, and as many as there are ranks. Lightning uses a
        local rank as the number of a device on CPUs, too: with `num_nodes=2, devices=1` there is no second one.
        """
        if LIGHTNING in self.topology.starters.values():
            return False
        device_sets = {member.devices for member in here}
        ranks = sum(self.ranks_of(member) for member in here)
        return len(device_sets) == 1 and all(not devices or len(devices) >= ranks for devices in device_sets)

    @property
    def alone(self) -> bool:
        """Whether the document never has more than one process in all."""
        replicas = sum(role.replicas.max for role in self.spec.roles.values())
        return replicas == 1 and self.local_world_size == 1

    @property
    def starts_own_ranks(self) -> bool:
        """Whether the program starts ranks by itself when it is alone: Lightning, or one process with several GPUs."""
        return self.topology.starters.get(self.member.role) == LIGHTNING or len(self.member.devices) > 1

    def _starter_of(self, member: GangMember) -> Launcher | None:
        return starter_of(self.spec.roles[member.role], self.topology.starters.get(member.role, ""))


def _nothing(seat: RankPosition) -> dict[str, str]:
    return {}


def _unchanged(seat: RankPosition, argv: tuple[str, ...]) -> tuple[str, ...]:
    return argv


def _as_placed(seat: RankPosition) -> int:
    return 1 if seat.starter else seat.member.processes


@dataclass(frozen=True, slots=True)
class LaunchAdapter:
    """How a framework finds its peers. Each part is a pure function of the seat."""

    variables: Callable[[RankPosition], dict[str, str]] = _nothing
    """Variables that the framework reads; the document's own take precedence."""
    defaults: Callable[[RankPosition], dict[str, str]] = _nothing
    """Defaults, over which the variables of the task's environment take precedence, too."""
    command: Callable[[RankPosition, tuple[str, ...]], tuple[str, ...]] = _unchanged
    """The command to run in place of the document's."""
    processes: Callable[[RankPosition], int] = _as_placed
    """The number of processes that the engine starts."""
    files: Callable[[RankPosition], dict[str, str]] = field(default=_nothing)
    """Text files for the attempt's folder."""
