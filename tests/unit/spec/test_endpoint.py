"""How a document allows access by others."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from fairway.errors import SpecError
from fairway.plan.service.access import access_of, service_url
from fairway.spec.endpoint import ServiceEndpoint
from fairway.spec.service import ServiceSpec
from fairway.spec.text.document import read_documents, render
from fairway.state.job import SubmissionOrigin
from fairway.state.service import ServiceKey, ServiceState
from fairway.state.serving.access import TlsRule

FLAT = """
kind: ModelService
name: mnist
model: mnist
endpoint:
  bind: 0.0.0.0
  keys: required
  tls: self-signed
  hosts: gpu7
  cors: {origins: "https://app.example.org"}
"""


def test_both_spellings_say_the_same() -> None:
    (document,) = read_documents(FLAT)
    assert read_documents(render(document, "kubernetes")) == [document]
    assert read_documents(render(document, "flat")) == [document]
    assert read_documents("kind: ModelService\nname: m\nmodel: m\nendpoint: 127.0.0.2\n")[0].spec.endpoint.bind == "127.0.0.2"


@pytest.mark.parametrize("bind", ["0.0.0.0", "::", "10.0.0.5", "fe80::1"])
def test_beyond_this_machine_only_with_keys_or_consent(bind: str) -> None:
    with pytest.raises(ValidationError, match="without API keys"):
        ServiceEndpoint(bind=bind)
    assert ServiceEndpoint(bind=bind, keys="required").bind == bind
    assert ServiceEndpoint(bind=bind, public=True).public


@pytest.mark.parametrize("bind", ["127.0.0.1", "127.9.9.9", "::1"])
def test_loopback_needs_neither(bind: str) -> None:
    assert ServiceEndpoint(bind=bind).bind == bind


@pytest.mark.parametrize(
    ("endpoint", "said"),
    [
        ({"bind": "localhost"}, "is not an IP address"),
        ({"bind": "0.0.0.0:80"}, "is not an IP address"),
        ({"tls": {"certificate": "a.pem"}}, "without its key"),
        ({"tls": {"mode": "self-signed", "secret": "x"}}, "more than one certificate"),
        ({"cors": {"origins": ["*"], "credentials": True}}, "lets pages of all origins"),
        ({"cors": {"origins": ["*", "https://a.example"]}}, "and other origins"),
        ({"cors": {"origins": ["app.example.org"]}}, "pattern"),
        ({"cors": {"origins": ["https://a.example/path"]}}, "pattern"),
        ({"cors": {"origins": ["https://a\r\nx: y"]}}, "pattern"),
        ({"cors": {"origins": ["https://a"], "headers": ["x\r\ny"]}}, "pattern"),
        ({"hosts": ["a b"]}, "pattern"),
        ({"open_paths": ["health"]}, "pattern"),
    ],
)
def test_what_is_refused(endpoint: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        ServiceEndpoint.model_validate(endpoint)


def test_all_mistakes_of_a_document_with_their_places() -> None:
    text = "kind: ModelService\nname: m\nmodel: m\nendpoint:\n  bind: here\n  keys: maybe\n  tls: self\n  hosts: [a b]\n"
    with pytest.raises(SpecError) as refused:
        read_documents(text)
    for line in ("5:9", "6:9", "7:8", "8:11"):
        assert line in str(refused.value), refused.value


def made(**endpoint: Any) -> ServiceState:
    spec = ServiceSpec.model_validate({"model": "m", "endpoint": endpoint})
    return ServiceState(ServiceKey("default", "m"), spec, SubmissionOrigin(folder="/home/x/"), port=8443)


def test_paths_of_certificates_start_where_the_command_was_typed() -> None:
    access = access_of(made(tls={"certificate": "server.pem", "key": "/etc/key.pem"}))
    assert access is not None
    assert access.tls == TlsRule("/home/x/server.pem", "/etc/key.pem")
    assert access_of(made()) is None
    assert access_of(made(bind="0.0.0.0", public=True, hosts=["a"])) is None


@pytest.mark.parametrize(
    ("endpoint", "url"),
    [
        ({}, "http://127.0.0.1:8443"),
        ({"bind": "0.0.0.0", "public": True}, "http://127.0.0.1:8443"),
        ({"bind": "::", "keys": "required"}, "http://127.0.0.1:8443"),
        ({"bind": "::1", "tls": {"mode": "self-signed"}}, "https://[::1]:8443"),
    ],
)
def test_where_this_machine_asks(endpoint: dict[str, Any], url: str) -> None:
    assert service_url(made(**endpoint)) == url
