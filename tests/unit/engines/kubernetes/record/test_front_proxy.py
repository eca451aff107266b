"""Callers that the API server authenticates."""

from __future__ import annotations

from typing import Any

import pytest

from fairway.engines.kubernetes.client import api_resource
from fairway.engines.kubernetes.identity.caller import ClusterCaller
from fairway.engines.kubernetes.objects import ConfigMap
from fairway.engines.kubernetes.record.front_proxy import FrontProxy, read_front, review, sent_code
from fairway.errors import DeniedError

FRONT = FrontProxy("PEM", ("front-proxy-client",))


class FakeClient:
    def __init__(self, answer: Any) -> None:
        self.answer = answer
        self.asked: list[Any] = []

    async def get(self, resource: object, name: str, namespace: str = "") -> Any:
        self.asked.append((name, namespace))
        return self.answer

    async def create(self, resource: object, body: Any, namespace: str = "") -> Any:
        self.asked.append(body)
        return self.answer


def test_the_headers_of_the_api_server_name_the_caller() -> None:
    headers = [
        (b"x-remote-user", b"ann"),
        (b"X-Remote-Group", b"nlp"),
        (b"x-remote-group", b"system:authenticated"),
        (b"x-remote-extra-scopes", b"a"),
        (b"x-remote-extra-scopes", b"b"),
        (b"host", b"x"),
    ]
    assert FRONT.caller(headers) == ClusterCaller("ann", ("nlp", "system:authenticated"), {"scopes": ("a", "b")})
    assert FRONT.caller([(b"x-remote-group", b"system:masters")]) is None


def test_only_a_certificate_of_the_names_allowed_is_the_api_servers() -> None:
    def of(name: str) -> dict[str, Any]:
        return {"subject": ((("organizationName", "x"),), (("commonName", name),))}

    assert FRONT.accepts(of("front-proxy-client"))
    assert not FRONT.accepts(of("somebody"))
    assert not FRONT.accepts({})
    assert FrontProxy("PEM").accepts(of("anybody")), "no names mean any, as the API server says"


async def test_what_the_api_server_says_of_itself_is_read() -> None:
    data = {
        "requestheader-client-ca-file": "PEM",
        "requestheader-allowed-names": '["front"]',
        "requestheader-username-headers": '["X-Who"]',
    }
    client = FakeClient(ConfigMap(data=data))
    front = await read_front(client)  # type: ignore[arg-type]
    assert front == FrontProxy("PEM", ("front",), ("x-who",))
    assert client.asked == [("extension-apiserver-authentication", "kube-system")]
    assert (await read_front(FakeClient(ConfigMap()))).authority == ""  # type: ignore[arg-type]


async def test_the_api_server_is_asked_for_the_caller_and_its_no_is_told_in_its_words() -> None:
    client = FakeClient({"status": {"allowed": True}})
    caller = ClusterCaller("ann", ("nlp",), {"scopes": ("a",)})
    await review(client, caller, "create", api_resource.TRAINING_JOBS, "team")  # type: ignore[arg-type]
    spec = client.asked[0]["spec"]
    assert (spec["user"], spec["groups"], spec["extra"]) == ("ann", ["nlp"], {"scopes": ["a"]})
    assert spec["resourceAttributes"] == {
        "verb": "create",
        "group": "fairway.dev",
        "resource": "trainingjobs",
        "namespace": "team",
    }
    said = (
        'trainingjobs.fairway.dev is forbidden: User "ann" cannot create resource "trainingjobs" '
        'in API group "fairway.dev" in the namespace "team"'
    )
    with pytest.raises(DeniedError) as refused:
        await review(FakeClient({"status": {"allowed": False}}), caller, "create", api_resource.TRAINING_JOBS, "team")  # type: ignore[arg-type]
    assert refused.value.message == said


def test_code_is_what_was_sent_or_what_is_known() -> None:
    assert sent_code("blob:new", "blob:old") == "blob:new"
    assert sent_code(".", "ab" * 32) == f"blob:{'ab' * 32}", "the record knows it by its digest alone"
    assert sent_code(".", "a-config-map") == "a-config-map"
    assert sent_code(".", "") == ""
