"""Callers allowed by an agent: the API server must confirm the token as the operator's, issued for this audience."""

from __future__ import annotations

from typing import Any

import pytest

from fairway.engines.kubernetes.agent.token_review import AUDIENCE, LONGEST, TokenReviewer
from fairway.engines.kubernetes.client import errors

OPERATOR = "system:serviceaccount:fairway-system:fairway-operator"
GOOD = {"authenticated": True, "audiences": [AUDIENCE], "user": {"username": OPERATOR}}


class Server:
    """An API server that reviews tokens."""

    def __init__(self, status: dict[str, Any] | None) -> None:
        self.status = status
        self.asked: list[dict[str, Any]] = []

    async def create(self, resource: object, body: dict[str, Any]) -> dict[str, Any]:
        del resource
        self.asked.append(body["spec"])
        if self.status is None:
            message = "no"
            raise errors.ApiError(message, asked="judge")
        return {"status": self.status}


async def test_the_operator_is_known_and_not_asked_about_each_time() -> None:
    server = Server(GOOD)
    known = TokenReviewer(server, OPERATOR)  # type: ignore[arg-type]
    assert await known("a")
    assert await known("a")
    assert server.asked == [{"token": "a", "audiences": [AUDIENCE]}]
    server.status = {"authenticated": False}
    assert not await known("b")
    assert await known("a")


@pytest.mark.parametrize(
    "status",
    [
        {"authenticated": False, "error": "expired"},
        {**GOOD, "user": {"username": "system:serviceaccount:team:default"}},
        {**GOOD, "audiences": ["https://kubernetes.default.svc"]},
        {"authenticated": True, "user": {"username": OPERATOR}},
        {},
        None,
    ],
)
async def test_nobody_else_is_known_nor_a_token_for_others(status: dict[str, Any] | None) -> None:
    assert not await TokenReviewer(Server(status), OPERATOR)("a")  # type: ignore[arg-type]


async def test_what_cannot_be_good_is_not_even_asked_about() -> None:
    server = Server(GOOD)
    assert not await TokenReviewer(server, OPERATOR)("")  # type: ignore[arg-type]
    assert not await TokenReviewer(server, OPERATOR)("x" * (LONGEST + 1))  # type: ignore[arg-type]
    assert not await TokenReviewer(server, "")("a")  # type: ignore[arg-type]
    assert server.asked == []
