"""Keeps the logs of replicas: they are read while a pod runs, because nothing delays the deletion of a Deployment's pod.

The last megabyte of each replica's log is kept, however long it runs and whatever it prints. A stream that breaks off is resumed
by time, to the second: a line may appear twice, none is missing.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from io import FileIO
from pathlib import Path

from fairway.app.port.port import LogChunk, LogQuery
from fairway.app.system import crash_point
from fairway.engines.kubernetes import annotation
from fairway.engines.kubernetes.objects import Pod
from fairway.engines.kubernetes.operator.log.archive import LogArchive
from fairway.engines.kubernetes.operator.log.tail import PAUSES, LogTails
from fairway.engines.kubernetes.operator.pod.report import TASK
from fairway.engines.kubernetes.serving import naming
from fairway.errors import FairwayError
from fairway.plan.service.replica import OWN_NAMESPACE, ROLE
from fairway.state.job import JobKey, JobState
from fairway.state.task import TaskKey

log = logging.getLogger("fairway.operator")

LIMIT = 1 << 20
"""Bytes that are kept of a replica's log at least; at most twice as many."""
STEADY = 60.0
"""Seconds after which a broken stream counts as successful: retries start with the shortest pause again."""
LAST_WORDS = 10.0
"""Seconds to wait for the rest of a log after its pod was deleted."""


class ReplicaLogs(LogTails):
    """Follows the logs of replicas; `notice` is the listener of a mirror of pods."""

    def __init__(self, keeping: LogArchive, pod: Callable[[str], Pod | None], limit: int = LIMIT) -> None:
        """`pod` returns the newest known state of a pod, by namespace and name."""
        super().__init__(lambda followed: keeping.stream(followed, LogQuery(follow=True)), self._part_of)
        self._keeping = keeping
        self._pod = pod
        self._limit = limit
        self._ending: dict[asyncio.Task[None], JobKey] = {}
        """Tasks whose pod was deleted, with the replica that it was."""

    def notice(self, key: str, before: Pod | None, now: Pod | None) -> None:
        """React to a change of a pod. What a deleted pod printed last may still be on its way."""
        if now is not None:
            super().notice(key, before, now)
        elif before is not None and key in self._tasks:
            task = self._tasks.pop(key)
            self._ending[task] = _run_of(before)
            task.add_done_callback(self._ending.pop)
            asyncio.get_running_loop().call_later(LAST_WORDS, task.cancel)

    async def _follow(self, key: str, pod: Pod, place: Path) -> None:
        place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        failures, ended, clock = 0, False, asyncio.get_running_loop()
        try:
            while failures <= len(PAUSES):
                begun, ended = clock.time(), False
                try:
                    await self._take_up(pod, place)
                    ended = True
                except (FairwayError, OSError) as error:
                    log.debug("the log of %s is not followed: %s", pod.metadata.name, error)
                if ended and _is_over(self._pod(key)):
                    return
                failures = 1 if clock.time() - begun >= STEADY else failures + 1
                await asyncio.sleep(PAUSES[min(failures, len(PAUSES)) - 1])
                if ended and _is_over(self._pod(key)):
                    return
        finally:
            # Also when the pod's deletion is reported meanwhile: a log that ended by itself is complete.
            if ended and place.exists():
                with crash_point.reach("engine.rename"):
                    os.replace(place, self._keeping.path(_key_of(pod)))

    async def _take_up(self, pod: Pod, place: Path) -> None:
        """Stream the log from its beginning, or from the time of the last byte read."""
        since = place.stat().st_mtime if place.exists() else None
        file = place.open("ab", buffering=0)
        try:
            async for piece in self._keeping.stream(pod, LogQuery(follow=True, since=since)):
                file.write(piece)
                if file.tell() > 2 * self._limit:
                    file = _shortened(file, place, self._limit)
        finally:
            file.close()

    def _part_of(self, pod: Pod) -> Path | None:
        labels = pod.metadata.labels
        if labels.get(annotation.PART) != naming.REPLICA or annotation.REPLICA not in labels:
            return None
        key = _key_of(pod)
        return None if self._keeping.path(key).exists() else self._keeping.part(key)

    # Reading

    async def logs(self, job: JobState, pod: Pod | None, query: LogQuery) -> AsyncIterator[LogChunk]:
        """Yield what a replica printed in all of its pods: from the node while a pod runs, else from the record.

        A note at the end tells where a pod was deleted before all of its log was read. Logs that are still being read are waited
        for.
        """
        ending = [task for task, run in self._ending.items() if run == job.key]
        if ending:
            await asyncio.wait(ending)
        pods = {_key_of(pod): pod} if pod is not None else {}
        async for chunk in self._keeping.logs(job, pods, replace(query, attempt=-1)):
            yield chunk

    def forget(self, run: JobKey) -> None:
        """Remove a replica's log."""
        self._keeping.forget(run)


def _run_of(pod: Pod) -> JobKey:
    return JobKey(f"{pod.metadata.namespace}{OWN_NAMESPACE}", pod.metadata.labels[annotation.REPLICA])


def _key_of(pod: Pod) -> TaskKey:
    run = _run_of(pod)
    return TaskKey(run.namespace, run.name, ROLE, 0, annotation.read_count(pod.metadata.labels.get(annotation.ATTEMPT), 0))


def _is_over(pod: Pod | None) -> bool:
    """Return whether the replica's program has ended; the kubelet may have restarted it since."""
    if pod is None or pod.over:
        return True
    statuses = [status for status in pod.status.container_statuses if status.name == TASK]
    return any(status.state.terminated is not None or status.restart_count for status in statuses)


def _shortened(file: FileIO, place: Path, limit: int) -> FileIO:
    """Reduce the file to its last lines; return it open."""
    file.close()
    with place.open("rb") as whole:
        whole.seek(-limit, os.SEEK_END)
        rest = whole.read()
    aside = place.with_name(f"{place.name}.aside")
    aside.write_bytes(rest[rest.find(b"\n") + 1 :])
    with crash_point.reach("engine.rename"):
        os.replace(aside, place)
    return place.open("ab", buffering=0)
