"""Restricts a pod's nodes by its volumes, and lists the claims to be bound before the pod. Pure.

A bound claim restricts the pod to nodes that reach its volume. A claim that waits for its first consumer gets its volume once the
node is chosen: the provisioner reads the node from an annotation, or an existing volume is reserved for the claim.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from fairway.engines.kubernetes import quantity
from fairway.engines.kubernetes.objects import (
    CsiNode,
    KubernetesNode,
    PersistentVolume,
    PersistentVolumeClaim,
    Pod,
    StorageClass,
)
from fairway.engines.kubernetes.scheduler import node_filter
from fairway.engines.kubernetes.scheduler.filter.placed_pod import rule_of
from fairway.engines.kubernetes.scheduler.filter.pod_affinity import NodeCheck

ALONE = "ReadWriteOncePod"
LATER = "WaitForFirstConsumer"
BY_HAND = "kubernetes.io/no-provisioner"
DEFAULT_CLASS = "storageclass.kubernetes.io/is-default-class"
ZONES = ("topology.kubernetes.io/zone", "topology.kubernetes.io/region")


T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ClaimBinding:
    """A claim that must get its volume before its pod is bound."""

    claim: PersistentVolumeClaim
    node: str
    volume: PersistentVolume | None = None
    """The existing volume that is reserved for it; None when the provisioner creates one."""


def claims_of(pod: Pod) -> tuple[str, ...]:
    """Return the names of the claims that the pod mounts. Those of ephemeral volumes are derived from the pod's name."""
    names = []
    for volume in pod.spec.volumes:
        if volume.persistent_volume_claim is not None:
            names.append(volume.persistent_volume_claim.claim_name)
        elif volume.ephemeral is not None:
            names.append(f"{pod.metadata.name}-{volume.name}")
    return tuple(names)


class VolumeTopology:
    """The claims, volumes, classes and drivers, and which pods use which claim."""

    def __init__(self) -> None:
        self.claims: dict[str, PersistentVolumeClaim] = {}
        self.volumes: dict[str, PersistentVolume] = {}
        self.classes: dict[str, StorageClass] = {}
        self.drivers: dict[str, CsiNode] = {}
        self._users: dict[str, dict[str, str]] = {}
        """By claim: the node of each pod that mounts it."""
        self._mounts: dict[str, tuple[str, ...]] = {}
        self.promised: dict[str, str] = {}
        """By volume: the claim for which it is reserved, until the cluster shows it."""
        self.version = 0

    def put(self, key: str, pod: Pod, node: str) -> None:
        """Record that the pod is on the node."""
        self.drop(key)
        mounts = tuple(f"{pod.metadata.namespace}/{name}" for name in claims_of(pod))
        if mounts:
            self._mounts[key] = mounts
            self.version += 1
        for claim in mounts:
            self._users.setdefault(claim, {})[key] = node

    def drop(self, key: str) -> None:
        """Remove the pod."""
        for claim in self._mounts.pop(key, ()):
            self._users[claim].pop(key, None)
            self.version += 1

    def see(self, among: dict[str, T], key: str, found: T | None) -> None:
        """Add or replace a claim, a volume, a class or the drivers of a node; None removes it."""
        if found is None:
            among.pop(key, None)
        else:
            _check(found)
            among[key] = found
        self.version += 1

    # Problems that rule out every node

    def problem(self, pod: Pod) -> str:
        """Return why the pod's volumes allow no node now, in words; empty when they allow some."""
        for name in claims_of(pod):
            claim = self.claims.get(f"{pod.metadata.namespace}/{name}")
            wrong = self._wrong(claim, name, pod)
            if wrong:
                return f"its volume claim {name} {wrong}"
        return ""

    def _wrong(self, claim: PersistentVolumeClaim | None, name: str, pod: Pod) -> str:
        if claim is None:
            return "does not exist yet"
        own = any(volume.ephemeral is not None and f"{pod.metadata.name}-{volume.name}" == name for volume in pod.spec.volumes)
        if own and not any(owner.uid == pod.metadata.uid for owner in claim.metadata.owner_references):
            return "belongs to another owner: delete it, or rename the pod"
        if claim.metadata.deletion_timestamp is not None:
            return "is being deleted"
        if claim.status.phase == "Lost":
            return "has lost its volume"
        users = self._users.get(f"{pod.metadata.namespace}/{name}", {})
        if ALONE in claim.spec.access_modes and any(user != _key(pod) for user in users):
            return f"is for one pod at a time, and {next(iter(users)).partition('/')[2]} uses it"
        if not claim.spec.volume_name and not self._waits_for_consumer(claim):
            return "has no volume yet"
        if claim.spec.volume_name and claim.spec.volume_name not in self.volumes:
            return f"names the volume {claim.spec.volume_name}, which does not exist"
        return ""

    def _class(self, claim: PersistentVolumeClaim) -> StorageClass | None:
        name = claim.spec.storage_class_name
        if name is not None:
            return self.classes.get(name)
        default_classes = [
            storage_class
            for storage_class in self.classes.values()
            if storage_class.metadata.annotations.get(DEFAULT_CLASS) == "true"
        ]
        return default_classes[0] if default_classes else None

    def _waits_for_consumer(self, claim: PersistentVolumeClaim) -> bool:
        storage_class = self._class(claim)
        return storage_class is not None and storage_class.volume_binding_mode == LATER

    # Node filters

    def checks(self, pod: Pod) -> Iterator[NodeCheck]:
        """Yield the checks that a node must pass for the pod's volumes, as they are now."""
        for name in claims_of(pod):
            claim = self.claims.get(f"{pod.metadata.namespace}/{name}")
            if claim is None:
                continue
            volume = self.volumes.get(claim.spec.volume_name)
            if volume is not None:
                yield NodeCheck(f"the volume of its claim {name} is not accessible there", partial(reaches, volume))
            else:
                yield NodeCheck(f"no volume is available there for its claim {name}", partial(self._can_have, claim))
        if claims_of(pod):
            yield NodeCheck("the limit of attached volumes would be exceeded", partial(self._can_attach, pod))

    def _can_have(self, claim: PersistentVolumeClaim, node: KubernetesNode) -> bool:
        if self._volume_for(claim, node) is not None:
            return True
        storage_class = self._class(claim)
        if storage_class is None or storage_class.provisioner in ("", BY_HAND):
            return False
        terms = storage_class.allowed_topologies
        labels = node.metadata.labels
        return not terms or any(
            all(labels.get(rule.key) in rule.values for rule in term.match_label_expressions) for term in terms
        )

    def _volume_for(self, claim: PersistentVolumeClaim, node: KubernetesNode) -> PersistentVolume | None:
        """Return the smallest existing volume that is free, suitable and in reach of the node."""
        fits = [volume for volume in self.volumes.values() if self._is_free(volume, claim) and _suits(volume, claim)]
        near = [volume for volume in fits if reaches(volume, node)]
        return min(near, key=lambda candidate: (_size(candidate.spec.capacity), candidate.metadata.name), default=None)

    def _is_free(self, volume: PersistentVolume, claim: PersistentVolumeClaim) -> bool:
        key = f"{claim.metadata.namespace}/{claim.metadata.name}"
        if self.promised.get(volume.metadata.name, key) != key:
            return False
        holder = volume.spec.claim_ref
        if holder is None:
            return volume.status.phase == "Available"
        return f"{holder.namespace}/{holder.name}" == key and holder.uid in ("", claim.metadata.uid)

    def _can_attach(self, pod: Pod, node: KubernetesNode) -> bool:
        name = node.metadata.name
        csi_node = self.drivers.get(name)
        limits = {
            driver_info.name: driver_info.allocatable.count
            for driver_info in ((csi_node.spec.drivers or ()) if csi_node is not None else ())
            if driver_info.allocatable
        }
        if not limits:
            return True
        mounted = [claim for claim, users in self._users.items() if name in users.values()]
        own = [f"{pod.metadata.namespace}/{claim}" for claim in claims_of(pod)]
        before, after = self._attached(mounted), self._attached([*mounted, *own])
        return all(
            count is None or len(after.get(driver, ())) <= count or len(after[driver]) == len(before.get(driver, ()))
            for driver, count in limits.items()
        )

    def _attached(self, claims: Iterable[str]) -> dict[str, set[str]]:
        """Return, by driver, the volumes that these claims have or will get."""
        volumes_by_driver: dict[str, set[str]] = {}
        for key in claims:
            claim = self.claims.get(key)
            volume = self.volumes.get(claim.spec.volume_name) if claim is not None else None
            if volume is not None and volume.spec.csi is not None:
                volumes_by_driver.setdefault(volume.spec.csi.driver, set()).add(
                    volume.spec.csi.volume_handle or volume.metadata.name
                )
            elif volume is None and claim is not None and (made_by := self._class(claim)) is not None:
                volumes_by_driver.setdefault(made_by.provisioner, set()).add(key)
        return volumes_by_driver

    # Binding of claims

    def to_bind(self, pod: Pod, node: KubernetesNode) -> tuple[ClaimBinding, ...]:
        """Return the pod's claims that must get a volume for this node. Chosen volumes are reserved for their claims."""
        bindings = []
        for name in claims_of(pod):
            key = f"{pod.metadata.namespace}/{name}"
            claim = self.claims.get(key)
            if claim is None or claim.spec.volume_name:
                continue
            volume = self._volume_for(claim, node)
            if volume is not None:
                self.promised[volume.metadata.name] = key
                self.version += 1
            bindings.append(ClaimBinding(claim, node.metadata.name, volume))
        return tuple(bindings)

    def release(self, wanted: Iterable[ClaimBinding]) -> None:
        """Release the volumes reserved for these claims: the binding is done, or was given up."""
        for binding in wanted:
            if binding.volume is not None:
                self.promised.pop(binding.volume.metadata.name, None)
        self.version += 1


def reaches(volume: PersistentVolume, node: KubernetesNode) -> bool:
    """Return whether the node reaches the volume."""
    for key in ZONES:
        zones = volume.metadata.labels.get(key)
        if zones is not None and node.metadata.labels.get(key) not in zones.split("__"):
            return False
    bounds = volume.spec.node_affinity
    return bounds is None or bounds.required is None or node_filter.selects(bounds.required, node)


def _suits(volume: PersistentVolume, claim: PersistentVolumeClaim) -> bool:
    spec = claim.spec
    return (
        volume.spec.storage_class_name == (spec.storage_class_name or "")
        and set(spec.access_modes) <= set(volume.spec.access_modes)
        and volume.spec.volume_mode == spec.volume_mode
        and _size(volume.spec.capacity) >= _size(spec.resources.requests)
        and volume.metadata.deletion_timestamp is None
        and (spec.selector is None or rule_of(spec.selector).holds(volume.metadata.labels))
    )


def _check(found: object) -> None:
    """Raise for a quantity that cannot be parsed, now rather than when a pod needs a volume."""
    if isinstance(found, PersistentVolume):
        _size(found.spec.capacity)
    elif isinstance(found, PersistentVolumeClaim):
        _size(found.spec.resources.requests)


def _size(given: dict[str, str]) -> int:
    return quantity.whole(given.get("storage", "0"))


def _key(pod: Pod) -> str:
    return f"{pod.metadata.namespace}/{pod.metadata.name}"
