"""Why a pod does not run, for reasons outside our scheduler: translate the cluster's messages into ours. Pure.

The kubelet, the API server, kube-scheduler and the volume controllers each report it in another place: in the status of
containers, in a condition, in an Event, or in the response to a request.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from fairway.engines.kubernetes.objects import ContainerStatus, KubernetesEvent, Pod, condition


@dataclass(frozen=True, slots=True)
class PodCause:
    """A reason in one word, a message in one sentence, and a hint at what helps."""

    reason: str
    message: str
    helps: str = ""


_IMAGE = frozenset(
    {"ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull", "ImageInspectError", "RegistryUnavailable"}
)
_MADE = frozenset({"CreateContainerConfigError", "CreateContainerError", "RunContainerError", "PostStartHookError"})
_VOLUME = frozenset({"FailedMount", "FailedAttachVolume", "FailedMapVolume", "ProvisioningFailed", "FailedBinding"})
_NETWORK = frozenset({"FailedCreatePodSandBox", "NetworkNotReady"})
_REFUSED = frozenset({"FailedCreate", "FailedScheduling", "Failed"})
_REFUSED_BY_NODE = {
    "NodeAffinity": "its labels do not match those that the pod requires",
    "UnexpectedAdmissionError": "it could not allocate the promised devices",
    "NodePorts": "a port of the node is taken",
    "Evicted": "it ran short of resources",
    "NodeShutdown": "it shuts down",
    "Terminated": "it shuts down",
    "Preempting": "it makes room for a critical pod",
    "InvalidNodeInfo": "it is not known yet",
    "TaintToleration": "it has a taint that the pod does not tolerate",
}
_QUOTA = re.compile(
    r"exceeded quota: (?P<name>[^,]+), requested: (?P<asked>.*?), used: (?P<used>.*?), limited: (?P<most>.*)", re.S
)
_LIMITS = re.compile(r"failed quota: (?P<name>[^:]+): (?P<what>.*)", re.S)
_HOOK = re.compile(r'admission webhook "(?P<name>[^"]+)" denied the request:? ?(?P<why>.*)', re.S)
_POLICY = re.compile(r"ValidatingAdmissionPolicy '(?P<name>[^']+)'.* denied request: (?P<why>.*)", re.S)
_SECURITY = re.compile(r'violates PodSecurity "(?P<level>[^"]+)": (?P<why>.*)', re.S)
MOST_WORDS = 400


def of_pod(pod: Pod) -> PodCause | None:
    """Return the cause that the pod's status shows; None when it shows no obstacle."""
    refused = _refused_by_node(pod)
    if refused is not None:
        return refused
    if pod.over:
        return None
    if not pod.spec.node_name:
        return _unplaced(pod)
    for status in (*pod.status.init_container_statuses, *pod.status.container_statuses):
        cause = _container(status)
        if cause is not None:
            return cause
    return None


def of_events(events: Iterable[KubernetesEvent]) -> PodCause | None:
    """Return the cause that the pod's newest warning Events show, for causes that the pod's status does not show."""
    for event in sorted(events, key=lambda item: item.event_time or "", reverse=True):
        if event.type == "Normal":
            continue
        words = _short(event.note)
        if event.reason in _VOLUME:
            return PodCause(
                "volume", f"its volumes are not ready: {words}", "see the claim and its storage class: kubectl describe pvc"
            )
        if event.reason in _NETWORK:
            return PodCause("network", f"its node could not give it a network: {words}", "see the network plug-in of that node")
        if event.reason in _REFUSED and (cause := of_refusal(event.note)) is not None:
            return cause
    return None


def of_refusal(message: str) -> PodCause | None:
    """Return the cause behind the API server's refusal to create a pod; None when the message is of no known kind."""
    if match := _QUOTA.search(message):
        words = (
            f"the namespace's quota {match['name']} is used up: needs {match['asked']}, used {match['used']} of {match['most']}"
        )
        return PodCause(
            "namespace quota", _short(words), f"end something in the namespace, or raise the ResourceQuota {match['name']}"
        )
    if match := _LIMITS.search(message):
        words = f"the namespace's quota {match['name']} requires more fields of each pod: {match['what']}"
        return PodCause("namespace quota", _short(words), "set these resources in the document")
    if match := _HOOK.search(message) or _POLICY.search(message):
        words = f"the cluster's rule {match['name']} refuses it: {match['why'] or 'no reason is given'}"
        return PodCause("admission", _short(words), "change what the rule names, or ask the administrator of the cluster")
    if match := _SECURITY.search(message):
        words = f"the namespace allows pods of level {match['level']} only: {match['why']}"
        return PodCause("admission", _short(words), "request fewer privileges, or use a namespace that allows them")
    return None


def refusal(message: str) -> str:
    """Return our message for a refusal to create a pod; the original message where its kind is unknown."""
    cause = of_refusal(message)
    return cause.message if cause is not None else message


def words(pod: Pod) -> str:
    """Return the message of the pod's cause; empty when there is none."""
    cause = of_pod(pod)
    return cause.message if cause is not None else ""


def _refused_by_node(pod: Pod) -> PodCause | None:
    reason, node = pod.status.reason, pod.spec.node_name
    if pod.status.phase != "Failed" or not reason:
        return None
    if reason.startswith("OutOf"):
        words = f"node {node} had no {reason.removeprefix('OutOf')} left when the pod arrived: {pod.status.message or reason}"
        return PodCause("node", _short(words), "nothing to do; it is placed anew")
    if reason in _REFUSED_BY_NODE:
        more = f" ({pod.status.message})" if pod.status.message else ""
        return PodCause(
            "node", _short(f"node {node} refused the pod: {_REFUSED_BY_NODE[reason]}{more}"), "nothing to do; it is placed anew"
        )
    return None


def _unplaced(pod: Pod) -> PodCause | None:
    if pod.spec.scheduling_gates:
        names = ", ".join(gate.name for gate in pod.spec.scheduling_gates)
        return PodCause("gate", f"it is held by {names}", "the component that set the gate must remove it")
    scheduled = condition(pod.status.conditions, "PodScheduled")
    if scheduled is None or scheduled.status != "False" or not scheduled.message:
        return None
    message, text = scheduled.message, scheduled.message.lower()
    if "persistentvolumeclaim" in text or "volume claim" in text:
        return PodCause("volume", message, "see the claim and its storage class: kubectl describe pvc")
    if "untolerated taint" in text:
        return PodCause("taint", message, "add a toleration to the document, or use other nodes")
    return PodCause("placement", message)


def _container(status: ContainerStatus) -> PodCause | None:
    waiting = status.state.waiting
    if waiting is None:
        return None
    words = _short(f"{waiting.reason}: {waiting.message or status.image}")
    if waiting.reason in _IMAGE:
        return PodCause("image", words, f"check that {status.image or 'the image'} exists, and the pull secrets")
    if waiting.reason in _MADE:
        return PodCause("container", words, "check what the document names: secrets, config maps, the command")
    if waiting.reason == "CrashLoopBackOff":
        return PodCause("container", words, "see its logs")
    return None


def _short(text: str) -> str:
    joined = " ".join(text.split())
    return joined if len(joined) <= MOST_WORDS else joined[: MOST_WORDS - 1] + "\u2026"
