"""Judges by the status of installed objects whether they are up. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from fairway.engines.kubernetes import pod_cause
from fairway.engines.kubernetes.objects import ContainerStatus, Deployment, KubernetesEvent, Pod, condition

_TEMPLATES = ("pod-template-hash", "controller-revision-hash")
"""Labels that identify the template of a pod."""
MOST_LINES = 5
"""Maximum number of log lines that are quoted."""


@dataclass(frozen=True, slots=True)
class ComponentState:
    """The state of one part of an installation."""

    up: bool
    words: str


def of_deployment(found: Deployment) -> ComponentState:
    """Return the state of a Deployment: up when every replica has the current template and is available."""
    replicas = 1 if found.spec.replicas is None else found.spec.replicas
    status = found.status
    if status.observed_generation < found.metadata.generation:
        return ComponentState(False, "the cluster has not looked at it yet")
    ready = min(status.updated_replicas, status.available_replicas)
    words = f"{ready} of {replicas} ready"
    old = status.replicas - status.updated_replicas
    if old > 0:
        words += f", {old} of the previous version still running"
    refused = condition(status.conditions, "ReplicaFailure")
    if refused is not None and refused.status == "True":
        words += f"; {pod_cause.refusal(refused.message)}"
    return ComponentState(ready >= replicas and old <= 0, words)


def of_daemon_set(found: dict[str, Any]) -> ComponentState:
    """Return the state of a DaemonSet: up when nine in ten nodes are.

    In a large cluster some node is always away, and an upgrade leaves out as many at a time.
    """
    status = found.get("status", {})
    if status.get("observedGeneration", 0) < found["metadata"].get("generation", 0):
        return ComponentState(False, "the cluster has not looked at it yet")
    wanted = status.get("desiredNumberScheduled", 0)
    ready = min(status.get("updatedNumberScheduled", 0), status.get("numberAvailable", 0))
    return ComponentState(ready >= wanted - wanted // 10, f"{ready} of {wanted} ready")


def of_api(found: dict[str, Any]) -> ComponentState:
    """Return the state of an APIService: up when the API server reaches it."""
    for item in found.get("status", {}).get("conditions", ()):
        if item.get("type") == "Available":
            return ComponentState(item.get("status") == "True", item.get("message") or item.get("reason", ""))
    return ComponentState(False, "the API server has not checked it yet")


def newest(pods: Iterable[Pod]) -> list[Pod]:
    """Return the pods of the newest template, the newest first.

    Older pods are being replaced, so their problems do not matter.
    """
    ordered = sorted(pods, key=lambda item: item.metadata.creation_timestamp or "", reverse=True)
    return [pod for pod in ordered if _template(pod) == _template(ordered[0])]


def _template(pod: Pod) -> str:
    return next((pod.metadata.labels[name] for name in _TEMPLATES if name in pod.metadata.labels), "")


def trouble(pods: Iterable[Pod], events: Iterable[KubernetesEvent]) -> tuple[str, str]:
    """Return why a process does not start, as a reason and a message, by its pods and their Events; empty when unknown."""
    known_events = list(events)
    for pod in newest(pods):
        cause = pod_cause.of_pod(pod) or pod_cause.of_events(
            event for event in known_events if event.regarding.kind == "Pod" and event.regarding.name == pod.metadata.name
        )
        if cause is not None:
            helps = f" ({cause.helps})" if cause.helps else ""
            return cause.reason, f"{cause.message}{helps}{_of_claims(cause.reason, known_events)}"
    return "", ""


def _of_claims(reason: str, events: Iterable[KubernetesEvent]) -> str:
    """Return the last Event of a claim, where a volume is missing."""
    if reason != "volume":
        return ""
    notes = [event.note for event in events if event.regarding.kind == "PersistentVolumeClaim" and event.note]
    return f"; its claim: {notes[-1]}" if notes else ""


def ended(status: ContainerStatus) -> str:
    """Return how a container ended last, if it did."""
    last = status.state.terminated or status.last_state.terminated
    if last is None:
        return ""
    return f"; it ended with code {last.exit_code}{f' ({last.reason})' if last.reason not in ('', 'Error') else ''}"


def last_words(log: bytes) -> str:
    """Return the end of a log, each line on a line of its own."""
    lines = [line for line in log.decode("utf-8", "replace").splitlines() if line.strip()]
    return "".join(f"\n    {line}" for line in lines[-MOST_LINES:])
