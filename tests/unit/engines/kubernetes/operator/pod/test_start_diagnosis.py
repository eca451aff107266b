"""Placed pods that do not start: the reason comes from Events, not from the pods."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import msgspec

from fairway.engines.kubernetes.client.api import ApiClient, ObjectList
from fairway.engines.kubernetes.objects import KubernetesEvent, Pod
from fairway.engines.kubernetes.operator.pod.start_diagnosis import AFTER, PodStartDiagnosis

BEGUN = 1_000_000_000.0


def pod(uid: str, **spec: Any) -> Pod:
    status = {"phase": spec.pop("phase", "Pending"), "startTime": "2001-09-09T01:46:40Z"}
    return msgspec.convert({"metadata": {"name": uid, "namespace": "team", "uid": uid}, "spec": spec, "status": status}, Pod)


class Server:
    def __init__(self) -> None:
        self.asked: list[str] = []

    async def list(self, _kind: object, namespace: str, *, fields: str) -> ObjectList[KubernetesEvent]:
        self.asked.append(f"{namespace} {fields}")
        note = {"reason": "FailedMount", "type": "Warning", "note": "no such volume"}
        return ObjectList((msgspec.convert(note, KubernetesEvent),), "1")


def test_only_those_that_take_too_long_are_asked_about() -> None:
    server, told = Server(), []
    pods = [pod("late", nodeName="a"), pod("runs", nodeName="a", phase="Running"), pod("unplaced")]
    now = [BEGUN + AFTER / 2]
    stuck = PodStartDiagnosis(cast(ApiClient, server), lambda: pods, lambda: now[0])
    stuck.changed = lambda: told.append("changed")
    asyncio.run(stuck.look())
    assert not server.asked
    now[0] = BEGUN + AFTER + 1
    for _ in range(2):
        asyncio.run(stuck.look())
    assert set(server.asked) == {"team regarding.uid=late"}
    assert told == ["changed"]
    assert stuck.why(pods[0]) == "its volumes are not ready: no such volume"
    assert stuck.why(pods[1]) == ""
