"""Pods that ask for the very same and depend on each other's places: one of them is asked for at a time. Pure.

Where each lies decides where the next may lie, so that the core can only be asked for the first; the others wait behind it.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from fairway.engines.kubernetes.objects import Pod
from fairway.plan.scheduling.request import Request
from fairway.state.job import JobKey

_encode = msgspec.json.Encoder(order="deterministic").encode


class Families:
    """Who waits behind whom."""

    def __init__(self) -> None:
        self._families: dict[bytes, dict[JobKey, None]] = {}
        self._of: dict[JobKey, tuple[Pod, bytes]] = {}

    def join(self, key: JobKey, request: Request, pod: Pod) -> bool:
        """A pod waits; whether it is the first of its kind."""
        known = self._of.get(key)
        if known is None or known[0] is not pod:
            kind = _kind(request, pod)
            if known is not None and known[1] != kind:
                self.leave(key)
            self._of[key] = (pod, kind)
            self._families.setdefault(kind, {}).setdefault(key)
        return self.leads(key)

    def leave(self, key: JobKey) -> tuple[JobKey, ...]:
        """It waits no longer; who is the first instead."""
        known = self._of.pop(key, None)
        if known is None:
            return ()
        family = self._families[known[1]]
        led = next(iter(family)) == key
        del family[key]
        if not family:
            del self._families[known[1]]
        return tuple(family)[:1] if led else ()

    def leads(self, key: JobKey) -> bool:
        """Whether nobody of its kind comes before it."""
        known = self._of.get(key)
        return known is None or next(iter(self._families[known[1]])) == key

    @property
    def waiting(self) -> bool:
        """Whether anybody waits behind another."""
        return len(self._of) > len(self._families)

    def followers(self) -> Iterator[tuple[JobKey, JobKey]]:
        """Who waits behind another, and behind whom."""
        for family in self._families.values():
            first, *others = family
            yield from ((key, first) for key in others)


def _kind(request: Request, pod: Pod) -> bytes:
    """Equal for pods that could take each other's places and turns."""
    spec = pod.spec
    asked = (request.queue, request.user, request.priority, request.limit, pod.metadata.namespace, pod.metadata.labels)
    where = (spec.affinity, spec.topology_spread_constraints, spec.node_selector, spec.tolerations, spec.volumes)
    return _encode((asked, where, spec.containers, spec.init_containers, spec.overhead, spec.host_network))
