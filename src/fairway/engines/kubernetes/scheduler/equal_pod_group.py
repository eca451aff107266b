"""Groups waiting pods with equal requests whose places depend on each other: the core gets one of a group at a time. Pure.

The place of the first decides which places the next may have, so that only the first can be requested; the others wait behind it.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from fairway.engines.kubernetes.objects import Pod
from fairway.plan.scheduling.gang_request import GangRequest
from fairway.state.job import JobKey

_encode = msgspec.json.Encoder(order="deterministic").encode


class EqualPodGroups:
    """The groups of equal pods, each in order of arrival."""

    def __init__(self) -> None:
        self._families: dict[bytes, dict[JobKey, None]] = {}
        self._of: dict[JobKey, tuple[Pod, bytes]] = {}

    def join(self, key: JobKey, request: GangRequest, pod: Pod) -> bool:
        """Add a waiting pod to its group; return whether it is the first of the group."""
        member = self._of.get(key)
        if member is None or member[0] is not pod:
            kind = _kind(request, pod)
            if member is not None and member[1] != kind:
                self.leave(key)
            self._of[key] = (pod, kind)
            self._families.setdefault(kind, {}).setdefault(key)
        return self.leads(key)

    def leave(self, key: JobKey) -> tuple[JobKey, ...]:
        """Remove a pod; return the pod that becomes the first of its group instead, if any."""
        member = self._of.pop(key, None)
        if member is None:
            return ()
        family = self._families[member[1]]
        led = next(iter(family)) == key
        del family[key]
        if not family:
            del self._families[member[1]]
        return tuple(family)[:1] if led else ()

    def leads(self, key: JobKey) -> bool:
        """Return whether no other pod of its group comes before it."""
        member = self._of.get(key)
        return member is None or next(iter(self._families[member[1]])) == key

    @property
    def waiting(self) -> bool:
        """Whether any pod waits behind another."""
        return len(self._of) > len(self._families)

    def followers(self) -> Iterator[tuple[JobKey, JobKey]]:
        """Yield each pod that waits behind another, with the first of its group."""
        for family in self._families.values():
            first, *others = family
            yield from ((key, first) for key in others)


def _kind(request: GangRequest, pod: Pod) -> bytes:
    """Return a key that is equal for pods that are interchangeable in the queue and in placement."""
    spec = pod.spec
    request_fields = (request.queue, request.user, request.priority, request.limit, pod.metadata.namespace, pod.metadata.labels)
    placement_fields = (spec.affinity, spec.topology_spread_constraints, spec.node_selector, spec.tolerations, spec.volumes)
    return _encode((request_fields, placement_fields, spec.containers, spec.init_containers, spec.overhead, spec.host_network))
