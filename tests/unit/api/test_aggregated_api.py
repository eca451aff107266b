"""Requests that the API server proxies, as the daemon's routes receive them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from starlette.types import Message, Receive, Scope, Send

from fairway.api.aggregated_api import make_aggregated
from fairway.app.system.clock import SystemClock
from fairway.app.upload import Held, nothing_held
from fairway.engines.kubernetes.identity.caller import CALLER, ClusterCaller
from fairway.engines.kubernetes.record import resource
from fairway.engines.kubernetes.record.code_upload import CodeUploads
from fairway.engines.kubernetes.record.front_proxy import FrontProxy
from fairway.engines.kubernetes.record.upload import UploadReceiver
from fairway.registry.remote_blob import open_blobs

ANN = [(b"x-remote-user", b"ann"), (b"x-remote-group", b"nlp")]


class Inner:
    """The daemon's routes: records the requests."""

    def __init__(self) -> None:
        self.path = self.query = self.user = ""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.path, self.query, self.user = scope["path"], scope["query_string"].decode(), CALLER.get().user
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"{}"})


class Asked:
    def __init__(self, folder: Path) -> None:
        self.inner = Inner()
        blobs = open_blobs(folder / "blobs", "")
        codes, uploads = CodeUploads(blobs, folder / "received"), UploadReceiver(blobs, SystemClock())
        self.noted: list[tuple[str, str, str]] = []
        self.app = make_aggregated(self.inner, codes, uploads, self, lambda: FrontProxy("PEM"), "1.2.3")

    async def held(self, caller: ClusterCaller, namespace: str) -> Held:
        return nothing_held

    def note_code(self, caller: ClusterCaller, namespace: str, digest: str) -> None:
        self.noted.append((caller.user, namespace, digest))

    async def __call__(self, method: str, path: str, headers: Any = ANN, body: bytes = b"") -> tuple[int, Any]:
        before, _, query = path.partition("?")
        scope = {"type": "http", "method": method, "path": before, "query_string": query.encode(), "headers": headers}
        sent: list[Message] = []

        async def receive() -> Message:
            return {"type": "http.request", "body": body, "more_body": False}

        async def send(message: Message) -> None:
            sent.append(message)

        await self.app(scope, receive, send)
        text = b"".join(message.get("body", b"") for message in sent)
        return sent[0]["status"], json.loads(text) if text else None


@pytest.fixture
def asked(tmp_path: Path) -> Asked:
    return Asked(tmp_path)


@pytest.mark.parametrize(
    ("method", "rest", "path", "query"),
    [
        ("GET", "jobs", "/v1/jobs", "namespace=team"),
        ("GET", "jobs?namespace=other&limit=3", "/v1/jobs", "limit=3&namespace=team"),
        ("GET", "jobs/mnist-7", "/v1/jobs/mnist-7", "namespace=team"),
        ("GET", "jobs/mnist/log?follow=true", "/v1/jobs/mnist/logs", "follow=true&namespace=team"),
        ("GET", "jobs/mnist/log?watch=true&logs=false", "/v1/jobs/mnist/watch", "logs=false&namespace=team"),
        ("GET", "models/mnist/log?watch=true", "/v1/models/mnist/verify", "namespace=team"),
        ("GET", "datasets/rows/log?watch=true", "/v1/datasets/rows/verify", "namespace=team"),
        ("GET", "datasets/rows/log", "/v1/datasets/rows/content", "namespace=team"),
        ("GET", "services/web/log", "/v1/services/web/logs", "namespace=team"),
        ("GET", "jobs/mnist/top", "/v1/top/jobs/mnist", "namespace=team"),
        ("GET", "top/jobs", "/v1/top/jobs", "namespace=team"),
        ("GET", "events?within=other", "/v1/events", "namespace=team&within=team"),
        ("GET", "models/mnist@3/diff/mnist@4", "/v1/models/mnist@3/diff/mnist@4", "namespace=team"),
        ("POST", "services/web/rollout/undo", "/v1/services/web/rollout/undo", "namespace=team"),
        ("DELETE", "jobs/mnist-7?all=true", "/v1/jobs/mnist-7", "all=true&namespace=team"),
    ],
)
async def test_the_namespace_of_the_path_is_the_only_one(asked: Asked, method: str, rest: str, path: str, query: str) -> None:
    status, _ = await asked(method, f"{resource.ROOT}/namespaces/team/{rest}")
    assert (status, asked.inner.path, asked.inner.query, asked.inner.user) == (200, path, query, "ann")


async def test_all_namespaces_are_asked_for_at_once_only_where_runs_are_listed(asked: Asked) -> None:
    assert (await asked("GET", f"{resource.ROOT}/jobs"))[0] == 200
    assert asked.inner.query == "namespace=%2A"
    status, said = await asked("GET", f"{resource.ROOT}/events")
    assert (status, said["error"]["code"]) == (400, "usage")


@pytest.mark.parametrize(
    ("method", "rest"),
    [
        ("POST", "models/mnist/pull"),
        ("GET", "blobs"),
        ("PUT", "secrets/TOKEN"),
        ("GET", "jobs/mnist/environment"),
        ("POST", "jobs/mnist/input"),
        ("GET", "namespaces/other/jobs"),
        ("GET", ""),
    ],
)
async def test_what_reaches_files_of_the_operator_or_another_namespace_is_not_passed_on(
    asked: Asked, method: str, rest: str
) -> None:
    status, said = await asked(method, f"{resource.ROOT}/namespaces/team/{rest}")
    assert status in (400, 404)
    assert said["error"]["message"]
    assert asked.inner.path == ""


async def test_without_a_word_of_the_api_server_nobody_is_answered(asked: Asked) -> None:
    status, said = await asked("GET", f"{resource.ROOT}/namespaces/team/jobs", headers=[])
    assert (status, said["error"]["code"], asked.inner.path) == (403, "denied", "")


async def test_discovery_is_answered_and_the_rest_is_not_there(asked: Asked) -> None:
    assert (await asked("GET", "/apis", headers=[]))[1]["kind"] == "APIGroupList"
    assert (await asked("GET", "/apis/record.fairway.dev", headers=[]))[1]["kind"] == "APIGroup"
    assert (await asked("GET", "/apis/record.fairway.dev/v1alpha1", headers=[]))[1]["kind"] == "APIResourceList"
    assert (await asked("GET", "/openapi/v3", headers=[])) == (404, None)


async def test_code_that_is_sent_is_kept(asked: Asked) -> None:
    status, said = await asked("POST", f"{resource.ROOT}/namespaces/team/code", body=b"no archive")
    assert (status, said["error"]["code"]) == (409, "refused")


async def test_pieces_of_files_are_taken_in_a_namespace(asked: Asked) -> None:
    status, said = await asked("POST", f"{resource.ROOT}/namespaces/team/blobs", body=b'{"parts": []}\n')
    assert (status, said, asked.inner.path) == (200, {"standing": []}, "")
