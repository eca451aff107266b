"""The output of a service's replicas, including replicas that start later."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace

from fairway.app.application import Application
from fairway.app.port.port import LogChunk, LogQuery
from fairway.app.service import ServiceUseCases
from fairway.state.job import JobState
from fairway.state.service import ServiceKey

_AHEAD = 64
"""Maximum number of pieces that wait for a slow reader; then the replicas' logs are not read further."""


def replica_logs(
    application: Application, services: ServiceUseCases, key: ServiceKey, query: LogQuery
) -> AsyncIterator[LogChunk]:
    """Yield the logs of one replica after the other, oldest first; with `follow`, of all at once until the service is deleted."""
    return (
        _FollowedReplicas(application, services, key, query).pieces()
        if query.follow
        else _each(application, services, key, query)
    )


async def _each(application: Application, services: ServiceUseCases, key: ServiceKey, query: LogQuery) -> AsyncIterator[LogChunk]:
    for name, run in services.replica_runs(services.find(key)):
        async for chunk in application.logs(run, query):
            yield replace(chunk, task=name)


class _FollowedReplicas:
    """The replicas of one service, each read as soon as it exists."""

    def __init__(self, application: Application, services: ServiceUseCases, key: ServiceKey, query: LogQuery) -> None:
        self._application = application
        self._services = services
        self._key = key
        self._query = query
        self._pieces: asyncio.Queue[LogChunk | None] = asyncio.Queue()
        self._room = asyncio.Semaphore(_AHEAD)

    async def pieces(self) -> AsyncIterator[LogChunk]:
        """Yield pieces until no more can arrive."""
        work = asyncio.create_task(self._read_all())
        work.add_done_callback(lambda _work: self._pieces.put_nowait(None))
        try:
            while (piece := await self._pieces.get()) is not None:
                self._room.release()
                yield piece
            await work
        finally:
            work.cancel()
            await asyncio.gather(work, return_exceptions=True)

    async def _read_all(self) -> None:
        started: set[str] = set()
        query = self._query
        async with asyncio.TaskGroup() as group:
            while self._services.is_kept(self._key):
                for name, run in self._services.replica_runs(self._services.find(self._key)):
                    if name not in started:
                        started.add(name)
                        group.create_task(self._read(name, run, query))
                # Of a replica that starts later, all output is new.
                query = replace(self._query, tail=None)
                await self._services.changed()

    async def _read(self, name: str, run: JobState, asked: LogQuery) -> None:
        async for chunk in self._application.logs(run, asked):
            await self._room.acquire()
            self._pieces.put_nowait(replace(chunk, task=name))
