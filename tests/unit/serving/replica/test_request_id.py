"""The id of a request at a replica: returned to direct clients, and logged when something failed."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from small_models import Told, app_of, signature

from fairway.serving.replica.request_error import ModelError
from fairway.serving.replica.request_id import FailureLog, echoed, id_of

ROUTED = [(b"host", b"x"), (b"x-forwarded-for", b"1"), (b"x-forwarded-proto", b"http"), (b"x-forwarded-host", b"x")]


def test_an_id_goes_back_to_a_client_that_asks_directly() -> None:
    assert echoed([(b"host", b"x"), (b"x-request-id", b"mine")]) == [(b"x-request-id", b"mine")]
    assert echoed([*ROUTED, (b"x-request-id", b"mine")]) == []
    assert echoed([]) == []


@pytest.mark.parametrize("value", [b"", b"a b", b"x" * 201, b"a\r\nset-cookie: x", "é".encode()])
def test_an_id_that_cannot_be_logged_is_none(value: bytes) -> None:
    assert id_of([(b"x-request-id", value)]) == ""
    assert echoed([(b"x-request-id", value)]) == []


async def test_what_failed_is_logged_with_its_id(caplog: pytest.LogCaptureFixture) -> None:
    def work(_inputs: list[Any]) -> list[Any]:
        raise ModelError(500, "the model broke")

    app = app_of(Told(signature(x=("FP32", [-1, 1]), out_y=("FP32", [-1, 1])), work))
    body = b'{"inputs":[{"name":"x","datatype":"FP32","shape":[1,1],"data":[1.0]}]}'
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    async def receive() -> Any:
        return {"type": "http.request", "body": body}

    headers = [(b"content-length", b"%d" % len(body)), (b"x-request-id", b"mine")]
    with caplog.at_level(logging.WARNING, "fairway.replica"):
        await app({"type": "http", "method": "POST", "path": "/v2/models/m/infer", "headers": headers}, receive, send)
    assert (sent[0]["status"], dict(sent[0]["headers"])[b"x-request-id"]) == (500, b"mine")
    assert any("request mine: 500" in line for line in caplog.messages)


def test_the_log_of_failures_is_bounded(caplog: pytest.LogCaptureFixture) -> None:
    now = 0.0
    log = FailureLog(lambda: now)
    with caplog.at_level(logging.WARNING, "fairway.replica"):
        now = 10.0
        for _ in range(100):
            log.note([], 500, b"x" * 10_000)
        now = 12.0
        log.note([], 500, b"")
    assert len(caplog.messages) == 12
    assert "90 more requests failed" in caplog.messages[10]
    assert max(map(len, caplog.messages)) < 600
