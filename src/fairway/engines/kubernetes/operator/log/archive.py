"""Keeps the logs of pods: followed while a pod runs, and copied completely into the record's folder when it has ended."""

from __future__ import annotations

import asyncio
import logging
import os
import re
import shutil
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from fairway.app.port.port import LogChunk, LogQuery
from fairway.app.system import crash_point
from fairway.engines.kubernetes.client import api_resource, pod_session
from fairway.engines.kubernetes.client.api import ApiClient
from fairway.engines.kubernetes.client.pod_session import LogOptions
from fairway.engines.kubernetes.objects import Pod
from fairway.engines.kubernetes.operator.log.tail import LogTails
from fairway.engines.kubernetes.operator.manifest.pod import FINALIZER, attempt_folder
from fairway.engines.kubernetes.operator.pod import name as pod_name
from fairway.engines.kubernetes.operator.pod.report import TASK
from fairway.errors import FairwayError
from fairway.registry.upload.run_upload import RunUploads
from fairway.runtime import task_contract
from fairway.runtime.failure.cause import REACH
from fairway.state.job import JobKey, JobState
from fairway.state.task import TaskKey

log = logging.getLogger("fairway.operator")

CHUNK = 1 << 16
_FILE = re.compile(r"(?:\.(?=.*part$))?(?P<role>[^.].*)-(?P<index>[0-9]+)#(?P<attempt>[0-9]+)\.(?:log|part)")
_LOST = "fairway: what it printed after this is lost"
_GONE = b"unable to retrieve container logs for "
"""Start of the message that a kubelet returns in place of the log, with a success status, when the container is gone."""


class LogArchive:
    """The record's folder of logs, and access to the logs of pods that are not in it yet."""

    def __init__(self, client: ApiClient, folder: Path, carried: RunUploads | None = None) -> None:
        self._client = client
        self._folder = folder
        self._carried = carried
        """Other files that pods uploaded to the operator."""
        self.tailing = LogTails(self._whole, self._part_of)
        """Must be notified of every change of a pod."""

    # When a pod has ended

    async def keep(self, pod: Pod, key: TaskKey) -> str:
        """Copy the log into the record, once, and return its last part. A log that is no longer readable causes no waiting."""
        path = self.path(key)
        if not await asyncio.to_thread(path.exists):
            await self.tailing.settled(f"{pod.metadata.namespace}/{pod.metadata.name}")
            await self._copy(pod, key, path)
        return await asyncio.to_thread(_tail, path)

    async def _copy(self, pod: Pod, key: TaskKey, path: Path) -> None:
        """Copy the log from the node. If the node has less than was read before, keep that, with a note about what is lost."""
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        temporary, part, why = path.with_name(f".{path.name}"), self.part(key), ""
        with temporary.open("wb") as file:
            try:
                async for piece in self._whole(pod, follow=False):
                    file.write(piece)
            except FairwayError as error:
                why = error.message
        if _gone(temporary):
            why = temporary.read_text(errors="replace")
            temporary.write_bytes(b"")
        followed = part.stat().st_size if part.exists() else 0
        chosen, other = (part, temporary) if followed > temporary.stat().st_size else (temporary, part)
        if why:
            log.warning("the log of %s is incomplete: %s", key, why)
            with chosen.open("ab") as file:
                file.write(_lost(why))
        with crash_point.reach("engine.rename"):
            os.rename(chosen, path)
        other.unlink(missing_ok=True)

    async def _whole(self, pod: Pod, follow: bool = True) -> AsyncIterator[bytes]:
        wish = LogOptions(container=TASK, follow=follow)
        async for piece in pod_session.logs(self._client.connection, pod.metadata.name, pod.metadata.namespace, wish):
            yield piece

    async def let_go(self, pod: Pod) -> None:
        """Remove our finalizer: the pod's end is in the record."""
        if FINALIZER not in pod.metadata.finalizers:
            return
        others = [name for name in pod.metadata.finalizers if name != FINALIZER]
        test = {"op": "test", "path": "/metadata/uid", "value": pod.metadata.uid}
        before = {"op": "test", "path": "/metadata/finalizers", "value": list(pod.metadata.finalizers)}
        change = {"op": "replace", "path": "/metadata/finalizers", "value": others}
        await self._client.patch(api_resource.PODS, pod.metadata.name, pod.metadata.namespace, [test, before, change])

    async def touch_stop(self, pod: Pod, key: TaskKey) -> None:
        """Make `should_stop()` return true in the task."""
        argv = ["touch", f"{attempt_folder(key)}/{task_contract.STOP_FILE}"]
        connection = self._client.connection
        async with pod_session.execute(connection, pod.metadata.name, pod.metadata.namespace, argv, container=TASK) as session:
            async for _ in session.output():
                continue

    # Reading

    async def logs(self, job: JobState, running: Mapping[TaskKey, Pod], query: LogQuery) -> AsyncIterator[LogChunk]:
        """Yield first the logs in the record, then the others from the nodes.

        Those of several tasks interleaved as lines arrive.
        """
        kept = {key: path for key, path in self.kept_of(job.key) if key not in running or path.suffix == ".log"}
        keys = _wanted({*running, *kept}, query)
        for key in [key for key in keys if key in kept]:
            async for chunk in _from_file(kept[key], key, query):
                yield chunk
            if kept[key].suffix != ".log":
                yield LogChunk(key.task, key.attempt, _lost("its pod is gone"))
        live = [(key, running[key]) for key in keys if key not in kept]
        async for chunk in self.from_nodes(live, query):
            yield chunk

    def now(self) -> float:
        """Return the current time, on the clock of `LogQuery.since`."""
        return self._client.connection.clock.now()

    def stream(self, pod: Pod, query: LogQuery) -> AsyncIterator[bytes]:
        """Read what a pod prints from its node, for as long as it prints."""
        connection = self._client.connection
        since = max(1, int(self.now() - query.since)) if query.since is not None else None
        wish = LogOptions(container=TASK, follow=True, tail=query.tail, since_seconds=since)
        return pod_session.logs(connection, pod.metadata.name, pod.metadata.namespace, wish)

    def read(self, key: TaskKey) -> bytes | None:
        """Return the log of an attempt that has ended; None when it is not in the record."""
        path = self.path(key)
        return path.read_bytes() if path.exists() else None

    async def from_nodes(self, live: Sequence[tuple[TaskKey, Pod]], query: LogQuery) -> AsyncIterator[LogChunk]:
        """Yield what these pods print, as it arrives."""
        chunks: asyncio.Queue[LogChunk | None] = asyncio.Queue(maxsize=64)
        readers = [asyncio.create_task(self._read(key, pod, query, chunks)) for key, pod in live]
        active = len(readers)
        try:
            while active:
                chunk = await chunks.get()
                if chunk is None:
                    active -= 1
                else:
                    yield chunk
        finally:
            for reader in readers:
                reader.cancel()

    async def _read(self, key: TaskKey, pod: Pod, query: LogQuery, found: asyncio.Queue[LogChunk | None]) -> None:
        since = max(1, int(self.now() - query.since)) if query.since is not None else None
        wish = LogOptions(container=TASK, follow=query.follow, tail=query.tail, since_seconds=since)
        pattern = re.compile(query.grep.encode()) if query.grep else None
        try:
            name, namespace = pod.metadata.name, pod.metadata.namespace
            async for data in pod_session.logs(self._client.connection, name, namespace, wish):
                shown = _matching(data, pattern)
                if shown:
                    await found.put(LogChunk(key.task, key.attempt, shown))
        except FairwayError as error:
            log.debug("no log of %s yet: %s", key, error)
        finally:
            await found.put(None)

    # The folder

    def path(self, key: TaskKey) -> Path:
        """Return the path of an attempt's complete log, whether or not it exists."""
        return self._folder / key.namespace / key.job / f"{key.task}#{key.attempt}.log"

    def part(self, key: TaskKey) -> Path:
        """Return the path of the partial log: of a running pod, or of one whose end was not observed."""
        return self.path(key).with_name(f".{key.task}#{key.attempt}.part")

    def _part_of(self, pod: Pod) -> Path | None:
        key = pod_name.task_key(pod.metadata.namespace, pod.metadata.labels)
        return self.part(key) if key is not None and not self.path(key).exists() else None

    def kept_of(self, run: JobKey) -> Iterator[tuple[TaskKey, Path]]:
        """Return the complete logs of a run, and the partial ones of attempts without a complete log."""
        folder = self._folder / run.namespace / run.name
        paths: dict[TaskKey, Path] = {}
        for path in sorted(folder.iterdir()) if folder.is_dir() else ():
            match = _FILE.fullmatch(path.name)
            if match:
                key = TaskKey(run.namespace, run.name, match["role"], int(match["index"]), int(match["attempt"]))
                # The partial log sorts before the complete one, since its name begins with a dot.
                paths[key] = path
        yield from paths.items()

    def folder_of(self, run: JobKey) -> Path:
        """Return the folder of a run's logs."""
        return self._folder / run.namespace / run.name

    def kept(self) -> list[JobKey]:
        """Return the runs that have logs here, or that uploaded something."""
        uploaded = self._carried.runs() if self._carried is not None else []
        return [
            *(JobKey(path.parent.name, path.name) for path in self._folder.glob("*/*") if path.is_dir()),
            *map(_key, uploaded),
        ]

    def forget(self, run: JobKey) -> None:
        """Remove a run's logs."""
        shutil.rmtree(self._folder / run.namespace / run.name, ignore_errors=True)

    def forget_all(self, run: JobKey) -> None:
        """Remove a run's logs, checkpoints and outputs."""
        self.forget(run)
        if self._carried is not None:
            self._carried.forget(run.namespace, run.name)


def _key(named: tuple[str, str]) -> JobKey:
    return JobKey(*named)


def by_task(pods: Iterable[Pod]) -> dict[TaskKey, Pod]:
    """Index the pods of runs by their task."""
    return {key: pod for pod in pods if (key := pod_name.task_key(pod.metadata.namespace, pod.metadata.labels))}


def _wanted(keys: set[TaskKey], query: LogQuery) -> list[TaskKey]:
    chosen = [key for key in keys if query.role in ("", key.role) and query.index in (None, key.index)]
    if query.attempt is None:
        newest: dict[str, int] = {}
        for key in chosen:
            newest[key.task] = max(key.attempt, newest.get(key.task, 0))
        chosen = [key for key in chosen if key.attempt == newest[key.task]]
    elif query.attempt >= 0:
        chosen = [key for key in chosen if key.attempt == query.attempt]
    return sorted(chosen, key=lambda key: (key.attempt, key.role, key.index))


async def _from_file(path: Path, key: TaskKey, query: LogQuery) -> AsyncIterator[LogChunk]:
    data = await asyncio.to_thread(path.read_bytes)
    pattern = re.compile(query.grep.encode()) if query.grep else None
    lines = [line for line in data.splitlines(keepends=True) if pattern is None or pattern.search(line)]
    lines = lines[-query.tail :] if query.tail else ([] if query.tail == 0 else lines)
    whole = b"".join(lines)
    for at in range(0, len(whole), CHUNK):
        yield LogChunk(key.task, key.attempt, whole[at : at + CHUNK])


def _matching(data: bytes, pattern: re.Pattern[bytes] | None) -> bytes:
    if pattern is None:
        return data
    return b"".join(line for line in data.splitlines(keepends=True) if pattern.search(line))


def _gone(path: Path) -> bool:
    """Whether the file contains a kubelet's error message in place of a log."""
    with path.open("rb") as file:
        return file.read(len(_GONE)) == _GONE


def _lost(why: str) -> bytes:
    return f"{_LOST} ({' '.join(why.split())})\n".encode()


def _tail(path: Path) -> str:
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - REACH))
        text = file.read().decode(errors="replace")
    # Our own note is cut off: failures are classified by the program's last words.
    return text[: text.rindex(_LOST)] if _LOST in text else text
