"""Logs outlive pods that end, are deleted, or lose their node, with a note about what is missing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from fairway.app.port.port import LogQuery
from fairway.engines.kubernetes.client import errors, pod_session
from fairway.engines.kubernetes.client.pod_session import LogOptions
from fairway.engines.kubernetes.objects import Pod
from fairway.engines.kubernetes.operator.log import tail
from fairway.engines.kubernetes.operator.log.archive import LogArchive, by_task
from fairway.engines.kubernetes.operator.pod import name
from fairway.registry.upload.run_upload import RunUploads
from fairway.spec.job import JobSpec
from fairway.state.job import JobKey, JobState
from fairway.state.task import TaskKey

KEY = TaskKey("team", "mnist-1", "worker", 0, 0)
PLACE = "team/mnist-1-worker-0-r0"
GONE = b"unable to retrieve container logs for containerd://f5a7d18d895c"
JOB = JobState(JobKey("team", "mnist-1"), "mnist", 1, JobSpec.model_validate({"roles": {"worker": {"command": ["x"]}}}))


def pod(phase: str = "Running") -> Pod:
    metadata = {"name": name.pod_name(KEY), "namespace": "team", "labels": name.labels(KEY)}
    return msgspec.convert({"metadata": metadata, "status": {"phase": phase}}, Pod)


class Node:
    """A kubelet with answers for followed logs and for logs read at once."""

    connection = None

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.followed: Callable[[], AsyncIterator[bytes]] = nothing
        self.read: Callable[[], AsyncIterator[bytes]] = nothing
        self.asked = 0
        monkeypatch.setattr(pod_session, "logs", self._logs)
        monkeypatch.setattr(tail, "PAUSES", (0.0, 0.0))

    def _logs(self, _connection: Any, _name: str, _namespace: str, wish: LogOptions) -> AsyncIterator[bytes]:
        self.asked += wish.follow
        return self.followed() if wish.follow else self.read()


async def nothing() -> AsyncIterator[bytes]:
    for piece in ():
        yield piece


def saying(*pieces: bytes, then: Exception | None = None) -> Callable[[], AsyncIterator[bytes]]:
    async def stream() -> AsyncIterator[bytes]:
        for piece in pieces:
            yield piece
        if then is not None:
            raise then

    return stream


def endless(piece: bytes) -> Callable[[], AsyncIterator[bytes]]:
    async def stream() -> AsyncIterator[bytes]:
        yield piece
        await asyncio.Event().wait()

    return stream


@pytest.fixture
def node(monkeypatch: pytest.MonkeyPatch) -> Node:
    return Node(monkeypatch)


@pytest.fixture
def keeping(node: Node, tmp_path: Path) -> LogArchive:
    return LogArchive(node, tmp_path / "logs", RunUploads(tmp_path / "carried"))  # type: ignore[arg-type]


async def printed(keeping: LogArchive, pods: list[Pod] | None = None) -> bytes:
    return b"".join([chunk.data async for chunk in keeping.logs(JOB, by_task(pods or []), LogQuery())])


async def followed(keeping: LogArchive) -> None:
    """Wait until the streams of a pod have ended and no retry is pending."""
    before = asyncio.all_tasks()
    keeping.tailing.notice(PLACE, None, pod())
    await asyncio.gather(*(asyncio.all_tasks() - before))


async def test_the_log_of_a_pod_that_ends_is_read_whole_from_its_node(keeping: LogArchive, node: Node, tmp_path: Path) -> None:
    node.followed, node.read = saying(b"one\n"), saying(b"one\n", b"two\n")
    await followed(keeping)
    assert await keeping.keep(pod("Succeeded"), KEY) == "one\ntwo\n"
    assert await printed(keeping) == b"one\ntwo\n"
    assert [path.name for path in (tmp_path / "logs" / "team" / "mnist-1").iterdir()] == ["worker-0#0.log"]


@pytest.mark.parametrize("answer", [saying(GONE), saying(b"one\n", then=errors.NotFound("no such pod")), nothing])
async def test_of_a_pod_that_was_deleted_there_is_what_was_read_while_it_ran(
    keeping: LogArchive, node: Node, answer: Callable[[], AsyncIterator[bytes]]
) -> None:
    node.followed, node.read = saying(b"one\n", b"two\n"), answer
    await followed(keeping)
    assert await keeping.keep(pod("Failed"), KEY) == "one\ntwo\n"
    said = await printed(keeping)
    assert said.startswith(b"one\ntwo\n")
    assert (b"what it printed after this is lost" in said) == (answer is not nothing)


async def test_a_log_that_nobody_read_says_that_it_is_lost(keeping: LogArchive, node: Node) -> None:
    node.read = saying(GONE)
    assert await keeping.keep(pod("Failed"), KEY) == "", "no words of the program's"
    assert (await printed(keeping)).startswith(b"fairway: what it printed after this is lost (unable to retrieve")


async def test_of_a_pod_whose_node_is_lost_there_is_what_was_read(keeping: LogArchive, node: Node) -> None:
    node.followed = endless(b"one\n")
    keeping.tailing.notice(PLACE, None, pod())
    keeping.tailing.notice(PLACE, pod(), pod())
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert node.asked == 1, "told twice, followed once"
    keeping.tailing.notice(PLACE, pod(), None)
    await keeping.tailing.settled(PLACE)
    while len(asyncio.all_tasks()) > 1:
        await asyncio.sleep(0)
    assert await printed(keeping) == b"one\nfairway: what it printed after this is lost (its pod is gone)\n"
    assert keeping.kept() == [JobKey("team", "mnist-1")]
    keeping.forget_all(JobKey("team", "mnist-1"))
    assert await printed(keeping) == b""


async def test_a_stream_that_breaks_off_goes_on_where_it_was(keeping: LogArchive, node: Node) -> None:
    streams = [
        saying(b"one\nt", then=errors.Unavailable("the API server restarts")),
        saying(then=errors.Unavailable("the API server restarts")),
        saying(b"one\n", b"two\nthree\n"),
    ]
    node.followed = lambda: streams.pop(0)()
    node.read = saying(GONE)
    await followed(keeping)
    assert await keeping.keep(pod("Failed"), KEY) == "one\ntwo\nthree\n"


async def test_a_node_that_never_answers_is_asked_a_few_times(keeping: LogArchive, node: Node) -> None:
    node.followed = saying(then=errors.Unavailable("no kubelet there"))
    await followed(keeping)
    assert node.asked == 3


async def test_no_more_are_followed_at_the_same_time_than_one_process_bears(node: Node, tmp_path: Path) -> None:
    del node
    asked: list[str] = []

    async def read(one: Pod) -> AsyncIterator[bytes]:
        asked.append(one.metadata.name)
        await asyncio.Event().wait()
        yield b""

    many = tail.LogTails(read, lambda _: tmp_path / "part", most=2)
    for number in range(4):
        many.notice(f"team/{number}", None, pod())
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert len(asked) == 2
    for number in range(4):
        many.notice(f"team/{number}", pod(), None)
