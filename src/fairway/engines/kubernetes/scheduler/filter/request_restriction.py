"""Restricts the nodes that a gang may have by what the core does not cover: pods placed already, and volumes. Pure.

The core gets node names. For a single pod these are the nodes that will do now. The pods of a gang may depend on each other: then
places for all of them are chosen here, one pod after the other, and the core is asked for just those.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from fairway.engines.kubernetes.objects import Pod, key_of
from fairway.engines.kubernetes.scheduler.filter import pod_affinity
from fairway.engines.kubernetes.scheduler.filter.placed_pod import PlacedPods, attracted, repelled
from fairway.engines.kubernetes.scheduler.filter.pod_affinity import NodeCheck
from fairway.engines.kubernetes.scheduler.filter.volume_filter import VolumeTopology, claims_of
from fairway.engines.kubernetes.scheduler.gang import GangPod
from fairway.engines.kubernetes.scheduler.node_filter import NodeNames
from fairway.plan.scheduling.gang import GangRole, GangShape, TaskShape
from fairway.plan.scheduling.gang_request import GangRequest
from fairway.plan.scheduling.scheduler_state import SchedulerState

MOST_TRIES = 8
"""Limit of racks or topology domains tried for a gang that must be placed within one."""
NOWHERE = NodeNames(("(no node fits)",))
"""To the core, no names at all would mean any node."""

Within = Callable[[str], bool]


@dataclass(frozen=True, slots=True)
class RestrictedRequest:
    """The request for the core."""

    request: GangRequest | None
    """None when no request can be made now."""
    words: str = ""
    """Why nodes were ruled out, for users."""
    parts: dict[str, str] = field(default_factory=dict)
    """By uid: the part that stands for this pod, where it is not its role."""


class RequestRestriction:
    """Tracks the placed pods and the volumes, and restricts requests accordingly."""

    def __init__(self, ledger: SchedulerState) -> None:
        self._ledger = ledger
        self.company = PlacedPods()
        self.storage = VolumeTopology()

    @property
    def version(self) -> tuple[int, int]:
        """Changes when an earlier result may no longer hold."""
        return self.company.version, self.storage.version

    def put(self, pod: Pod, node: str) -> None:
        """Record that the pod is on the node."""
        self.company.put(key_of(pod), pod, node)
        if pod.spec.volumes:
            self.storage.put(key_of(pod), pod, node)

    def drop(self, key: str) -> None:
        """Remove the pod."""
        self.company.drop(key)
        self.storage.drop(key)

    def concerns(self, pod: Pod) -> bool:
        """Return whether placed pods or volumes restrict the nodes of this pod."""
        return bool(
            pod_affinity.asks(pod) or (pod.spec.volumes and claims_of(pod)) or pod_affinity.is_kept_away(pod, self.company)
        )

    # Single pods

    def _checks(self, pod: Pod) -> list[NodeCheck]:
        return [*pod_affinity.checks(pod, self.company), *self.storage.checks(pod)]

    def nodes(self, pod: Pod) -> tuple[list[str], Counter[str]]:
        """Return the nodes that will do now, and the number of the others by the reason."""
        checks, fit, refused = self._checks(pod), [], Counter[str]()
        for name, node in self.company.nodes.items():
            wrong = next((check.words for check in checks if not check.admits(node)), None)
            if wrong is None:
                fit.append(name)
            else:
                refused[wrong] += 1
        return fit, refused

    # Gangs

    def narrowed(self, request: GangRequest, waiting: Sequence[GangPod]) -> RestrictedRequest:
        """Return the request for the core such that any place it gives will do."""
        wrong = next((words for member in waiting if (words := self.storage.problem(member.pod))), "")
        if wrong:
            return RestrictedRequest(None, wrong)
        if len(waiting) == 1:
            fit, refused = self.nodes(waiting[0].pod)
            part = request.gang.parts[0]
            gang = replace(request.gang, parts=(replace(part, shape=_within(part.shape, fit)),))
            return RestrictedRequest(replace(request, gang=gang), _words(refused))
        return self._for_all(request, waiting)

    def _for_all(self, request: GangRequest, waiting: Sequence[GangPod]) -> RestrictedRequest:
        for within in self._regions(request, waiting):
            nodes_by_uid = self._assign(request, waiting, within)
            if nodes_by_uid is not None:
                return self._pinned(request, waiting, nodes_by_uid)
        refused = self.nodes(waiting[0].pod)[1]
        if not all(_only_hosts(member.pod) for member in waiting):
            return RestrictedRequest(None, f"its {len(waiting)} pods cannot be placed together; {_words(refused)}")
        # The core implements this rule itself, so that it can make and reserve room.
        parts = [replace(part, apart=part.least > 1, shape=self._outside(part, waiting)) for part in request.gang.parts]
        return RestrictedRequest(replace(request, gang=replace(request.gang, parts=tuple(parts))), _words(refused))

    def _outside(self, part: GangRole, waiting: Sequence[GangPod]) -> TaskShape:
        first = next(member.pod for member in waiting if member.role == part.role)
        return _within(part.shape, self.nodes(first)[0])

    def _regions(self, request: GangRequest, waiting: Sequence[GangPod]) -> Iterator[Within]:
        """Yield the regions to try: the whole cluster, then the topology domains in which the gang must stay; or each rack."""
        if not request.gang.same_rack:
            yield lambda _: True
        else:
            racks = sorted({node.rack for node in self._ledger.nodes.values()})
            yield from (_in_rack(self._ledger, rack) for rack in racks[:MOST_TRIES])
            return
        keys = {term.key for member in waiting for term in attracted(member.pod)}
        for key in sorted(keys):
            values = Counter(value for node in self.company.nodes.values() if (value := node.metadata.labels.get(key)))
            yield from (_labelled(self.company, key, value) for value, _ in values.most_common(MOST_TRIES))

    def _assign(self, request: GangRequest, waiting: Sequence[GangPod], within: Within) -> dict[str, str] | None:
        """Choose a node for each pod, one after the other given those before; return them by uid, or None."""
        cluster, nodes_by_uid = self._ledger.cluster, dict[str, str]()
        parts = {part.role: part for part in request.gang.parts}
        used: dict[str, set[str]] = {}
        with self._trying() as put:
            reservation = self._ledger.memory.reservations.get(str(request.key))
            if reservation is not None:
                cluster.give(reservation.seats)
            for block in _blocks(waiting, parts):
                part, first = parts[block[0].role], block[0]
                away = used.setdefault(first.role, set()) if part.apart else set()
                names = [name for name in self.nodes(first.pod)[0] if within(name) and name not in away]
                wanted_part = replace(part, shape=_within(part.shape, names), least=len(block), most=len(block))
                seats = cluster.try_place(GangShape((wanted_part,)))
                if seats is None:
                    return None
                for member, seat in zip(block, seats, strict=True):
                    put(member.pod, seat.node)
                    nodes_by_uid[member.pod.metadata.uid] = seat.node
                    used.setdefault(first.role, set()).add(seat.node)
        return nodes_by_uid

    @contextmanager
    def _trying(self) -> Iterator[Callable[[Pod, str], None]]:
        """Undo on exit whatever was put or placed within the block."""
        company, storage = self.company, self.storage
        before = company.version, company.terms, storage.version
        mark, keys = self._ledger.cluster.mark(), list[str]()

        def put(pod: Pod, node: str) -> None:
            keys.append(key_of(pod))
            self.put(pod, node)

        try:
            yield put
        finally:
            for key in keys:
                self.drop(key)
            self._ledger.cluster.undo(mark)
            company.version, company.terms, storage.version = before

    def _pinned(self, request: GangRequest, waiting: Sequence[GangPod], found: dict[str, str]) -> RestrictedRequest:
        """Return the gang's request, pinned to exactly these nodes."""
        shapes = {part.role: part for part in request.gang.parts}
        counts = Counter((member.role, found[member.pod.metadata.uid]) for member in waiting)
        parts = tuple(
            GangRole(f"{role}@{node}", _within(shapes[role].shape, (node,)), count, count)
            for (role, node), count in counts.items()
        )
        names = {member.pod.metadata.uid: f"{member.role}@{found[member.pod.metadata.uid]}" for member in waiting}
        return RestrictedRequest(replace(request, gang=replace(request.gang, parts=parts)), parts=names)

    # Placement

    def seat(self, pods: Sequence[tuple[Pod, str]]) -> bool:
        """Record the pods on their nodes, one after the other. When a check fails for one, undo all and return False."""
        done: list[str] = []
        for pod, name in pods:
            if not self._may_lie(pod, name):
                for key in done:
                    self.drop(key)
                return False
            self.put(pod, name)
            done.append(key_of(pod))
        return True

    def _may_lie(self, pod: Pod, name: str) -> bool:
        if not self.concerns(pod):
            return True
        node = self.company.nodes.get(name)
        if node is None or self.storage.problem(pod):
            return False
        return all(check.admits(node) for check in self._checks(pod))


def _blocks(waiting: Sequence[GangPod], parts: dict[str, GangRole]) -> Iterator[list[GangPod]]:
    """Yield the pods to be placed at a time: one, or all of a role that stays together."""
    remaining = list(waiting)
    while remaining:
        first = remaining[0]
        whole = parts[first.role].together
        block = [member for member in remaining if member.role == first.role] if whole else [first]
        remaining = [member for member in remaining if member not in block]
        yield block


def _only_hosts(pod: Pod) -> bool:
    """Return whether the pod's only constraint is not to share a node with some pods."""
    spread = any(constraint.when_unsatisfiable == pod_affinity.HARD for constraint in pod.spec.topology_spread_constraints)
    return not spread and not attracted(pod) and all(term.key == pod_affinity.HOSTNAME for term in repelled(pod))


def _within(shape: TaskShape, names: Iterable[str]) -> TaskShape:
    """Return the shape restricted to these nodes."""
    allowed = set(names)
    bounds = shape.where.nodes
    kept = NodeNames(sorted(name for name in (bounds or allowed) if name in allowed)) or NOWHERE
    return replace(shape, where=replace(shape.where, nodes=kept))


def _in_rack(ledger: SchedulerState, rack: str) -> Within:
    return lambda name: name in ledger.nodes and ledger.nodes[name].rack == rack


def _labelled(company: PlacedPods, key: str, value: str) -> Within:
    return lambda name: company.nodes[name].metadata.labels.get(key) == value


def _words(refused: Counter[str]) -> str:
    reasons = [f"{words} ({count} {'node' if count == 1 else 'nodes'})" for words, count in refused.most_common(3)]
    return "; ".join(reasons)
