"""JobQueue objects as the operator's queues: who may submit where, and what a queue fills in."""

from __future__ import annotations

import logging
from typing import Any

from fairway.app.application import Application
from fairway.app.ports import Changes
from fairway.engines.kubernetes.client import kinds
from fairway.engines.kubernetes.client.api import Client
from fairway.engines.kubernetes.client.mirror import Mirror
from fairway.engines.kubernetes.objects import Custom
from fairway.errors import FairwayError
from fairway.spec.document import read_data
from fairway.spec.queue import JobQueue
from fairway.state.queue import DEFAULT_QUEUE, Queue, queue_of

log = logging.getLogger("fairway.operator")


class QueueObjects:
    """Brings the application's queues in step with the objects; `look` is the work of a controller."""

    def __init__(self, client: Client, application: Application, objects: Mirror[Custom]) -> None:
        self._client = client
        self._application = application
        self._objects = objects

    async def look(self, _key: str) -> float | None:
        """Put what is new or changed, forget what has gone."""
        there = {queue.name: queue for queue in map(_queue, self._objects) if queue is not None}
        application = self._application
        gone = await self._gone([queue.name for queue in application.queues.all() if queue.name not in there])
        async with application.loop.lock:
            put = application.queues.changes(there.values(), "")
            if put.queues or gone:
                changes = Changes(queues=put.queues, queues_deleted=gone)
                application.store.commit(changes)
                application.queues.take(changes)
        return None

    async def _gone(self, unseen: list[str]) -> tuple[str, ...]:
        """Those that have really gone: a queue that was made with its object is known before the object is seen here."""
        unseen = [name for name in unseen if name != DEFAULT_QUEUE]
        if not unseen:
            return ()
        there = {one.metadata.name for one in (await self._client.list(kinds.JOB_QUEUES)).items if _queue(one) is not None}
        return tuple(name for name in unseen if name not in there)


def _queue(found: Custom) -> Queue | None:
    metadata = found.metadata
    plain: dict[str, Any] = {
        "apiVersion": kinds.JOB_QUEUES.api_version,
        "kind": kinds.JOB_QUEUES.kind,
        "metadata": {"name": metadata.name, "labels": dict(metadata.labels)},
        "spec": found.spec_data(),
    }
    try:
        document = read_data(plain, metadata.name)
    except FairwayError as error:
        log.warning("the queue %s is none that can be read: %s", metadata.name, error)
        return None
    assert isinstance(document, JobQueue)
    return queue_of(document)
