"""Descriptions of the clients that can access a service."""

from __future__ import annotations

import pytest

from fairway.spec.endpoint import ServiceEndpoint
from fairway.views.serving.access import reach_sentence

KEYS = {"keys": "required", "bind": "0.0.0.0"}


@pytest.mark.parametrize(
    ("fields", "port", "said"),
    [
        (
            {},
            0,
            "m would listen on 127.0.0.1, a free port, without TLS: "
            "only programs on this machine could send requests without a key",
        ),
        (
            {"bind": "::1"},
            80,
            "m would listen on ::1, port 80, without TLS: only programs on this machine could send requests without a key",
        ),
        (
            {"bind": "0.0.0.0", "public": True},
            8000,
            "m would listen on 0.0.0.0, port 8000, without TLS: every client that reaches this machine, at any of its addresses, "
            "could send requests without a key",
        ),
        (
            {**KEYS, "tls": {"mode": "self-signed"}, "hosts": ("m.example.org",)},
            8443,
            "m would listen on 0.0.0.0, port 8443 with TLS: every client that reaches this machine, at any of its addresses, "
            "could send requests with one of its API keys, with the host names m.example.org",
        ),
        (
            {**KEYS, "bind": "10.0.0.7", "cors": {"origins": ("https://app.example.org",)}},
            80,
            "m would listen on 10.0.0.7, port 80, without TLS: every client that reaches this address could send requests "
            "with one of its API keys; pages of https://app.example.org could read replies; the keys would be sent unencrypted",
        ),
    ],
)
def test_who_could_ask(fields: dict, port: int, said: str) -> None:
    assert reach_sentence("m", ServiceEndpoint.model_validate(fields), port) == said


def test_in_a_cluster_an_address_of_this_machine_says_nothing() -> None:
    said = reach_sentence("m", ServiceEndpoint(), 0, cluster=True)
    assert "127.0.0.1" not in said
    assert "pods of the cluster" in said
    assert "without a key" in said
