"""Whether an installation is ready, and why not, from the state of the cluster."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from fairway.engines.kubernetes.install import component_state
from fairway.engines.kubernetes.objects import ContainerStatus, Deployment, KubernetesEvent, Pod


def deployment(generation: int = 1, **status: Any) -> Deployment:
    given = {"metadata": {"name": "fairway-operator", "generation": generation}, "spec": {"replicas": 2}, "status": status}
    return msgspec.convert(given, Deployment)


@pytest.mark.parametrize(
    ("status", "up", "words"),
    [
        ({}, False, "the cluster has not looked at it yet"),
        ({"observedGeneration": 1, "replicas": 2, "updatedReplicas": 2, "availableReplicas": 1}, False, "1 of 2 ready"),
        ({"observedGeneration": 1, "replicas": 2, "updatedReplicas": 2, "availableReplicas": 2}, True, "2 of 2 ready"),
        (
            {"observedGeneration": 1, "replicas": 3, "updatedReplicas": 2, "availableReplicas": 3},
            False,
            "2 of 2 ready, 1 of the previous version still running",
        ),
    ],
)
def test_a_deployment_is_up_when_all_of_the_new_ones_answer(status: dict[str, Any], up: bool, words: str) -> None:
    assert component_state.of_deployment(deployment(**status)) == component_state.ComponentState(up, words)


def test_pods_that_the_api_server_refuses_are_told_by_the_deployment() -> None:
    message = 'pods "a" is forbidden: exceeded quota: small, requested: pods=1, used: pods=3, limited: pods=3'
    refused = {"type": "ReplicaFailure", "status": "True", "reason": "FailedCreate", "message": message}
    found = component_state.of_deployment(deployment(observedGeneration=1, conditions=[refused]))
    assert found.words == "0 of 2 ready; the namespace's quota small is used up: needs pods=1, used pods=3 of pods=3"


@pytest.mark.parametrize(("wanted", "ready", "up"), [(0, 0, True), (2, 1, False), (2, 2, True), (30, 27, True), (30, 26, False)])
def test_agents_are_up_when_at_most_one_in_ten_is_away(wanted: int, ready: int, up: bool) -> None:
    status = {
        "observedGeneration": 3,
        "desiredNumberScheduled": wanted,
        "updatedNumberScheduled": wanted,
        "numberAvailable": ready,
    }
    found = component_state.of_daemon_set({"metadata": {"generation": 3}, "status": status})
    assert found == component_state.ComponentState(up, f"{ready} of {wanted} ready")
    assert not component_state.of_daemon_set({"metadata": {"generation": 4}, "status": status}).up


def test_the_record_is_up_when_the_api_server_reaches_it() -> None:
    def told(status: str) -> dict[str, Any]:
        return {"status": {"conditions": [{"type": "Available", "status": status, "message": "no endpoints"}]}}

    assert component_state.of_api({}).up is False
    assert component_state.of_api(told("False")) == component_state.ComponentState(False, "no endpoints")
    assert component_state.of_api(told("True")).up


def pod(name: str, made: str = "2026-01-01T00:00:00Z", **more: Any) -> Pod:
    return msgspec.convert({"metadata": {"name": name, "creationTimestamp": made}, **more}, Pod)


def test_the_newest_pod_that_has_trouble_says_why() -> None:
    waiting = {"name": "operator", "image": "none/x:1", "state": {"waiting": {"reason": "ErrImagePull", "message": "not found"}}}
    sick = pod("b", "2026-01-02T00:00:00Z", spec={"nodeName": "n"}, status={"containerStatuses": [waiting]})
    told = ("image", "ErrImagePull: not found (check that none/x:1 exists, and the pull secrets)")
    assert component_state.trouble([pod("a"), sick], []) == told
    assert component_state.trouble([pod("a")], []) == ("", "")
    assert component_state.trouble([], []) == ("", "")


def test_what_kept_pods_of_before_is_over_with_them() -> None:
    waiting = {"name": "operator", "state": {"waiting": {"reason": "ErrImagePull"}}}
    old = {"metadata": {"name": "old", "creationTimestamp": "2026-01-01T00:00:00Z", "labels": {"pod-template-hash": "1"}}}
    sick = msgspec.convert({**old, "spec": {"nodeName": "n"}, "status": {"containerStatuses": [waiting]}}, Pod)
    new = {"metadata": {"name": "new", "creationTimestamp": "2026-01-02T00:00:00Z", "labels": {"pod-template-hash": "2"}}}
    fresh = msgspec.convert(new, Pod)
    assert component_state.trouble([sick, fresh], []) == ("", "")
    assert component_state.trouble([sick], [])[0] == "image"


def test_a_missing_volume_is_told_with_what_was_said_of_its_claim() -> None:
    message = "pod has unbound immediate PersistentVolumeClaims"
    held = {"conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}]}
    claim = {"kind": "PersistentVolumeClaim", "name": "fairway-record"}
    event = msgspec.convert(
        {"regarding": claim, "type": "Warning", "reason": "ProvisioningFailed", "note": "disk full"}, KubernetesEvent
    )
    _, told = component_state.trouble([pod("a", status=held)], [event])
    assert told.startswith(message)
    assert told.endswith("; its claim: disk full")


def test_how_a_container_ended_is_told() -> None:
    def status(**state: Any) -> ContainerStatus:
        return msgspec.convert({"name": "operator", **state}, ContainerStatus)

    killed = {"terminated": {"exitCode": 137, "reason": "OOMKilled"}}
    assert component_state.ended(status(lastState=killed)) == "; it ended with code 137 (OOMKilled)"
    assert component_state.ended(status(state={"terminated": {"exitCode": 2, "reason": "Error"}})) == "; it ended with code 2"
    assert component_state.ended(status(state={"running": {}})) == ""


def test_last_words_are_few_and_indented() -> None:
    log = "\n".join(f"line {number}" for number in range(9)).encode()
    assert component_state.last_words(log) == "".join(f"\n    line {number}" for number in range(4, 9))
