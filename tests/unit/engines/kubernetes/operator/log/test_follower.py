"""Following the logs of pods that are created and deleted."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from fairway.app.port.port import LogQuery
from fairway.engines.kubernetes.client import errors
from fairway.engines.kubernetes.objects import ObjectMetadata, Pod
from fairway.engines.kubernetes.objects.pod import (
    ContainerRunning,
    ContainerState,
    ContainerStatus,
    ContainerTerminated,
    PodStatus,
)
from fairway.engines.kubernetes.operator.log import follower
from fairway.engines.kubernetes.operator.log.follower import LogFollowers
from fairway.engines.kubernetes.operator.pod import name as pod_name
from fairway.state.job import JobKey
from fairway.state.task import TaskKey
from fairway.testing.builder.job_builder import a_job

RUN = JobKey("team", "mnist-1")
WAITS, RUNS, ENDED = (
    ContainerState(),
    ContainerState(running=ContainerRunning()),
    ContainerState(terminated=ContainerTerminated()),
)


class World:
    """Pods and their logs, controlled by the test."""

    def __init__(self) -> None:
        self.pods: dict[str, Pod] = {}
        self.nodes: dict[str, list[bytes | Exception | None]] = {}
        """By pod: the chunks that the node sends; None: the stream stays open and waits."""
        self.record: dict[TaskKey, bytes] = {}
        self.asked: list[LogQuery] = []
        self.more = asyncio.Event()
        self.following = LogFollowers(self, lambda _run: list(self.pods.values()))

    def put(self, index: int, state: ContainerState, attempt: int = 0, phase: str = "Running") -> str:
        key = TaskKey("team", "mnist-1", "worker", index, attempt)
        name = pod_name.pod_name(key)
        status = PodStatus(phase=phase, container_statuses=(ContainerStatus(name="task", state=state),))
        self.pods[name] = Pod(metadata=ObjectMetadata(name=name, namespace="team", labels=pod_name.labels(key)), status=status)
        self.following.tell(RUN)
        return name

    def says(self, name: str, *pieces: bytes | Exception | None) -> None:
        self.nodes[name] = list(pieces)
        self.more.set()

    def keep(self, index: int, content: bytes, attempt: int = 0) -> None:
        self.record[TaskKey("team", "mnist-1", "worker", index, attempt)] = content

    def now(self) -> float:
        return 1000.0

    def read(self, key: TaskKey) -> bytes | None:
        return self.record.get(key)

    async def stream(self, pod: Pod, query: LogQuery) -> AsyncIterator[bytes]:
        self.asked.append(query)
        pieces = self.nodes.get(pod.metadata.name, [])
        for piece in pieces:
            if isinstance(piece, Exception):
                self.nodes[pod.metadata.name] = [one for one in pieces if not isinstance(one, Exception)]
                raise piece
            if piece is not None:
                yield piece


async def heard(world: World, query: LogQuery = LogQuery(follow=True)) -> list[tuple[str, int, bytes]]:
    found = []
    async with asyncio.timeout(10):
        async for chunk in world.following.logs(replace(a_job(), key=RUN), query):
            found.append((chunk.task, chunk.attempt, chunk.data))
    return found


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follower, "AGAIN", 0.01)


async def test_a_run_that_waits_is_waited_for_and_read_from_its_first_byte() -> None:
    world = World()
    listening = asyncio.create_task(heard(world))
    await asyncio.sleep(0)
    world.put(0, WAITS, phase="Pending")
    world.says("mnist-1-worker-0-r0", b"hello\n", b"again\n")
    world.put(0, RUNS)
    while not world.asked:
        await asyncio.sleep(0)
    world.keep(0, b"hello\nagain\nbye\n")
    world.put(0, ENDED, phase="Succeeded")
    world.following.end(RUN)
    found = await listening
    assert b"".join(data for _, _, data in found) == b"hello\nagain\nbye\n"


async def test_what_breaks_off_is_taken_up_at_the_byte() -> None:
    world = World()
    name = world.put(0, RUNS)
    world.says(name, b"one\n", b"tw", errors.Unavailable("gone"), b"o\n")
    listening = asyncio.create_task(heard(world))
    while len(world.asked) < 2:
        await asyncio.sleep(0.001)
    world.keep(0, b"one\ntwo\nthree\n")
    world.following.end(RUN)
    assert b"".join(data for _, _, data in await listening) == b"one\ntwo\nthree\n"


async def test_the_next_attempt_follows_the_one_before() -> None:
    world = World()
    world.put(0, ENDED, phase="Failed")
    world.keep(0, b"first\n")
    listening = asyncio.create_task(heard(world))
    await asyncio.sleep(0.01)
    world.says(world.put(0, RUNS, attempt=1), b"second\n")
    while not world.asked:
        await asyncio.sleep(0)
    world.keep(0, b"second\n", attempt=1)
    world.following.end(RUN)
    assert await listening == [("worker-0", 0, b"first\n"), ("worker-0", 1, b"second\n")]


async def test_only_what_was_asked_for_is_read() -> None:
    world = World()
    for index in range(2):
        world.put(index, ENDED, phase="Succeeded")
        world.keep(index, b"loss 1\nnote\nloss 2")
    listening = asyncio.create_task(heard(world, LogQuery(follow=True, index=1, grep="loss")))
    await asyncio.sleep(0.01)
    world.following.end(RUN)
    assert await listening == [("worker-1", 0, b"loss 1\n"), ("worker-1", 0, b"loss 2")]


async def test_a_pod_that_never_began_is_not_waited_for_when_the_run_is_over() -> None:
    world = World()
    world.put(0, WAITS, phase="Pending")
    listening = asyncio.create_task(heard(world))
    await asyncio.sleep(0.01)
    world.following.end(RUN)
    assert await listening == []
