"""Messages of pods about their tasks: accepted with the token of their run, each counted once, metrics from the best source."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from starlette.requests import Request

from fairway.api.mlflow.token import token_of
from fairway.api.pods.metric import MetricReportRoute
from fairway.app.port.port import Observation
from fairway.app.tracking.run import TokenCaller

SECRET = b"a secret of this operator"


class Operator:
    """Records the observations from messages."""

    def __init__(self) -> None:
        self.taken: list[Observation] = []
        self._told = MetricReportRoute(self._take, SECRET)

    async def _take(self, seen: Observation) -> None:
        self.taken.append(seen)

    def tell(self, message: dict[str, Any], run: str = "mnist-1", token: str = "") -> int:
        bearer = token or token_of(SECRET, TokenCaller("team", run))
        body = json.dumps(message).encode()

        async def receive() -> dict[str, Any]:
            return {"type": "http.request", "body": body}

        scope = {
            "type": "http",
            "method": "POST",
            "path": "/v1/told",
            "headers": [(b"authorization", f"Bearer {bearer}".encode())],
        }
        return asyncio.run(self._told(Request(scope, receive))).status_code

    @property
    def points(self) -> list[tuple[str, str, int | None]]:
        return [(point.task, point.source, point.step) for seen in self.taken for point in seen.points]


def message(number: int, *points: dict[str, Any], sender: str = "a") -> dict[str, Any]:
    return {"task": "worker-0", "attempt": 0, "sender": sender, "number": number, "points": list(points)}


def point(step: int, source: str = "report", rank: int = 0, moment: float | None = None) -> dict[str, Any]:
    when = float(step) if moment is None else moment
    return {"time": when, "step": step, "metrics": {"loss": 1.0}, "source": source, "rank": rank}


@pytest.fixture
def operator() -> Operator:
    return Operator()


def test_a_message_that_comes_twice_counts_once_whatever_its_times(operator: Operator) -> None:
    assert operator.tell(message(1, point(5, moment=50.0))) == 204
    assert operator.tell(message(1, point(5, moment=50.0))) == 204
    # The clock of another process of the task was a little behind when the point was read.
    assert operator.tell(message(2, point(4, rank=1, moment=49.9))) == 204
    assert operator.tell(message(1, point(5), sender="b")) == 204
    assert operator.points == [("worker-0", "report", 5), ("worker-0.1", "report", 4), ("worker-0", "report", 5)]


def test_when_one_pod_reports_what_others_print_does_not_count_any_more(operator: Operator) -> None:
    operator.tell(message(1, point(1, "log")))
    operator.tell(message(1, point(1, "tensorboard"), sender="b"))
    operator.tell(message(2, point(2, "log")))
    operator.tell(message(1, point(9, "log")), run="other-1")
    assert [source for _, source, _ in operator.points] == ["log", "tensorboard", "log"]
    assert [seen.key.name for seen in operator.taken if seen.points] == ["mnist-1", "mnist-1", "other-1"]


def test_nobody_speaks_for_another(operator: Operator) -> None:
    assert operator.tell(message(1, point(1)), token="team/mnist-1.forged") == 401
    assert operator.tell({"points": 3}) == 400
    assert operator.tell(message(1, point(1, source="dream"))) == 200
    assert operator.taken == []
