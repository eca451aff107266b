"""The API over a real application, a fake engine and a store in memory, called as a server would call it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from fairway.api.asgi import DaemonInfo, make_api
from fairway.app.application import Application
from fairway.app.port.port import LogChunk, LogQuery
from fairway.app.submission import Submission
from fairway.errors import NotFoundError
from fairway.registry.blob import BlobStore
from fairway.registry.dataset import DatasetRegistry
from fairway.registry.model import ModelRegistry
from fairway.state.job import JobKey, JobState, SubmissionOrigin
from fairway.state.node import ClusterNode, NodeDevice
from fairway.testing.fake.fake_engine import FakeEngine, FakeMachine
from fairway.testing.fake.memory_store import MemoryStore

DOCUMENT = """\
kind: TrainingJob
name: mnist
replicas: 2
command: stay
"""


class ManualClock:
    def __init__(self) -> None:
        self.time = 1_700_000_000.0

    def now(self) -> float:
        return self.time


class Secrets:
    def __init__(self) -> None:
        self.values: dict[str, str] = {}

    def names(self) -> list[str]:
        return list(self.values)

    def put(self, name: str, value: str) -> None:
        self.values[name] = value

    def delete(self, name: str) -> None:
        if name not in self.values:
            raise NotFoundError(f"there is no secret {name}")
        del self.values[name]

    def reveal(self, names: Iterable[str]) -> dict[str, str]:
        return {name: self.values[name] for name in names}


class Keeper:
    def __init__(self) -> None:
        self.kept: list[Submission] = []

    async def receive(self, submission: Submission) -> SubmissionOrigin:
        return submission.origin

    async def missing(self, submission: Submission, port: int = 0) -> list[str]:
        return []

    def keep(self, key: JobKey, submission: Submission) -> None:
        self.kept.append(submission)

    async def fingerprint(self, job: JobState) -> str:
        return "abc"


class TalkingEngine(FakeEngine):
    """An engine whose tasks print what the test puts into a queue, when it does."""

    def __init__(self, machine: FakeMachine, clock: ManualClock) -> None:
        super().__init__(machine, clock)
        self.said: asyncio.Queue[LogChunk | None] = asyncio.Queue()
        self.queries: list[LogQuery] = []
        self.closed = 0

    async def logs(self, job: JobState, query: LogQuery) -> AsyncIterator[LogChunk]:
        self.queries.append(query)
        try:
            while (chunk := await self.said.get()) is not None:
                yield chunk
        finally:
            self.closed += 1

    def say(self, *chunks: tuple[str, bytes] | tuple[str, bytes, int], end: bool = True) -> None:
        for task, data, *attempt in chunks:
            self.said.put_nowait(LogChunk(task, attempt[0] if attempt else 0, data))
        if end:
            self.said.put_nowait(None)


@dataclass
class Answer:
    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""

    @property
    def text(self) -> str:
        return self.body.decode()

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def error(self) -> Any:
        return self.json["error"]


class Exchange:
    """A request in progress; a test may inspect the partial answer or disconnect."""

    def __init__(self, api: Any, method: str, target: str, body: bytes) -> None:
        self.answer = Answer()
        self._gone = asyncio.Event()
        self._news = asyncio.Condition()
        self._body: bytes | None = body
        path, _, query = target.partition("?")
        scope = {
            "type": "http", "asgi": {"version": "3.0", "spec_version": "2.3"}, "http_version": "1.1", "method": method,
            "path": path, "raw_path": path.encode(), "query_string": query.encode(), "root_path": "", "headers": [],
            "scheme": "http", "client": None, "server": None,
        }  # fmt: skip
        self.task = asyncio.create_task(api(scope, self._receive, self._send))

    async def _receive(self) -> dict[str, Any]:
        if self._body is not None:
            body, self._body = self._body, None
            return {"type": "http.request", "body": body, "more_body": False}
        await self._gone.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: dict[str, Any]) -> None:
        async with self._news:
            if message["type"] == "http.response.start":
                self.answer.status = message["status"]
                self.answer.headers = {name.decode(): value.decode() for name, value in message["headers"]}
            else:
                self.answer.body += message["body"]
            self._news.notify_all()

    async def until(self, text: bytes) -> None:
        async with asyncio.timeout(10), self._news:
            await self._news.wait_for(lambda: text in self.answer.body)

    def hang_up(self) -> None:
        self._gone.set()

    async def done(self) -> Answer:
        async with asyncio.timeout(10):
            await self.task
        return self.answer


class Client:
    def __init__(self, api: Any, app: Application, engine: TalkingEngine, clock: ManualClock, keeper: Keeper) -> None:
        self.api, self.app, self.engine, self.clock, self.keeper = api, app, engine, clock, keeper

    def begin(self, method: str, target: str, body: object = None) -> Exchange:
        data = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
        return Exchange(self.api, method, target, data)

    async def get(self, target: str) -> Answer:
        return await self.begin("GET", target).done()

    async def post(self, target: str, body: object = None) -> Answer:
        return await self.begin("POST", target, body).done()

    async def delete(self, target: str) -> Answer:
        return await self.begin("DELETE", target).done()

    async def submit(self, text: str = DOCUMENT) -> Any:
        answer = await self.post("/v1/jobs", {"documents": text})
        assert answer.status == 201, answer.text
        await self.settled()
        return answer.json

    async def settled(self) -> None:
        """Let every task that can run now run, and take a turn of the loop."""
        for _ in range(3):
            await asyncio.sleep(0)
        async with self.app.loop.lock:
            await self.app.loop.turn()


@pytest.fixture
async def client(tmp_path: Path) -> AsyncIterator[Client]:
    clock = ManualClock()
    machine = FakeMachine(ClusterNode("here", cpu=4.0, memory=8 << 30, devices=(NodeDevice("GPU-1", 0, "H100", 80 << 30),)))
    engine, keeper = TalkingEngine(machine, clock), Keeper()
    blobs = BlobStore(tmp_path / "blobs")
    datasets, models = DatasetRegistry(tmp_path, blobs), ModelRegistry(tmp_path, blobs)
    app = Application(MemoryStore(), engine, clock, Secrets(), keeper, datasets, models=models)
    await app.loop.start()
    yield Client(make_api(app, DaemonInfo("1.2.3", 42, "/home/fairway")), app, engine, clock, keeper)
    await app.loop.close()
