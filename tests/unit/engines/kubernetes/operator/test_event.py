"""Events of a run on its object: each once, and none repeated after a restart."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec

from fairway.engines.kubernetes.client import errors
from fairway.engines.kubernetes.objects import CustomObject
from fairway.engines.kubernetes.operator.event import LONGEST, EventRecorder, event_of
from fairway.state.event import RunEvent

JOB = msgspec.convert({"metadata": {"name": "mnist", "namespace": "team", "uid": "u-1"}}, CustomObject)


class Clock:
    def now(self) -> float:
        return 10_000.0


class Server:
    """Stores created objects; the same name twice is refused."""

    def __init__(self, wanted: int) -> None:
        self.made: dict[str, dict[str, Any]] = {}
        self.asked = 0
        self.enough = asyncio.Event()
        self._wanted = wanted

    async def create(self, _resource: object, body: dict[str, Any], namespace: str) -> None:
        self.asked += 1
        if self.asked == self._wanted:
            self.enough.set()
        assert namespace == "team"
        if body["metadata"]["name"] in self.made:
            raise errors.AlreadyExists("it is there", http=409)
        self.made[body["metadata"]["name"]] = body


def happened(time: float, reason: str = "Running", message: str = "2 tasks run") -> RunEvent:
    return RunEvent(time, "team/mnist", reason, message)


async def test_each_event_is_told_once_and_what_is_long_ago_never() -> None:
    server = Server(4)
    telling = EventRecorder(server, "one", Clock())  # type: ignore[arg-type]
    telling.tell(JOB, [happened(1.0), happened(9_000.0), happened(9_001.0, "Restarting")])
    telling.tell(JOB, [happened(1.0), happened(9_000.0), happened(9_001.0, "Restarting")])
    again = EventRecorder(server, "two", Clock())  # type: ignore[arg-type]
    again.tell(JOB, [happened(9_000.0), happened(9_001.0, "Restarting")])
    running = [asyncio.create_task(each.run()) for each in (telling, again)]
    await asyncio.wait_for(server.enough.wait(), 30)
    for each in running:
        each.cancel()
    assert sorted((body["reason"], body["type"]) for body in server.made.values()) == [
        ("Restarting", "Warning"),
        ("Running", "Normal"),
    ]


def test_an_event_is_about_the_object_and_no_longer_than_the_server_takes() -> None:
    manifest = event_of(JOB, happened(9_000.0, message="x" * 5000), "one")
    assert manifest["regarding"]["uid"] == "u-1"
    assert manifest["metadata"]["name"].startswith("mnist.")
    assert len(manifest["note"]) == LONGEST
    assert manifest["eventTime"] == "1970-01-01T02:30:00.000000Z"
