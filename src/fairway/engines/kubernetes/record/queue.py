"""Reconciles the operator's queues with JobQueue objects: who may submit where, and a queue's defaults."""

from __future__ import annotations

import logging
from typing import Any

from fairway.app.application import Application
from fairway.app.port.port import ChangeSet
from fairway.engines.kubernetes.client import api_resource
from fairway.engines.kubernetes.client.api import ApiClient
from fairway.engines.kubernetes.client.informer import Informer
from fairway.engines.kubernetes.objects import CustomObject
from fairway.errors import FairwayError
from fairway.spec.queue import JobQueue
from fairway.spec.text.document import read_data
from fairway.state.queue import DEFAULT_QUEUE, Queue, queue_of

log = logging.getLogger("fairway.operator")


class QueueReconciler:
    """Reconciles the application's queues with the objects; `look` is the work of a controller."""

    def __init__(self, client: ApiClient, application: Application, objects: Informer[CustomObject]) -> None:
        self._client = client
        self._application = application
        self._objects = objects

    async def look(self, _key: str) -> float | None:
        """Store new and changed queues, and forget deleted ones."""
        existing = {queue.name: queue for queue in map(_queue, self._objects) if queue is not None}
        application = self._application
        deleted = await self._gone([queue.name for queue in application.queues.all() if queue.name not in existing])
        async with application.loop.lock:
            changed = application.queues.changes(existing.values(), "")
            if changed.queues or deleted:
                changes = ChangeSet(queues=changed.queues, queues_deleted=deleted)
                application.store.commit(changes)
                application.queues.take(changes)
        return None

    async def _gone(self, unseen: list[str]) -> tuple[str, ...]:
        """Return the queues that are deleted, by a new list from the API server.

        A list is needed because a queue that was created with its object is known before its object is seen here.
        """
        unseen = [name for name in unseen if name != DEFAULT_QUEUE]
        if not unseen:
            return ()
        existing = {
            item.metadata.name for item in (await self._client.list(api_resource.JOB_QUEUES)).items if _queue(item) is not None
        }
        return tuple(name for name in unseen if name not in existing)


def _queue(found: CustomObject) -> Queue | None:
    metadata = found.metadata
    plain: dict[str, Any] = {
        "apiVersion": api_resource.JOB_QUEUES.api_version,
        "kind": api_resource.JOB_QUEUES.kind,
        "metadata": {"name": metadata.name, "labels": dict(metadata.labels)},
        "spec": found.spec_data(),
    }
    try:
        document = read_data(plain, metadata.name)
    except FairwayError as error:
        log.warning("the queue %s cannot be read: %s", metadata.name, error)
        return None
    assert isinstance(document, JobQueue)
    return queue_of(document)
