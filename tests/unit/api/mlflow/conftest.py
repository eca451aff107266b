"""The routes for MLflow clients over a real application and registry, a fake engine and a store in memory."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest

from fairway.api.mlflow.asgi import make_mlflow
from fairway.api.mlflow.token import token_of
from fairway.app.application import Application
from fairway.app.port.port import ChangeSet
from fairway.app.submission import Submission
from fairway.app.tracking.model import TrackedModelUseCases
from fairway.app.tracking.run import TokenCaller, TrackingUseCases
from fairway.engines.local.artifact import LocalArtifacts
from fairway.engines.local.home import EngineHome
from fairway.registry.blob import BlobStore
from fairway.registry.dataset import DatasetRegistry
from fairway.registry.model import ModelRegistry
from fairway.spec.job import TrainingJob
from fairway.spec.text.document import read_documents
from fairway.state.job import JobKey, JobState, SubmissionOrigin
from fairway.state.node import ClusterNode
from fairway.state.phase import JobPhase
from fairway.testing.fake.fake_engine import FakeEngine, FakeMachine
from fairway.testing.fake.memory_store import MemoryStore

SECRET = b"0" * 32


class ManualClock:
    def __init__(self) -> None:
        self.time = 1_700_000_000.0

    def now(self) -> float:
        return self.time


class NoSecrets:
    def names(self) -> list[str]:
        return []


class Keeper:
    async def receive(self, submission: Submission) -> SubmissionOrigin:
        return submission.origin

    def keep(self, key: JobKey, submission: Submission) -> None:
        pass

    async def fingerprint(self, job: JobState) -> str:
        return "c0de"


@dataclass
class Answer:
    status: int
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def error(self) -> str:
        return str(self.json["error_code"])


class Caller:
    """A client that sends a token."""

    def __init__(self, api: Any, token: str | None) -> None:
        self._api = api
        self._token = token

    async def __call__(self, method: str, path: str, body: Any = None, *, query: str = "") -> Answer:
        """Send a request for `runs/create` or an absolute path; a GET puts its body into the query."""
        full = path if path.startswith("/") else f"/api/2.0/mlflow/{path}"
        if method == "GET" and body:
            query, body = urlencode(body, doseq=True), None
        data = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
        headers = [(b"authorization", f"Bearer {self._token}".encode())] if self._token is not None else []
        scope = {
            "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": method, "path": full,
            "raw_path": full.encode(), "query_string": query.encode(), "root_path": "", "headers": headers, "scheme": "http",
            "client": None, "server": None,
        }  # fmt: skip
        told: list[dict[str, Any]] = []
        pieces = iter([{"type": "http.request", "body": data, "more_body": False}])

        async def receive() -> dict[str, Any]:
            for piece in pieces:
                return piece
            await asyncio.Event().wait()  # The client stays connected until it has its answer.
            raise AssertionError

        async def send(message: dict[str, Any]) -> None:
            told.append(message)

        await self._api(scope, receive, send)
        return Answer(told[0]["status"], b"".join(message.get("body", b"") for message in told[1:]))

    async def post(self, path: str, /, **body: Any) -> Any:
        answer = await self("POST", path, body)
        assert answer.status == 200, answer.body
        return answer.json

    async def get(self, path: str, /, **body: Any) -> Any:
        answer = await self("GET", path, body)
        assert answer.status == 200, answer.body
        return answer.json

    async def put_file(self, path: str, data: bytes) -> Answer:
        return await self("PUT", f"/api/2.0/mlflow-artifacts/artifacts/{path}", data)

    async def get_file(self, path: str) -> Answer:
        return await self("GET", f"/api/2.0/mlflow-artifacts/artifacts/{path}")


class Place:
    """An application, and the clients that call it."""

    def __init__(self, app: Application, engine: FakeEngine, clock: ManualClock, home: Path) -> None:
        self.app, self.engine, self.clock, self.home = app, engine, clock, home
        ids = count(1)
        tracking = TrackingUseCases(app.loop, lambda: f"{next(ids):032x}")
        self.models = TrackedModelUseCases(
            tracking, LocalArtifacts(EngineHome.open(home)), app.models, lambda: f"{next(ids):032x}"
        )

        def is_there(speaker: TokenCaller) -> bool:
            return not speaker.run or app.store.get_job(JobKey(speaker.namespace, speaker.run)) is not None

        self.api = make_mlflow(self.models, SECRET, is_there)

    def speak(self, run: str = "", namespace: str = "default") -> Caller:
        return Caller(self.api, token_of(SECRET, TokenCaller(namespace, run)))

    def speaker(self, run: str = "") -> TokenCaller:
        """Return the speaker that the token of that run identifies."""
        return TokenCaller("default", run)

    async def submit(self, name: str = "mnist", **spec: Any) -> JobState:
        """Submit a run and return it running."""
        document = json.dumps({"kind": "TrainingJob", "name": name, "command": "stay", **spec})
        (read,) = read_documents(document)
        assert isinstance(read, TrainingJob)
        job = await self.app.submit(Submission(read, SubmissionOrigin(user="ana")))
        await self.turn()
        return self.job(job)

    async def turn(self) -> None:
        async with self.app.loop.lock:
            await self.app.loop.turn()

    def job(self, job: JobState) -> JobState:
        return self.app.find(job.key.namespace, job.key.name)

    def end(self, job: JobState, phase: JobPhase) -> None:
        """Put the run into the state after the end of its last task."""
        self.app.store.commit(ChangeSet(jobs=(replace(self.job(job), phase=phase, finished=self.clock.now()),)))
        self.app.loop.snapshot.forget(job.key)

    def start_again(self, job: JobState) -> None:
        """Put the run into the state after a failure that led to a restart."""
        again = replace(self.job(job), attempt=job.attempt + 1)
        self.app.store.commit(ChangeSet(jobs=(again,)))
        self.app.loop.snapshot.put_job(again)


@pytest.fixture
async def place(tmp_path: Path) -> AsyncIterator[Place]:
    clock = ManualClock()
    engine = FakeEngine(FakeMachine(ClusterNode("here", cpu=16.0, memory=8 << 30)), clock)
    blobs = BlobStore(tmp_path / "home" / "blobs")
    datasets, models = DatasetRegistry(tmp_path / "home", blobs), ModelRegistry(tmp_path / "home", blobs)
    app = Application(MemoryStore(), engine, clock, NoSecrets(), Keeper(), datasets, models=models)  # type: ignore[arg-type]
    await app.loop.start()
    yield Place(app, engine, clock, tmp_path / "home")
    await app.loop.close()
