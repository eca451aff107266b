"""Both clients repeat a request with the same key when the answer was lost, but not when it was refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from fairway.errors import NotFoundError, UnavailableError
from fairway.sdk.client import AsyncClient, Client
from fairway.sdk.transport import retry
from fairway.sdk.transport.cluster import read_error
from fairway.sdk.transport.http import LostReplyError
from fairway.testing.fake.fake_daemon import Answer, DaemonRequestRecord, FakeDaemon

BROKEN: Answer = [b"half of an answ", b""]
Ask = Callable[..., Any]


@pytest.fixture(params=["blocking", "async"])
def ask(request: pytest.FixtureRequest, daemon: FakeDaemon, monkeypatch: pytest.MonkeyPatch) -> Ask:
    """Return a function that calls a method of one of the two clients by name, without pauses between retries."""
    monkeypatch.setattr(retry, "PAUSES", (0.0,) * 3)

    async def call(name: str, /, *args: Any, **kwargs: Any) -> Any:
        client: Any = Client() if request.param == "blocking" else AsyncClient()
        found = getattr(client, name)(*args, **kwargs)
        return found if request.param == "blocking" else await found

    return call


def losing(daemon: FakeDaemon, request: str, answer: Answer, times: int) -> list[str]:
    """Break off the first `times` answers; return the keys that the daemon received."""
    keys: list[str] = []

    def answered(asked: DaemonRequestRecord) -> Answer:
        keys.append(asked.query["key"])
        return BROKEN if len(keys) <= times else answer

    daemon.answers[request] = answered
    daemon.answers["GET /v1/health"] = {"pid": 1}
    return keys


async def test_a_lost_answer_is_asked_for_again_with_the_same_key(ask: Ask, daemon: FakeDaemon) -> None:
    keys = losing(daemon, "PUT /v1/secrets/HF_TOKEN", {"name": "HF_TOKEN"}, 3)
    await ask("set_secret", "HF_TOKEN", "x")
    assert len(keys) == 4
    assert len(set(keys)) == 1
    await ask("set_secret", "HF_TOKEN", "x")
    assert len(set(keys)) == 2, "another wish has another key"


async def test_a_key_that_is_given_is_sent(ask: Ask, daemon: FakeDaemon) -> None:
    keys = losing(daemon, "POST /v1/jobs", NotFoundError("enough"), 1)
    with pytest.raises(NotFoundError):
        await ask("submit", {"kind": "TrainingJob", "name": "a", "command": "true"}, key="build-1")
    assert keys == ["build-1", "build-1"]


async def test_it_is_not_asked_for_ever(ask: Ask, daemon: FakeDaemon) -> None:
    keys = losing(daemon, "PUT /v1/secrets/A", {}, 100)
    with pytest.raises(LostReplyError, match="in the middle of an answer"):
        await ask("set_secret", "A", "x")
    assert len(keys) == 4


async def test_an_answer_that_says_no_is_an_answer(ask: Ask, daemon: FakeDaemon) -> None:
    keys = losing(daemon, "PUT /v1/secrets/A", UnavailableError("the disk is full"), 0)
    with pytest.raises(UnavailableError, match="the disk is full"):
        await ask("set_secret", "A", "x")
    assert len(keys) == 1


async def test_a_daemon_that_does_not_know_keys_is_asked_once(ask: Ask, daemon: FakeDaemon) -> None:
    daemon.keys = False
    keys = losing(daemon, "PUT /v1/secrets/A", {}, 1)
    with pytest.raises(LostReplyError):
        await ask("set_secret", "A", "x")
    assert len(keys) == 1


async def test_what_is_gone_when_it_is_asked_for_again_was_deleted(ask: Ask, daemon: FakeDaemon) -> None:
    losing(daemon, "DELETE /v1/jobs/mnist-1", NotFoundError("there is no run mnist-1"), 1)
    assert await ask("delete", "mnist-1") == ("mnist-1",)
    losing(daemon, "DELETE /v1/jobs/mnist-2", NotFoundError("there is no run mnist-2"), 0)
    with pytest.raises(NotFoundError):
        await ask("delete", "mnist-2")


@pytest.mark.parametrize(
    ("status", "words", "lost"),
    [
        (503, "error trying to reach service: EOF", True),
        (503, "error trying to reach service: dial tcp 10.0.0.7:8443: connect: connection refused", False),
        (503, "service unavailable", False),
        (504, "Timeout: request did not complete within the allotted duration", True),
        (502, "", True),
        (429, "too many requests", False),
    ],
)
def test_on_a_cluster_it_is_lost_when_it_had_been_passed_on(status: int, words: str, lost: bool) -> None:
    class Lab:
        context, server = "lab", "https://lab"

    error = read_error(status, json.dumps({"message": words}).encode(), Lab())  # type: ignore[arg-type]
    assert isinstance(error, LostReplyError) is lost
    assert isinstance(error, UnavailableError)
