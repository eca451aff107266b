"""Logs of replicas outlive their pods, within a size limit."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from fairway.app.port.port import LogQuery
from fairway.engines.kubernetes import annotation
from fairway.engines.kubernetes.client import errors, pod_session
from fairway.engines.kubernetes.client.pod_session import LogOptions
from fairway.engines.kubernetes.objects import Pod
from fairway.engines.kubernetes.operator.log.archive import LogArchive
from fairway.engines.kubernetes.serving import replica_log
from fairway.engines.kubernetes.serving.replica_log import ReplicaLogs
from fairway.spec.job import JobSpec
from fairway.state.job import JobKey, JobState

PLACE = "team/adds-r1-x7k2"
RUN = JobKey("team.services", "adds-r1-1")
JOB = JobState(RUN, "adds", 1, JobSpec.model_validate({"roles": {"replica": {"command": ["x"]}}}))
Stream = Callable[[], AsyncIterator[bytes]]


def pod(*, restarts: int = 0, seated: bool = True, attempt: int = 0) -> Pod:
    seat = {annotation.REPLICA: RUN.name, annotation.ATTEMPT: str(attempt)} if seated else {}
    labels = {annotation.SERVICE: "adds", annotation.PART: "replica", annotation.REVISION: "1", **seat}
    status = {"phase": "Running", "containerStatuses": [{"name": "task", "restartCount": restarts, "state": {"running": {}}}]}
    metadata = {"name": "adds-r1-x7k2", "namespace": "team", "labels": labels}
    return msgspec.convert({"metadata": metadata, "status": status}, Pod)


class Clock:
    def now(self) -> float:
        return 2e9


class Connection:
    clock = Clock()


class Node:
    """A kubelet that returns one stream after the other, and records the requests."""

    connection = Connection()

    def __init__(self) -> None:
        self.streams: list[Stream] = []
        self.wishes: list[LogOptions] = []

    def logs(self, _connection: Any, _name: str, _namespace: str, wish: LogOptions) -> AsyncIterator[bytes]:
        self.wishes.append(wish)
        return self.streams.pop(0)()


def saying(*pieces: bytes, then: Exception | None = None) -> Stream:
    async def stream() -> AsyncIterator[bytes]:
        for piece in pieces:
            yield piece
        if then is not None:
            raise then

    return stream


class Cluster:
    """A node, the mirror of its pods, and the stored logs."""

    def __init__(self, folder: Path, limit: int) -> None:
        self.node = Node()
        self.pods: dict[str, Pod] = {PLACE: pod()}
        self.keeping = LogArchive(self.node, folder)  # type: ignore[arg-type]
        self.logs = ReplicaLogs(self.keeping, self.pods.get, limit)
        self.folder = folder / "team.services" / RUN.name

    async def follow(self, *streams: Stream) -> None:
        """Wait until no reader of these streams is left."""
        self.node.streams += streams
        before = asyncio.all_tasks()
        self.logs.notice(PLACE, None, pod())
        await asyncio.gather(*(asyncio.all_tasks() - before))

    async def printed(self, **query: Any) -> bytes:
        found = self.logs.logs(JOB, self.pods.get(PLACE), LogQuery(**query))
        return b"".join([chunk.data async for chunk in found])


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    made = Cluster(tmp_path, 1000)
    monkeypatch.setattr(pod_session, "logs", made.node.logs)
    monkeypatch.setattr(replica_log, "PAUSES", (0.0, 0.0))
    yield made
    assert made.node.streams == [], "not all of it was asked for"


async def test_a_replica_that_was_taken_away_leaves_its_log(cluster: Cluster) -> None:
    cluster.pods[PLACE] = pod(restarts=0)
    ends = saying(b"ready\n", b"ends\n")

    async def ended() -> AsyncIterator[bytes]:
        async for piece in ends():
            yield piece
        del cluster.pods[PLACE]

    await cluster.follow(ended)
    assert await cluster.printed() == b"ready\nends\n"
    assert await cluster.printed(tail=1) == b"ends\n"
    assert [path.name for path in cluster.folder.iterdir()] == ["replica-0#0.log"]
    assert cluster.keeping.kept() == [RUN]
    cluster.logs.forget(RUN)
    assert await cluster.printed() == b""


async def test_what_is_on_its_way_when_the_pod_has_gone_still_comes(cluster: Cluster) -> None:
    async def slowly() -> AsyncIterator[bytes]:
        yield b"ready\n"
        cluster.logs.notice(PLACE, cluster.pods.pop(PLACE), None)
        tasks.append(asyncio.create_task(cluster.printed()))
        await asyncio.sleep(0.01)
        yield b"ends\n"

    tasks: list[asyncio.Task[bytes]] = []
    await cluster.follow(slowly)
    assert await tasks[0] == b"ready\nends\n", "who asks meanwhile gets all of it"
    assert await cluster.printed() == b"ready\nends\n"


async def test_nobody_waits_long_for_the_end_of_a_stream_that_has_none(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replica_log, "LAST_WORDS", 0.01)

    async def hanging() -> AsyncIterator[bytes]:
        yield b"ready\n"
        cluster.logs.notice(PLACE, cluster.pods.pop(PLACE), None)
        await asyncio.Event().wait()

    with pytest.raises(asyncio.CancelledError):
        await cluster.follow(hanging)
    assert await cluster.printed() == b"ready\nfairway: what it printed after this is lost (its pod is gone)\n"


async def test_one_that_crashed_is_read_to_its_end_and_not_its_successor_in_the_pod(cluster: Cluster) -> None:
    cluster.pods[PLACE] = pod(restarts=1)
    await cluster.follow(saying(b"Traceback\n"))
    cluster.logs.notice(PLACE, pod(), pod(restarts=1))
    assert await cluster.printed() == b"Traceback\n"
    assert len(cluster.node.wishes) == 1


async def test_what_breaks_off_is_taken_up_at_the_time_and_what_went_with_the_pod_is_said(cluster: Cluster) -> None:
    away = errors.Unavailable("the API server restarts")
    await cluster.follow(saying(b"one\n", then=away), saying(b"two\n", then=away), saying(then=away))
    assert [wish.since_seconds is None for wish in cluster.node.wishes] == [True, False, False]
    del cluster.pods[PLACE]
    assert await cluster.printed() == b"one\ntwo\nfairway: what it printed after this is lost (its pod is gone)\n"


async def test_the_end_is_kept_of_one_that_prints_a_lot(cluster: Cluster) -> None:
    lines = [b"line %05d\n" % number for number in range(1000)]
    cluster.pods[PLACE] = pod(restarts=1)
    await cluster.follow(saying(*lines))
    said = await cluster.printed()
    assert 1000 <= len(said) <= 2000
    assert b"".join(lines).endswith(said)
    assert said.startswith(b"line ")


async def test_while_it_runs_its_node_is_asked_and_pods_of_others_are_left_alone(cluster: Cluster) -> None:
    cluster.node.streams.append(saying(b"from the node\n"))
    assert await cluster.printed() == b"from the node\n"
    cluster.logs.notice(PLACE, None, pod(seated=False))
    await asyncio.sleep(0)
    assert len(cluster.node.wishes) == 1


async def test_what_a_replica_printed_before_it_got_another_pod_comes_first(cluster: Cluster) -> None:
    cluster.pods[PLACE] = pod(restarts=1)
    await cluster.follow(saying(b"in the first pod\n"))
    cluster.pods[PLACE] = pod(attempt=1)
    cluster.node.streams.append(saying(b"in the second\n"))
    assert await cluster.printed() == b"in the first pod\nin the second\n"
