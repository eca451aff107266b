"""Uninstalling, with an API server that takes time to delete definitions and namespaces."""

from __future__ import annotations

from typing import Any

import pytest

from fairway.engines.kubernetes.client import errors
from fairway.engines.kubernetes.client.api import ObjectList
from fairway.engines.kubernetes.client.api_path import ApiResource
from fairway.engines.kubernetes.install import installer
from fairway.errors import UnavailableError

NAMESPACE = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "fairway-system"}}
DEFINITION = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "jobs.fairway.dev"},
    "spec": {
        "group": "fairway.dev",
        "scope": "Namespaced",
        "names": {"plural": "jobs", "kind": "Job"},
        "versions": [{"name": "v0", "storage": False}, {"name": "v1", "storage": True}],
    },
}


class ApiServer:
    """The methods of the client that uninstalling uses. Deleted objects disappear after some more reads.

    A definition whose objects were not read before it is deleted stays, as with Kubernetes 1.36: its storage is not ready then.
    """

    def __init__(self, looks: int = 3) -> None:
        self.there: dict[str, Any] = {"jobs.fairway.dev": DEFINITION, "fairway-system": NAMESPACE}
        self.deleted: dict[str, int] = {}
        self.looks = looks
        self.read: list[str] = []

    async def resource(self, api_version: str, kind: str) -> ApiResource[Any]:
        group, _, version = api_version.rpartition("/")
        return ApiResource(dict, group, version, f"{kind.lower()}s", kind, namespaced=False)

    async def list(self, resource: ApiResource[Any], namespace: str = "", *, labels: str = "") -> ObjectList[Any]:
        if labels:
            return ObjectList((), "1")
        if "jobs.fairway.dev" not in self.there:
            raise errors.NotFound("there are no jobs")
        self.read.append(resource.collection(namespace))
        return ObjectList(({}, {}), "1")

    async def delete(self, _resource: ApiResource[Any], name: str, _namespace: str = "") -> bool:
        if name not in self.there:
            return False
        waits_for_ever = name == "jobs.fairway.dev" and not self.read
        self.deleted[name] = 1 << 30 if waits_for_ever else self.looks
        return True

    async def get(self, _resource: ApiResource[Any], name: str, _namespace: str = "") -> Any:
        if name in self.deleted:
            self.deleted[name] -= 1
            if self.deleted[name] < 0:
                self.there.pop(name, None)
        if name not in self.there:
            raise errors.NotFound(f"there is no {name}")
        said = {"type": "Terminating", "status": "True", "message": "storage is (re)initializing"}
        served = {"type": "Established", "status": "True", "message": "the initial names have been accepted"}
        return {**self.there[name], "status": {"conditions": [served, said]}}


async def taken_away(server: ApiServer) -> list[str]:
    said: list[str] = []
    await installer.remove_all(server, [NAMESPACE, DEFINITION], said.append, whole=True)  # type: ignore[arg-type]
    return said


async def test_all_is_taken_away_when_it_has_gone_and_not_when_it_was_asked_to_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(installer, "LOOK_EVERY", 0.0)
    server = ApiServer()
    assert await taken_away(server) == [
        "CustomResourceDefinition jobs.fairway.dev is being deleted with 2 objects",
        "Namespace fairway-system is being deleted",
        "Namespace fairway-system is deleted",
        "CustomResourceDefinition jobs.fairway.dev is deleted",
    ]
    assert server.read == ["/apis/fairway.dev/v1/jobs"]
    assert server.there == {}
    assert await taken_away(server) == []


async def test_what_does_not_go_is_told_with_the_reason_of_the_api_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(installer, "LOOK_EVERY", 0.0)
    monkeypatch.setattr(installer, "END_PATIENCE", 0.01)
    server = ApiServer(looks=1 << 30)
    with pytest.raises(UnavailableError) as told:
        await taken_away(server)
    assert told.value.message == (
        "Namespace fairway-system is being deleted and still exists after 0.01 s: storage is (re)initializing"
    )
    assert told.value.fix.endswith("kubectl get namespace fairway-system -o yaml")
