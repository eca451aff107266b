"""Synchronizing services with their objects, whichever changes first."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from fairway.app.serving.service_turn import ServiceEntry
from fairway.app.system.clock import SystemClock
from fairway.engines.kubernetes.client.api import ObjectList
from fairway.engines.kubernetes.objects import CustomObject
from fairway.engines.kubernetes.operator.installation import InstallationSettings
from fairway.engines.kubernetes.serving.model_service_intake import SOON, ModelServiceIntake
from fairway.engines.kubernetes.serving.model_service_status import UID
from fairway.engines.kubernetes.serving.service_controller import owner_of
from fairway.spec.service import ServiceSpec
from fairway.state.service import ServiceKey, ServiceRecord, ServiceState

KEY = ServiceKey("team", "adds")


def found(uid: str, **metadata: Any) -> CustomObject:
    return msgspec.convert({"metadata": {"name": "adds", "namespace": "team", "uid": uid, **metadata}}, CustomObject)


def service(**more: Any) -> ServiceState:
    return ServiceState(KEY, ServiceSpec.model_validate({"model": "adds@1"}), labels={UID: "u1"}, **more)


class ApiServer:
    """The objects of the API server."""

    def __init__(self, *objects: CustomObject) -> None:
        self.objects = objects

    async def list(self, _resource: Any, namespace: str, *, fields: str) -> ObjectList[CustomObject]:
        assert (namespace, fields) == ("team", "metadata.name=adds")
        return ObjectList(self.objects, "1")


class Services:
    """One service that was created from the object `u1`."""

    def __init__(self) -> None:
        self.deleted: list[ServiceKey] = []

    def is_kept(self, key: ServiceKey) -> bool:
        return key == KEY

    def find(self, key: ServiceKey) -> ServiceEntry:
        return ServiceEntry(ServiceRecord(service()))

    async def delete(self, key: ServiceKey) -> None:
        self.deleted.append(key)


@pytest.mark.parametrize(
    ("seen", "there", "ends"),
    [
        (None, (found("u1"),), False),
        (None, (), True),
        (None, (found("u1", deletionTimestamp="2026-01-01T00:00:00Z"),), True),
        (None, (found("u2"),), True),
        (found("u2"), (found("u2"),), True),
        (found("u0"), (found("u1"),), False),
    ],
    ids=["not seen yet", "gone", "going", "another", "another is seen", "an older one is seen"],
)
async def test_a_service_ends_with_its_object_and_not_because_that_was_not_seen_yet(
    seen: CustomObject | None, there: tuple[CustomObject, ...], ends: bool
) -> None:
    services, objects = Services(), {"team/adds": seen} if seen is not None else {}
    parts: Any = (ApiServer(*there), objects, services, None, InstallationSettings(image="x"), SystemClock(), lambda *_: None)
    assert await ModelServiceIntake(*parts).look("team/adds") == SOON
    await asyncio.sleep(0)
    assert services.deleted == ([KEY] if ends else [])


def test_an_object_owns_the_parts_of_its_service_also_before_it_is_seen_and_no_more_when_it_has_gone() -> None:
    owner = {"apiVersion": "fairway.dev/v1alpha1", "kind": "ModelService", "name": "adds", "uid": "u1", "controller": True}
    assert owner_of(service(), found("u1")) == owner
    assert owner_of(service(), None) == owner
    assert owner_of(service(), found("u2")) is None
    assert owner_of(service(deleting=True), None) is None
