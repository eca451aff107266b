"""Whether what was installed is up, from what the cluster says of it. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from fairway.engines.kubernetes import causes
from fairway.engines.kubernetes.objects import ContainerStatus, Deployment, Event, Pod, condition

_TEMPLATES = ("pod-template-hash", "controller-revision-hash")
"""Labels that say of which template a pod is."""
MOST_LINES = 5
"""Last words of a process that are told."""


@dataclass(frozen=True, slots=True)
class Standing:
    """How one part of an installation stands."""

    up: bool
    words: str


def of_deployment(found: Deployment) -> Standing:
    """Up when every replica is of this very template, and answers."""
    wanted = 1 if found.spec.replicas is None else found.spec.replicas
    status = found.status
    if status.observed_generation < found.metadata.generation:
        return Standing(False, "the cluster has not looked at it yet")
    ready = min(status.updated_replicas, status.available_replicas)
    words = f"{ready} of {wanted} ready"
    old = status.replicas - status.updated_replicas
    if old > 0:
        words += f", {old} of before still there"
    refused = condition(status.conditions, "ReplicaFailure")
    if refused is not None and refused.status == "True":
        words += f"; {causes.refusal(refused.message)}"
    return Standing(ready >= wanted and old <= 0, words)


def of_daemon_set(found: dict[str, Any]) -> Standing:
    """Up when all but one in ten answer: of many nodes one is always away, and an upgrade leaves as many out."""
    status = found.get("status", {})
    if status.get("observedGeneration", 0) < found["metadata"].get("generation", 0):
        return Standing(False, "the cluster has not looked at it yet")
    wanted = status.get("desiredNumberScheduled", 0)
    ready = min(status.get("updatedNumberScheduled", 0), status.get("numberAvailable", 0))
    return Standing(ready >= wanted - wanted // 10, f"{ready} of {wanted} ready")


def of_api(found: dict[str, Any]) -> Standing:
    """Up when the API server reaches it."""
    for one in found.get("status", {}).get("conditions", ()):
        if one.get("type") == "Available":
            return Standing(one.get("status") == "True", one.get("message") or one.get("reason", ""))
    return Standing(False, "the API server has not looked for it yet")


def newest(pods: Iterable[Pod]) -> list[Pod]:
    """Those of the newest template, the newest first: what keeps those of before is over with them."""
    ordered = sorted(pods, key=lambda one: one.metadata.creation_timestamp or "", reverse=True)
    return [pod for pod in ordered if _template(pod) == _template(ordered[0])]


def _template(pod: Pod) -> str:
    return next((pod.metadata.labels[name] for name in _TEMPLATES if name in pod.metadata.labels), "")


def trouble(pods: Iterable[Pod], events: Iterable[Event]) -> tuple[str, str]:
    """Why a process does not come up, in a word and in words, by its pods and what was told of them; empty: nothing is known."""
    told = list(events)
    for pod in newest(pods):
        found = causes.of_pod(pod) or causes.of_events(
            event for event in told if event.regarding.kind == "Pod" and event.regarding.name == pod.metadata.name
        )
        if found is not None:
            helps = f" ({found.helps})" if found.helps else ""
            return found.reason, f"{found.message}{helps}{_of_claims(found.reason, told)}"
    return "", ""


def _of_claims(reason: str, events: Iterable[Event]) -> str:
    """What was told last of a claim, where a volume is what is missing."""
    if reason != "volume":
        return ""
    notes = [event.note for event in events if event.regarding.kind == "PersistentVolumeClaim" and event.note]
    return f"; of its claim: {notes[-1]}" if notes else ""


def ended(status: ContainerStatus) -> str:
    """How a container ended last, where it did."""
    last = status.state.terminated or status.last_state.terminated
    if last is None:
        return ""
    return f"; it ended with code {last.exit_code}{f' ({last.reason})' if last.reason not in ('', 'Error') else ''}"


def last_words(log: bytes) -> str:
    """The end of a log, on lines of their own."""
    lines = [line for line in log.decode("utf-8", "replace").splitlines() if line.strip()]
    return "".join(f"\n    {line}" for line in lines[-MOST_LINES:])
