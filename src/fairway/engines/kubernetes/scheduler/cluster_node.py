"""The nodes as the core sees them, and which of them a pod may have. Pure: the caller keeps it in step with the cluster.

The value of a node is what it can give, less what pods of other schedulers hold there: Fairway cannot move those.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from fairway.engines.kubernetes import annotation, gpu_allocation, quantity
from fairway.engines.kubernetes.objects import GpuNode, NodeTaint, Pod, condition
from fairway.engines.kubernetes.objects import KubernetesNode as NodeObject
from fairway.engines.kubernetes.scheduler import node_filter
from fairway.engines.kubernetes.scheduler.pod_resource import PodResources, host_ports, need_of
from fairway.plan.scheduling.gang import TaskNodeSelector
from fairway.state.job import WaitReason
from fairway.state.node import ClusterNode

_OWN_FIELDS = frozenset({"cpu", "memory", "pods", "ephemeral-storage"})
WHOLE_MODE = "whole"
WHOLE_ONLY = f"{annotation.DOMAIN}/whole-gpus-only=:NoSchedule"
"""Keeps pods that share a GPU off nodes whose administrator allows whole GPUs only. No object carries this taint."""


@dataclass(slots=True)
class ForeignUsage:
    """Resources that pods of other schedulers hold on one node."""

    pods: dict[str, PodResources] = field(default_factory=dict)
    ports: dict[str, tuple[str, ...]] = field(default_factory=dict)
    devices: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """GPUs held by pods that are excluded from scheduling."""
    unknown: set[str] = field(default_factory=set)
    """Pods whose resources are not known: nothing else is placed on their node."""


class ClusterNodes:
    """All nodes."""

    def __init__(self) -> None:
        self._objects: dict[str, NodeObject] = {}
        self._gpus: dict[str, GpuNode] = {}
        self._plugged: set[str] = set()
        """Nodes on which a device plug-in hands out GPUs."""
        self._whole_only = False
        """Whether a node that allows no GPU sharing has ever appeared."""
        self._held: dict[str, ForeignUsage] = {}
        self._where_is: dict[str, str] = {}
        self._taints: dict[str, NodeTaint] = {}
        self._ports: set[str] = set()
        self._matching: dict[object, tuple[str, ...]] = {}
        self.changed: set[str] = set()
        """Nodes whose value may have changed; the reader clears it."""
        self.generation = 0
        """Incremented when the nodes that pods may have could have changed: names, labels, taints, host ports."""

    # Changes

    def see(self, name: str, found: NodeObject | None) -> None:
        """Add or replace a node; None removes it."""
        before = self._objects.get(name)
        if found is None:
            self._objects.pop(name, None)
        else:
            self._objects[name] = found
        self.changed.add(name)
        if found is not None and gpu_allocation.by_plugin(found):
            self._plugged.add(name)
        else:
            self._plugged.discard(name)
        if before is None or found is None or before.metadata.labels != found.metadata.labels:
            self._matching.clear()
            self.generation += 1
        for taint in node_filter.taints_of(found) if found is not None else ():
            if node_filter.taint_text(taint) not in self._taints:
                self._taints[node_filter.taint_text(taint)] = taint
                self.generation += 1

    def see_gpus(self, name: str, found: GpuNode | None) -> None:
        """Set what a node's agent reports of its GPUs; None removes it."""
        if found is None:
            self._gpus.pop(name, None)
        else:
            self._gpus[name] = found
            if found.spec.mode == WHOLE_MODE and not self._whole_only:
                self._whole_only = True
                self.generation += 1
        self.changed.add(name)

    def see_stranger(self, key: str, pod: Pod | None) -> None:
        """Record what a pod of another scheduler holds; None, or a finished pod, releases it."""
        self._see_on(key, pod, pod.spec.node_name if pod is not None and not pod.over else "")

    def hold(self, key: str, pod: Pod, node: str, devices: tuple[str, ...]) -> None:
        """Reserve what an excluded pod holds on a node. If that is not known, the node gets no other pod."""
        self.release(key)
        held = self._held.setdefault(node, ForeignUsage())
        self._where_is[key] = node
        self.changed.add(node)
        if devices:
            held.devices[key] = devices
        try:
            self._see_on(key, pod, node)
        except Exception:  # noqa: BLE001 - whatever cannot be read of the pod, its resources stay reserved.
            held.unknown.add(key)

    def hold_unknown(self, key: str, node: str) -> None:
        """Reserve a node for a pod that cannot be decoded: the node gets no other pod."""
        self.release(key)
        self._held.setdefault(node, ForeignUsage()).unknown.add(key)
        self._where_is[key] = node
        self.changed.add(node)

    def release(self, key: str) -> None:
        """Release whatever is recorded for the key."""
        before = self._where_is.pop(key, "")
        if before:
            held = self._held[before]
            for kept in (held.pods, held.ports, held.devices):
                kept.pop(key, None)
            held.unknown.discard(key)
            self.changed.add(before)

    def _see_on(self, key: str, pod: Pod | None, node: str) -> None:
        if self._where_is.get(key, node) != node:
            self.release(key)
        if not node or pod is None:
            return
        need, ports = need_of(pod), host_ports(pod)
        held = self._held.setdefault(node, ForeignUsage())
        if held.pods.get(key) == need and held.ports.get(key, ()) == ports:
            return
        held.pods[key] = need
        if ports:
            held.ports[key] = ports
            self.know_ports(ports)
        self._where_is[key] = node
        self.changed.add(node)

    def know_ports(self, ports: tuple[str, ...]) -> None:
        """Register host ports that a pod requests: each node has each of them once."""
        if not self._ports.issuperset(ports):
            self._ports.update(ports)
            self.changed.update(self._objects)

    # The core's view

    def node(self, name: str) -> ClusterNode | None:
        """Return the value of a node; None when it does not exist."""
        node_object = self._objects.get(name)
        if node_object is None:
            return None
        amounts_given = node_object.status.allocatable or node_object.status.capacity
        held = self._held.get(name, ForeignUsage())
        cpu = quantity.milli(amounts_given.get("cpu", "0")) - sum(need.cpu for need in held.pods.values())
        memory = quantity.whole(amounts_given.get("memory", "0")) - sum(need.memory for need in held.pods.values())
        other = {what: quantity.whole(text) for what, text in amounts_given.items() if what not in _OWN_FIELDS}
        other |= dict.fromkeys(self._ports, 1)
        for need in held.pods.values():
            for what, count in need.other.items():
                other[what] = other.get(what, 0) - count
        for ports in held.ports.values():
            other |= dict.fromkeys(ports, 0)
        labels = node_object.metadata.labels
        withheld = {device for device_ids in held.devices.values() for device in device_ids}
        devices = tuple(
            candidate for candidate in gpu_allocation.ours(node_object, self._gpus.get(name)) if candidate.uuid not in withheld
        )
        room = quantity.whole(amounts_given.get("pods", "110")) - len(held.pods)
        return ClusterNode(
            name,
            cpu=max(0, cpu) / 1000,
            memory=max(0, memory),
            devices=devices,
            other={what: max(0, count) for what, count in sorted(other.items())},
            labels=dict(labels),
            taints=self._taint_texts(node_object, 0 if held.unknown else room),
            rack=next((labels[label] for label in annotation.RACK_LABELS if label in labels), ""),
            tasks=max(1, room),
        )

    def _taint_texts(self, found: NodeObject, room: int) -> tuple[str, ...]:
        texts = [node_filter.taint_text(taint) for taint in node_filter.taints_of(found)]
        ready = condition(found.status.conditions, "Ready")
        if ready is not None and ready.status != "True":
            # The node controller adds such a taint too, a moment later.
            texts.append("node.kubernetes.io/not-ready=:NoSchedule")
        gpu_node = self._gpus.get(found.metadata.name)
        if gpu_node is not None and gpu_node.spec.mode == WHOLE_MODE:
            texts.append(WHOLE_ONLY)
        if room < 1:
            # The core reads 0 as no limit, so that a full node needs a taint to keep pods away.
            texts.append("fairway.dev/full=:NoSchedule")
        return tuple(dict.fromkeys(texts))

    def with_plugins(self, hold: WaitReason) -> WaitReason:
        """Return the hold, extended by a note when nodes have GPUs that only a device plug-in hands out."""
        if hold.reason != "gpu" or not self._plugged:
            return hold
        count = len(self._plugged)
        nodes = f"{count} node{'' if count == 1 else 's'}"
        return replace(hold, message=f"{hold.message}; GPUs of {nodes} are handed out by a device plug-in, not by this scheduler")

    # Placement

    def where(self, pod: Pod, nodes: tuple[str, ...] = (), devices: tuple[str, ...] = ()) -> TaskNodeSelector:
        """Return which nodes the pod may have; `nodes` and `devices` are those that its document names."""
        named = nodes
        if node_filter.has_affinity(pod):
            matching = self._names(pod)
            named = tuple(name for name in matching if not nodes or name in nodes) or ("(no node matches its affinity)",)
        return TaskNodeSelector(
            nodes=named,
            devices=devices,
            labels=tuple(sorted(pod.spec.node_selector.items())),
            tolerates=self._tolerated(pod),
        )

    def _tolerated(self, pod: Pod) -> tuple[str, ...]:
        taints = node_filter.tolerated(pod, self._taints.values())
        shares = annotation.GPU_MILLI in pod.metadata.annotations
        return (*taints, WHOLE_ONLY) if self._whole_only and not shares else taints

    def _names(self, pod: Pod) -> tuple[str, ...]:
        affinity = pod.spec.affinity
        assert affinity is not None
        names = self._matching.get(affinity.node_affinity)
        if names is None:
            names = tuple(sorted(name for name, node in self._objects.items() if node_filter.matches(pod, node)))
            self._matching[affinity.node_affinity] = names
        return names
