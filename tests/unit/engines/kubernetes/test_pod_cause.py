"""Messages for causes outside of Fairway's scheduler."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from fairway.engines.kubernetes import pod_cause
from fairway.engines.kubernetes.objects import KubernetesEvent, Pod


def pod(status: dict[str, Any], **spec: Any) -> Pod:
    return msgspec.convert({"metadata": {"name": "p"}, "spec": spec, "status": status}, Pod)


def waiting(reason: str, message: str = "") -> dict[str, Any]:
    return {
        "containerStatuses": [
            {"name": "task", "image": "busybox:9", "state": {"waiting": {"reason": reason, "message": message}}}
        ]
    }


def unplaced(message: str) -> dict[str, Any]:
    return {"conditions": [{"type": "PodScheduled", "status": "False", "message": message}]}


@pytest.mark.parametrize(
    ("found", "reason", "words"),
    [
        (pod(waiting("ErrImagePull", "not found"), nodeName="a"), "image", "ErrImagePull: not found"),
        (pod(waiting("InvalidImageName"), nodeName="a"), "image", "InvalidImageName: busybox:9"),
        (pod(waiting("CreateContainerConfigError", 'secret "x" not found'), nodeName="a"), "container", 'secret "x" not found'),
        (pod({"phase": "Failed", "reason": "OutOfcpu"}, nodeName="a"), "node", "node a had no cpu left when the pod arrived"),
        (pod({"phase": "Failed", "reason": "NodeAffinity"}, nodeName="a"), "node", "its labels do not match"),
        (pod(unplaced("pod has unbound immediate PersistentVolumeClaims")), "volume", "unbound immediate"),
        (pod(unplaced("0/1 nodes are available: 1 node(s) had untolerated taint {x: }.")), "taint", "untolerated taint"),
        (pod(unplaced("needs 2 CPUs; 1 of 1 is free")), "placement", "needs 2 CPUs"),
        (pod({}, schedulingGates=[{"name": "kueue.x-k8s.io/admission"}]), "gate", "held by kueue.x-k8s.io/admission"),
    ],
)
def test_a_pod_tells_why_it_does_not_run(found: Pod, reason: str, words: str) -> None:
    cause = pod_cause.of_pod(found)
    assert cause is not None
    assert cause.reason == reason
    assert words in cause.message
    assert pod_cause.words(found) == cause.message


@pytest.mark.parametrize(
    "found", [pod({}), pod({"phase": "Running"}, nodeName="a"), pod(waiting("ContainerCreating"), nodeName="a")]
)
def test_where_nothing_is_wrong_nothing_is_said(found: Pod) -> None:
    assert pod_cause.of_pod(found) is None
    assert pod_cause.words(found) == ""


def event(reason: str, note: str, at: str = "1", kind: str = "Warning") -> KubernetesEvent:
    return msgspec.convert({"reason": reason, "note": note, "type": kind, "eventTime": at}, KubernetesEvent)


def test_events_tell_what_the_pod_does_not() -> None:
    told = [event("FailedMount", "MountVolume.SetUp failed", "1"), event("Pulled", "x", "2", "Normal")]
    cause = pod_cause.of_events(told)
    assert cause is not None
    assert (cause.reason, cause.message) == ("volume", "its volumes are not ready: MountVolume.SetUp failed")
    assert pod_cause.of_events([event("Pulled", "x", kind="Normal")]) is None


@pytest.mark.parametrize(
    ("message", "reason", "words"),
    [
        (
            'pods "p" is forbidden: exceeded quota: small, requested: pods=1, used: pods=2, limited: pods=2',
            "namespace quota",
            "quota small is used up: needs pods=1, used pods=2 of pods=2",
        ),
        ('pods "p" is forbidden: failed quota: small: must specify cpu', "namespace quota", "must specify cpu"),
        (
            'admission webhook "no.example.com" denied the request: too big',
            "admission",
            "rule no.example.com refuses it: too big",
        ),
        (
            'pods "p" is forbidden: violates PodSecurity "restricted:latest": privileged',
            "admission",
            "pods of level restricted:latest only: privileged",
        ),
    ],
)
def test_what_a_refusal_means(message: str, reason: str, words: str) -> None:
    cause = pod_cause.of_refusal(message)
    assert cause is not None
    assert cause.reason == reason
    assert words in cause.message
    assert pod_cause.refusal(message) == cause.message


def test_any_other_refusal_is_nobodys() -> None:
    assert pod_cause.of_refusal('pods "p" already exists') is None
    assert pod_cause.refusal("something else") == "something else"
