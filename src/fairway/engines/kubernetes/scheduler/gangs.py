"""Pods as gangs: what those that wait ask for, what those that sit hold. Pure."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from fairway.engines.kubernetes import gpus, marks
from fairway.engines.kubernetes.objects import Pod
from fairway.engines.kubernetes.scheduler import fitting
from fairway.engines.kubernetes.scheduler.ground import Ground
from fairway.engines.kubernetes.scheduler.needs import host_ports, need_of
from fairway.engines.kubernetes.times import seconds
from fairway.plan.scheduling.request import Request, Running
from fairway.plan.scheduling.shape import WHOLE, Gang, Part, Seat, Shape
from fairway.state.job import JobKey
from fairway.state.node import Node

ALONE = "pod"
"""The role of a pod that is a gang of one."""
LONE_PREFIX = "pod/"


@dataclass(frozen=True, slots=True)
class Place:
    """Where a pod sits, or is taken to sit until its binding is seen."""

    node: str
    devices: tuple[str, ...] = ()
    milli: int = WHOLE
    """Thousandths of each device."""
    part: float = 1.0
    """Of the memory of each device, for frameworks that would take all of it."""


@dataclass(frozen=True, slots=True)
class Member:
    """One pod of a gang."""

    pod: Pod
    role: str
    index: int
    place: Place | None = None

    @property
    def order(self) -> tuple[str, int, str]:
        """In which order seats are given out."""
        return self.role, self.index, self.pod.metadata.name


def key_of_gang(pod: Pod) -> JobKey:
    """Under which name the core knows the pod's gang."""
    annotations, labels = pod.metadata.annotations, pod.metadata.labels
    if marks.GANG not in annotations:
        return JobKey(pod.metadata.namespace, LONE_PREFIX + pod.metadata.name)
    return JobKey(pod.metadata.namespace, labels.get(marks.RUN) or annotations[marks.GANG])


def member_of(pod: Pod, assumed: Place | None) -> Member:
    """The pod's place in its gang, and on the cluster."""
    labels = pod.metadata.labels
    lone = marks.GANG not in pod.metadata.annotations
    role = ALONE if lone else labels.get(marks.ROLE, "worker")
    text = "0" if lone else labels.get(marks.INDEX, "0")
    place = assumed
    if pod.spec.node_name:
        place = Place(pod.spec.node_name, devices_of(pod), gpus.share_of(pod.metadata.annotations))
    return Member(pod, role, marks.read_count(text, 0), place)


def devices_of(pod: Pod) -> tuple[str, ...]:
    """The devices that were chosen for it."""
    return tuple(part for part in pod.metadata.annotations.get(marks.GPU_IDS, "").split(",") if part)


def place_of(seat: Seat, nodes: dict[str, Node]) -> Place:
    """The place that the core has chosen, with what the pod must be told of its devices."""
    own = [one.memory >> 20 for one in nodes[seat.node].devices if one.uuid in seat.devices] if seat.devices else []
    part = gpus.memory_part(seat.shape.gpu_memory, seat.shape.gpu_milli, own)
    return Place(seat.node, seat.devices, seat.milli, part)


class Shapes:
    """The shapes of pods, worked out once for each state of a pod and of the ground."""

    def __init__(self, ground: Ground) -> None:
        self._ground = ground
        self._known: dict[str, tuple[Pod, int, Shape]] = {}
        """By uid: for which very object, on which ground."""

    def of(self, pod: Pod) -> Shape:
        """What the pod takes, and where it may lie."""
        known = self._known.get(pod.metadata.uid)
        if known is not None and known[1] == self._ground.generation and (known[0] is pod or _asks_the_same(known[0], pod)):
            return known[2]
        shape = shape_of(pod, self._ground)
        self._known[pod.metadata.uid] = (pod, self._ground.generation, shape)
        return shape

    def forget(self, uid: str) -> None:
        """The pod is gone."""
        self._known.pop(uid, None)


_ASKING = (marks.NODES, marks.DEVICES, marks.GPUS, marks.GPU_MILLI, marks.GPU_MEMORY, marks.GPU_TYPES)


def _asks_the_same(before: Pod, now: Pod) -> bool:
    """Whether both take the same and may lie at the same places: most changes of a pod are of its status."""
    if any(status.allocated_resources for pod in (before, now) for status in pod.status.container_statuses):
        return False
    one, other = before.spec, now.spec
    noted, marked = before.metadata.annotations, now.metadata.annotations
    return (
        one.containers == other.containers
        and one.init_containers == other.init_containers
        and one.resources == other.resources
        and one.overhead == other.overhead
        and one.node_selector == other.node_selector
        and one.tolerations == other.tolerations
        and one.affinity == other.affinity
        and one.host_network == other.host_network
        and all(noted.get(name) == marked.get(name) for name in _ASKING)
    )


def shape_of(pod: Pod, ground: Ground) -> Shape:
    """What the pod takes, and where it may lie."""
    need, noted = need_of(pod), pod.metadata.annotations
    nodes, devices = _names(noted.get(marks.NODES)), _names(noted.get(marks.DEVICES))
    ports = host_ports(pod)
    if ports:
        ground.know_ports(ports)
    gpus = _count(noted, marks.GPUS, 0)
    other = {**need.other, **dict.fromkeys(ports, 1)}
    return Shape(
        cpu=need.cpu,
        memory=-(-need.memory >> 20),
        gpus=gpus,
        gpu_milli=_count(noted, marks.GPU_MILLI, WHOLE),
        gpu_memory=-(-_count(noted, marks.GPU_MEMORY, 0) >> 20),
        gpu_types=_names(noted.get(marks.GPU_TYPES)) if gpus else (),
        other=tuple(sorted(other.items())),
        where=ground.where(pod, nodes, devices),
    )


def startable(members: Sequence[Member]) -> list[Member]:
    """Those that wait, in the order in which seats are given, as far as everybody is there who starts together with them."""
    waiting = sorted((member for member in members if member.place is None), key=lambda member: member.order)
    whole = {name for name, one in {_name(member): member for member in waiting}.items() if _is_whole(members, one)}
    return [member for member in waiting if _name(member) in whole]


def _is_whole(members: Sequence[Member], one: Member) -> bool:
    """Whether every pod of the gang is there that this one was made with: none starts before."""
    gang = _mark([one])
    return gang is None or not gang.parts or sum(_name(member) == gang.name for member in members) >= gang.size


def _name(member: Member) -> str | None:
    """Which gang it was made with; each attempt of a run is one."""
    return member.pod.metadata.annotations.get(marks.GANG)


def problem(members: Sequence[Member]) -> str:
    """Why this gang can have no place from this scheduler at all; empty when it can."""
    try:
        _mark(members)
    except ValueError as error:
        return str(error)
    miscounted = next((words for member in members if (words := marks.miscounted(member.pod.metadata.annotations))), "")
    return miscounted or next((words for member in members if (words := fitting.unsupported(member.pod))), "")


def request_of(key: JobKey, members: Sequence[Member], shapes: Shapes) -> Request | None:
    """What the pods that wait ask for, all together; None when none waits, or not all are there yet."""
    waiting = startable(members)
    if not waiting or any(member.pod.spec.scheduling_gates for member in waiting):
        return None
    gang = _mark(waiting)
    return _request(key, waiting, Gang(_parts(waiting, gang, shapes), gang is not None and gang.same_rack), gang)


def running_of(
    key: JobKey, members: Sequence[Member], shapes: Shapes, since: float, leaving: Collection[str] = ()
) -> Running | None:
    """What the pods that sit hold; None when none does. `since` when, until a node has begun with one of them.

    `leaving` are the uids of pods that were asked to go, seen or not.
    """
    sitting = sorted((member for member in members if member.place is not None), key=lambda member: member.order)
    if not sitting:
        return None
    gang = _mark(sitting)
    seats = tuple(_seat(member, shapes) for member in sitting)
    since = min((at for member in sitting if (at := seconds(member.pod.status.start_time)) is not None), default=since)
    going = all(member.pod.metadata.deletion_timestamp is not None for member in sitting)
    told = any(marks.LEAVE in member.pod.metadata.annotations or member.pod.metadata.uid in leaving for member in sitting)
    # Where some pods of the gang are over already, it comes to its end: it does not start again to be whole.
    whole = gang is not None and len(sitting) >= gang.size
    parts = tuple(_as_run(part, gang, may_grow=whole) for part in _parts(sitting, gang, shapes))
    request = _request(key, sitting, Gang(parts, gang is not None and gang.same_rack), gang)
    return Running(request, seats, since, gang.saved if gang is not None else None, leaving=going or told)


def _as_run(part: Part, gang: marks.GangMark | None, *, may_grow: bool) -> Part:
    """A run that sits may be shrunk, and perhaps grown, within what its document says."""
    known = gang.parts.get(part.role) if gang is not None else None
    if known is None:
        return part
    least, most = min(known.least, part.least), max(known.most, part.most) if may_grow else part.most
    return Part(part.role, part.shape, least, most, part.together, part.apart)


def _mark(members: Sequence[Member]) -> marks.GangMark | None:
    return marks.read_gang(members[0].pod.metadata.annotations) if members else None


def _parts(members: Iterable[Member], gang: marks.GangMark | None, shapes: Shapes) -> tuple[Part, ...]:
    by_role: dict[str, list[Member]] = {}
    for member in members:
        by_role.setdefault(member.role, []).append(member)
    found = []
    for role, own in by_role.items():
        known = gang.parts.get(role) if gang is not None else None
        together, apart = (known.together, known.apart) if known is not None else (False, False)
        found.append(Part(role, shapes.of(own[0].pod), len(own), len(own), together, apart))
    return tuple(found)


def _request(key: JobKey, members: Sequence[Member], asked: Gang, gang: marks.GangMark | None) -> Request:
    first = members[0].pod
    made = seconds(first.metadata.creation_timestamp) or 0.0
    ours = marks.made_by_us(first.metadata.labels)
    # A pod that Fairway did not make does not choose its own turn: it has the default queue and its own class of priority.
    noted = first.metadata.annotations if ours else {}
    believed = gang if ours else None
    return Request(
        key=key,
        gang=asked,
        submitted=made if believed is None or believed.submitted is None else believed.submitted,
        queue=noted.get(marks.QUEUE, "default"),
        user=noted.get(marks.USER, ""),
        name=noted.get(marks.SERIES, key.name),
        priority=_count(noted, marks.PRIORITY, first.spec.priority),
        limit=believed.time_limit if believed is not None else None,
        resumes=gang is not None and gang.saved is not None,
        service=first.metadata.labels.get(marks.SERVICE, "") if ours else "",
    )


def _seat(member: Member, shapes: Shapes) -> Seat:
    assert member.place is not None
    place = member.place
    return Seat(member.role, member.index, shapes.of(member.pod), place.node, place.devices, place.milli)


def _names(text: str | None) -> tuple[str, ...]:
    try:
        found = json.loads(text) if text else []
    except (ValueError, RecursionError):
        return ()
    return tuple(str(one) for one in found) if isinstance(found, list) else ()


def _count(noted: Mapping[str, str], name: str, fallback: int) -> int:
    return marks.read_count(noted.get(name), fallback, *marks.COUNTS[name])
