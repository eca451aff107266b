"""What outlives pods: their logs. Followed while a pod runs, kept in the record's folder whole when it has ended."""

from __future__ import annotations

import asyncio
import logging
import os
import re
import shutil
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from fairway.app import crash
from fairway.app.ports import LogChunk, LogQuery
from fairway.engines.kubernetes.client import inside, kinds
from fairway.engines.kubernetes.client.api import Client
from fairway.engines.kubernetes.client.inside import LogWish
from fairway.engines.kubernetes.objects import Pod
from fairway.engines.kubernetes.operator import naming
from fairway.engines.kubernetes.operator.manifests.pod import FINALIZER, attempt_folder
from fairway.engines.kubernetes.operator.observe import TASK
from fairway.engines.kubernetes.operator.tailing import Tailing
from fairway.errors import FairwayError
from fairway.registry.carried import Carried
from fairway.runtime import contract
from fairway.runtime.failure.cause import REACH
from fairway.state.job import Job, JobKey
from fairway.state.task import TaskKey

log = logging.getLogger("fairway.operator")

CHUNK = 1 << 16
_FILE = re.compile(r"(?:\.(?=.*part$))?(?P<role>[^.].*)-(?P<index>[0-9]+)#(?P<attempt>[0-9]+)\.(?:log|part)")
_LOST = "fairway: what it printed after this is lost"
_GONE = b"unable to retrieve container logs for "
"""What a kubelet answers in the place of a log when the container is not there any more, as if it were one."""


class Keeping:
    """The record's folder of logs, and the way to pods whose logs are not there yet."""

    def __init__(self, client: Client, folder: Path, carried: Carried | None = None) -> None:
        self._client = client
        self._folder = folder
        self._carried = carried
        """What pods brought here besides."""
        self.tailing = Tailing(self._whole, self._part_of)
        """To be told of every change of a pod."""

    # When a pod has ended

    async def keep(self, pod: Pod, key: TaskKey) -> str:
        """Put the log into the record, once; its last part. A log that cannot be read any more is no reason to wait."""
        path = self.path(key)
        if not await asyncio.to_thread(path.exists):
            await self.tailing.settled(f"{pod.metadata.namespace}/{pod.metadata.name}")
            await self._copy(pod, key, path)
        return await asyncio.to_thread(_tail, path)

    async def _copy(self, pod: Pod, key: TaskKey, path: Path) -> None:
        """From the node; where it has less than was read before, what was read before, with a word of what is lost."""
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        aside, part, why = path.with_name(f".{path.name}"), self.part(key), ""
        with aside.open("wb") as file:
            try:
                async for piece in self._whole(pod, follow=False):
                    file.write(piece)
            except FairwayError as error:
                why = error.message
        if _gone(aside):
            why = aside.read_text(errors="replace")
            aside.write_bytes(b"")
        followed = part.stat().st_size if part.exists() else 0
        chosen, other = (part, aside) if followed > aside.stat().st_size else (aside, part)
        if why:
            log.warning("the log of %s is not whole: %s", key, why)
            with chosen.open("ab") as file:
                file.write(_lost(why))
        with crash.reach("engine.rename"):
            os.rename(chosen, path)
        other.unlink(missing_ok=True)

    async def _whole(self, pod: Pod, follow: bool = True) -> AsyncIterator[bytes]:
        wish = LogWish(container=TASK, follow=follow)
        async for piece in inside.logs(self._client.connection, pod.metadata.name, pod.metadata.namespace, wish):
            yield piece

    async def let_go(self, pod: Pod) -> None:
        """Its end is in the record: the pod may go."""
        if FINALIZER not in pod.metadata.finalizers:
            return
        others = [name for name in pod.metadata.finalizers if name != FINALIZER]
        test = {"op": "test", "path": "/metadata/uid", "value": pod.metadata.uid}
        before = {"op": "test", "path": "/metadata/finalizers", "value": list(pod.metadata.finalizers)}
        change = {"op": "replace", "path": "/metadata/finalizers", "value": others}
        await self._client.patch(kinds.PODS, pod.metadata.name, pod.metadata.namespace, [test, before, change])

    async def touch_stop(self, pod: Pod, key: TaskKey) -> None:
        """Let `should_stop()` turn true in the task."""
        argv = ["touch", f"{attempt_folder(key)}/{contract.STOP_FILE}"]
        connection = self._client.connection
        async with inside.execute(connection, pod.metadata.name, pod.metadata.namespace, argv, container=TASK) as session:
            async for _ in session.output():
                continue

    # Reading

    async def logs(self, job: Job, running: Mapping[TaskKey, Pod], query: LogQuery) -> AsyncIterator[LogChunk]:
        """From the record what is there, the rest from the nodes; several tasks as their lines come."""
        kept = {key: path for key, path in self.kept_of(job.key) if key not in running or path.suffix == ".log"}
        wanted = _wanted({*running, *kept}, query)
        for key in [key for key in wanted if key in kept]:
            async for chunk in _from_file(kept[key], key, query):
                yield chunk
            if kept[key].suffix != ".log":
                yield LogChunk(key.task, key.attempt, _lost("its pod is gone"))
        live = [(key, running[key]) for key in wanted if key not in kept]
        async for chunk in self.from_nodes(live, query):
            yield chunk

    def now(self) -> float:
        """The time, as `LogQuery.since` has it."""
        return self._client.connection.clock.now()

    def stream(self, pod: Pod, query: LogQuery) -> AsyncIterator[bytes]:
        """What a pod prints, from its node, for as long as it does."""
        connection = self._client.connection
        since = max(1, int(self.now() - query.since)) if query.since is not None else None
        wish = LogWish(container=TASK, follow=True, tail=query.tail, since_seconds=since)
        return inside.logs(connection, pod.metadata.name, pod.metadata.namespace, wish)

    def read(self, key: TaskKey) -> bytes | None:
        """The log of an attempt that has ended; None when it is not here."""
        path = self.path(key)
        return path.read_bytes() if path.exists() else None

    async def from_nodes(self, live: Sequence[tuple[TaskKey, Pod]], query: LogQuery) -> AsyncIterator[LogChunk]:
        """What these pods print, as it comes."""
        found: asyncio.Queue[LogChunk | None] = asyncio.Queue(maxsize=64)
        readers = [asyncio.create_task(self._read(key, pod, query, found)) for key, pod in live]
        left = len(readers)
        try:
            while left:
                chunk = await found.get()
                if chunk is None:
                    left -= 1
                else:
                    yield chunk
        finally:
            for reader in readers:
                reader.cancel()

    async def _read(self, key: TaskKey, pod: Pod, query: LogQuery, found: asyncio.Queue[LogChunk | None]) -> None:
        since = max(1, int(self.now() - query.since)) if query.since is not None else None
        wish = LogWish(container=TASK, follow=query.follow, tail=query.tail, since_seconds=since)
        pattern = re.compile(query.grep.encode()) if query.grep else None
        try:
            name, namespace = pod.metadata.name, pod.metadata.namespace
            async for data in inside.logs(self._client.connection, name, namespace, wish):
                shown = _matching(data, pattern)
                if shown:
                    await found.put(LogChunk(key.task, key.attempt, shown))
        except FairwayError as error:
            log.debug("no log of %s yet: %s", key, error)
        finally:
            await found.put(None)

    # The folder

    def path(self, key: TaskKey) -> Path:
        """Where the whole log of an attempt lies, or would."""
        return self._folder / key.namespace / key.job / f"{key.task}#{key.attempt}.log"

    def part(self, key: TaskKey) -> Path:
        """What was read so far of a pod that runs, or of one that nobody saw end."""
        return self.path(key).with_name(f".{key.task}#{key.attempt}.part")

    def _part_of(self, pod: Pod) -> Path | None:
        key = naming.task_key(pod.metadata.namespace, pod.metadata.labels)
        return self.part(key) if key is not None and not self.path(key).exists() else None

    def kept_of(self, run: JobKey) -> Iterator[tuple[TaskKey, Path]]:
        """Whole logs, and parts of those that are not there whole."""
        folder = self._folder / run.namespace / run.name
        found: dict[TaskKey, Path] = {}
        for path in sorted(folder.iterdir()) if folder.is_dir() else ():
            match = _FILE.fullmatch(path.name)
            if match:
                key = TaskKey(run.namespace, run.name, match["role"], int(match["index"]), int(match["attempt"]))
                # A part sorts before the whole: its name begins with a dot.
                found[key] = path
        yield from found.items()

    def folder_of(self, run: JobKey) -> Path:
        """Where a run's logs lie."""
        return self._folder / run.namespace / run.name

    def kept(self) -> list[JobKey]:
        """The runs that have logs here, or brought something."""
        brought = self._carried.runs() if self._carried is not None else []
        return [*(JobKey(path.parent.name, path.name) for path in self._folder.glob("*/*") if path.is_dir()), *map(_key, brought)]

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
    """The pods of runs, by what they run."""
    return {key: pod for pod in pods if (key := naming.task_key(pod.metadata.namespace, pod.metadata.labels))}


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
    """Whether this is a kubelet's word in the place of a log."""
    with path.open("rb") as file:
        return file.read(len(_GONE)) == _GONE


def _lost(why: str) -> bytes:
    return f"{_LOST} ({' '.join(why.split())})\n".encode()


def _tail(path: Path) -> str:
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - REACH))
        text = file.read().decode(errors="replace")
    # Our own word is none of the program's: by its last words, failures are told apart.
    return text[: text.rindex(_LOST)] if _LOST in text else text
