"""Health, nodes, secrets, and errors of requests."""

from __future__ import annotations

import logging
from typing import Any

import pytest


async def test_health(client: Any) -> None:
    answer = await client.get("/v1/health")
    assert answer.json == {"version": "1.2.3", "pid": 42, "home": "/home/fairway", "router": "fairway", "envoy": "", "image": ""}
    assert answer.headers["fairway-version"] == "1.2.3"


async def test_nodes(client: Any) -> None:
    await client.submit()
    nodes = (await client.get("/v1/nodes")).json["nodes"]
    assert (nodes[0]["name"], nodes[0]["cpu_free"], nodes[0]["gpus"]) == ("here", 2.0, 1)
    assert nodes[0]["tasks"] == ["mnist-1/worker-0", "mnist-1/worker-1"]
    assert (await client.get("/v1/nodes?output=table")).text.splitlines()[1].startswith("here")
    assert (await client.get("/v1/nodes?output=name")).text == "here\n"
    assert len((await client.get("/v1/nodes/here")).json["nodes"]) == 1
    answer = await client.get("/v1/nodes/hree")
    assert (answer.status, answer.error["message"]) == (404, "there is no node hree")


async def test_secrets_are_named_and_never_shown(client: Any) -> None:
    answer = await client.begin("PUT", "/v1/secrets/HF_TOKEN", {"value": "hf_abc"}).done()
    assert answer.json == {"name": "HF_TOKEN"}
    assert client.app.secrets.reveal(["HF_TOKEN"]) == {"HF_TOKEN": "hf_abc"}
    for output in ("json", "yaml", "table", "wide", "name"):
        shown = (await client.get(f"/v1/secrets?output={output}")).text
        assert "HF_TOKEN" in shown
        assert "hf_abc" not in shown
    assert (await client.delete("/v1/secrets/HF_TOKEN")).json == {"deleted": ["HF_TOKEN"]}
    assert (await client.delete("/v1/secrets/HF_TOKEN")).status == 404


@pytest.mark.parametrize("name", ["no-dashes", "1ST"])
async def test_a_secret_needs_a_variables_name(client: Any, name: str) -> None:
    answer = await client.begin("PUT", f"/v1/secrets/{name}", {"value": "x"}).done()
    assert (answer.status, answer.error["code"]) == (400, "usage")
    assert name in answer.error["message"]


async def test_a_wrong_body_does_not_repeat_the_value(client: Any) -> None:
    answer = await client.begin("PUT", "/v1/secrets/HF_TOKEN", {"value": ["hf_abc"]}).done()
    assert answer.status == 400
    assert "hf_abc" not in answer.text


async def test_what_is_nowhere(client: Any) -> None:
    answer = await client.get("/v2/jobs")
    assert (answer.status, answer.error["code"]) == (404, "not_found")
    answer = await client.begin("PATCH", "/v1/jobs").done()
    assert (answer.status, answer.error["code"]) == (405, "usage")
    assert answer.headers["fairway-version"] == "1.2.3"


async def test_a_surprise_gets_a_reference_into_the_log(
    client: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def surprise(*_: object) -> None:
        raise ZeroDivisionError("a detail nobody should see")

    monkeypatch.setattr(client.app, "find", surprise)
    with caplog.at_level(logging.ERROR):
        answer = await client.get("/v1/jobs/mnist")
    assert (answer.status, answer.error["code"]) == (500, "bug")
    assert "a detail" not in answer.text
    reference = answer.error["message"].rpartition("reference ")[2].rstrip(")")
    assert reference in caplog.text
    assert "ZeroDivisionError: a detail nobody should see" in caplog.text
