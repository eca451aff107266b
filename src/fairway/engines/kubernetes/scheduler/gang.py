"""Groups pods into gangs: computes what the waiting pods request and what the running pods hold. Pure."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from fairway.engines.kubernetes import annotation, gpu_allocation
from fairway.engines.kubernetes.objects import Pod
from fairway.engines.kubernetes.scheduler import node_filter
from fairway.engines.kubernetes.scheduler.cluster_node import ClusterNodes
from fairway.engines.kubernetes.scheduler.pod_resource import host_ports, need_of
from fairway.engines.kubernetes.timestamp import seconds
from fairway.plan.scheduling.gang import WHOLE, GangRole, GangShape, TaskSeat, TaskShape
from fairway.plan.scheduling.gang_request import GangRequest, RunningGang
from fairway.state.job import JobKey
from fairway.state.node import ClusterNode

ALONE = "pod"
"""The role of a pod that is a gang by itself."""
LONE_PREFIX = "pod/"


@dataclass(frozen=True, slots=True)
class PodPlacement:
    """Where a pod runs, or is assumed to run until its binding shows."""

    node: str
    devices: tuple[str, ...] = ()
    milli: int = WHOLE
    """Thousandths of each device."""
    part: float = 1.0
    """Fraction of each device's memory, for frameworks that would take all of it."""


@dataclass(frozen=True, slots=True)
class GangPod:
    """One pod of a gang."""

    pod: Pod
    role: str
    index: int
    place: PodPlacement | None = None

    @property
    def order(self) -> tuple[str, int, str]:
        """The sort key by which seats are assigned."""
        return self.role, self.index, self.pod.metadata.name


def key_of_gang(pod: Pod) -> JobKey:
    """Return the key of the pod's gang in the core."""
    annotations, labels = pod.metadata.annotations, pod.metadata.labels
    if annotation.GANG not in annotations:
        return JobKey(pod.metadata.namespace, LONE_PREFIX + pod.metadata.name)
    return JobKey(pod.metadata.namespace, labels.get(annotation.RUN) or annotations[annotation.GANG])


def member_of(pod: Pod, assumed: PodPlacement | None) -> GangPod:
    """Return the pod's role and index in its gang, and its place on the cluster."""
    labels = pod.metadata.labels
    lone = annotation.GANG not in pod.metadata.annotations
    role = ALONE if lone else labels.get(annotation.ROLE, "worker")
    text = "0" if lone else labels.get(annotation.INDEX, "0")
    place = assumed
    if pod.spec.node_name:
        place = PodPlacement(pod.spec.node_name, devices_of(pod), gpu_allocation.share_of(pod.metadata.annotations))
    return GangPod(pod, role, annotation.read_count(text, 0), place)


def devices_of(pod: Pod) -> tuple[str, ...]:
    """Return the devices that were chosen for the pod."""
    return tuple(part for part in pod.metadata.annotations.get(annotation.GPU_IDS, "").split(",") if part)


def place_of(seat: TaskSeat, nodes: dict[str, ClusterNode]) -> PodPlacement:
    """Return the place of a seat, with the device settings that the pod must get."""
    memory_sizes = (
        [device.memory >> 20 for device in nodes[seat.node].devices if device.uuid in seat.devices] if seat.devices else []
    )
    part = gpu_allocation.memory_part(seat.shape.gpu_memory, seat.shape.gpu_milli, memory_sizes)
    return PodPlacement(seat.node, seat.devices, seat.milli, part)


class PodShapeCache:
    """The shapes of pods, computed once for each state of a pod and of the nodes."""

    def __init__(self, ground: ClusterNodes) -> None:
        self._ground = ground
        self._known: dict[str, tuple[Pod, int, TaskShape]] = {}
        """By uid: the pod object and the generation of the nodes for which the shape was computed."""

    def of(self, pod: Pod) -> TaskShape:
        """Return what the pod takes, and which nodes it may have."""
        cached = self._known.get(pod.metadata.uid)
        if cached is not None and cached[1] == self._ground.generation and (cached[0] is pod or _asks_the_same(cached[0], pod)):
            return cached[2]
        shape = shape_of(pod, self._ground)
        self._known[pod.metadata.uid] = (pod, self._ground.generation, shape)
        return shape

    def forget(self, uid: str) -> None:
        """Drop the shape of a removed pod."""
        self._known.pop(uid, None)


_ASKING = (
    annotation.NODES,
    annotation.DEVICES,
    annotation.GPUS,
    annotation.GPU_MILLI,
    annotation.GPU_MEMORY,
    annotation.GPU_TYPES,
)


def _asks_the_same(before: Pod, now: Pod) -> bool:
    """Return whether both versions of a pod have the same shape: most changes of a pod are of its status."""
    if any(status.allocated_resources for pod in (before, now) for status in pod.status.container_statuses):
        return False
    one, other = before.spec, now.spec
    old_notes, new_notes = before.metadata.annotations, now.metadata.annotations
    return (
        one.containers == other.containers
        and one.init_containers == other.init_containers
        and one.resources == other.resources
        and one.overhead == other.overhead
        and one.node_selector == other.node_selector
        and one.tolerations == other.tolerations
        and one.affinity == other.affinity
        and one.host_network == other.host_network
        and all(old_notes.get(name) == new_notes.get(name) for name in _ASKING)
    )


def shape_of(pod: Pod, ground: ClusterNodes) -> TaskShape:
    """Return what the pod takes, and which nodes it may have."""
    need, noted = need_of(pod), pod.metadata.annotations
    nodes, devices = _names(noted.get(annotation.NODES)), _names(noted.get(annotation.DEVICES))
    ports = host_ports(pod)
    if ports:
        ground.know_ports(ports)
    gpus = _count(noted, annotation.GPUS, 0)
    other = {**need.other, **dict.fromkeys(ports, 1)}
    return TaskShape(
        cpu=need.cpu,
        memory=-(-need.memory >> 20),
        gpus=gpus,
        gpu_milli=_count(noted, annotation.GPU_MILLI, WHOLE),
        gpu_memory=-(-_count(noted, annotation.GPU_MEMORY, 0) >> 20),
        gpu_types=_names(noted.get(annotation.GPU_TYPES)) if gpus else (),
        other=tuple(sorted(other.items())),
        where=ground.where(pod, nodes, devices),
    )


def startable(members: Sequence[GangPod]) -> list[GangPod]:
    """Return the waiting pods in seat order, leaving out those whose gang is not complete yet."""
    waiting = sorted((member for member in members if member.place is None), key=lambda member: member.order)
    whole = {
        name for name, last_member in {_name(member): member for member in waiting}.items() if _is_whole(members, last_member)
    }
    return [member for member in waiting if _name(member) in whole]


def _is_whole(members: Sequence[GangPod], one: GangPod) -> bool:
    """Return whether all pods exist that were created together with this one: none of them starts before."""
    gang = _mark([one])
    return gang is None or not gang.parts or sum(_name(member) == gang.name for member in members) >= gang.size


def _name(member: GangPod) -> str | None:
    """Return the name of the gang with which the pod was created. Each attempt of a run has its own."""
    return member.pod.metadata.annotations.get(annotation.GANG)


def problem(members: Sequence[GangPod]) -> str:
    """Return why this scheduler cannot place the gang at all; empty when it can."""
    try:
        _mark(members)
    except ValueError as error:
        return str(error)
    miscounted = next((words for member in members if (words := annotation.miscounted(member.pod.metadata.annotations))), "")
    return miscounted or next((words for member in members if (words := node_filter.unsupported(member.pod))), "")


def request_of(key: JobKey, members: Sequence[GangPod], shapes: PodShapeCache) -> GangRequest | None:
    """Return the request of the waiting pods as one gang; None when none waits, or when not all of them exist yet."""
    waiting = startable(members)
    if not waiting or any(member.pod.spec.scheduling_gates for member in waiting):
        return None
    gang = _mark(waiting)
    return _request(key, waiting, GangShape(_parts(waiting, gang, shapes), gang is not None and gang.same_rack), gang)


def running_of(
    key: JobKey, members: Sequence[GangPod], shapes: PodShapeCache, since: float, leaving: Collection[str] = ()
) -> RunningGang | None:
    """Return what the placed pods hold; None when no pod is placed.

    `since` is the start time to report until a node has started one of them. `leaving` holds the uids of pods that were told to
    leave, whether or not their objects show it already.
    """
    sitting = sorted((member for member in members if member.place is not None), key=lambda member: member.order)
    if not sitting:
        return None
    gang = _mark(sitting)
    seats = tuple(_seat(member, shapes) for member in sitting)
    since = min((at for member in sitting if (at := seconds(member.pod.status.start_time)) is not None), default=since)
    going = all(member.pod.metadata.deletion_timestamp is not None for member in sitting)
    told_to_leave = any(
        annotation.LEAVE in member.pod.metadata.annotations or member.pod.metadata.uid in leaving for member in sitting
    )
    # Where some pods of the gang have finished, the gang is about to end: it does not start again to be whole.
    whole = gang is not None and len(sitting) >= gang.size
    parts = tuple(_as_run(part, gang, may_grow=whole) for part in _parts(sitting, gang, shapes))
    request = _request(key, sitting, GangShape(parts, gang is not None and gang.same_rack), gang)
    return RunningGang(request, seats, since, gang.saved if gang is not None else None, leaving=going or told_to_leave)


def _as_run(part: GangRole, gang: annotation.GangAnnotation | None, *, may_grow: bool) -> GangRole:
    """Allow a running part to be shrunk, and perhaps grown, within the bounds of its document."""
    described = gang.parts.get(part.role) if gang is not None else None
    if described is None:
        return part
    least, most = min(described.least, part.least), max(described.most, part.most) if may_grow else part.most
    return GangRole(part.role, part.shape, least, most, part.together, part.apart)


def _mark(members: Sequence[GangPod]) -> annotation.GangAnnotation | None:
    return annotation.read_gang(members[0].pod.metadata.annotations) if members else None


def _parts(members: Iterable[GangPod], gang: annotation.GangAnnotation | None, shapes: PodShapeCache) -> tuple[GangRole, ...]:
    by_role: dict[str, list[GangPod]] = {}
    for member in members:
        by_role.setdefault(member.role, []).append(member)
    parts = []
    for role, own in by_role.items():
        described = gang.parts.get(role) if gang is not None else None
        together, apart = (described.together, described.apart) if described is not None else (False, False)
        parts.append(GangRole(role, shapes.of(own[0].pod), len(own), len(own), together, apart))
    return tuple(parts)


def _request(key: JobKey, members: Sequence[GangPod], asked: GangShape, gang: annotation.GangAnnotation | None) -> GangRequest:
    first = members[0].pod
    created = seconds(first.metadata.creation_timestamp) or 0.0
    ours = annotation.made_by_us(first.metadata.labels)
    # A pod that Fairway did not create does not choose its own turn: it gets the default queue and its own priority class.
    noted = first.metadata.annotations if ours else {}
    believed = gang if ours else None
    return GangRequest(
        key=key,
        gang=asked,
        submitted=created if believed is None or believed.submitted is None else believed.submitted,
        queue=noted.get(annotation.QUEUE, "default"),
        user=noted.get(annotation.USER, ""),
        name=noted.get(annotation.SERIES, key.name),
        priority=_count(noted, annotation.PRIORITY, first.spec.priority),
        limit=believed.time_limit if believed is not None else None,
        resumes=gang is not None and gang.saved is not None,
        service=first.metadata.labels.get(annotation.SERVICE, "") if ours else "",
    )


def _seat(member: GangPod, shapes: PodShapeCache) -> TaskSeat:
    assert member.place is not None
    place = member.place
    return TaskSeat(member.role, member.index, shapes.of(member.pod), place.node, place.devices, place.milli)


def _names(text: str | None) -> tuple[str, ...]:
    try:
        names = json.loads(text) if text else []
    except (ValueError, RecursionError):
        return ()
    return tuple(str(name) for name in names) if isinstance(names, list) else ()


def _count(noted: Mapping[str, str], name: str, fallback: int) -> int:
    return annotation.read_count(noted.get(name), fallback, *annotation.COUNTS[name])
