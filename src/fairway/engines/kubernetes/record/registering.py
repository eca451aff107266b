"""Models and datasets as callers of the cluster's API have them: their files lie on other machines, and were sent ahead."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from fairway.app.datasets import Addition, DatasetCommands
from fairway.app.models import Models, Registration
from fairway.app.receipt import RequestKey
from fairway.app.sent import Held, Sent
from fairway.engines.kubernetes.people import CALLER, Caller
from fairway.engines.kubernetes.record.callers import callers_key
from fairway.errors import UsageError

Holding = Callable[[Caller, str], Awaitable[Held]]
"""Which contents a caller need not send to a namespace: `Rights.held`."""


class CallersModels(Models):
    """The same parts as the operator's own; what is registered is what the caller sent, or may read in that namespace."""

    def __init__(self, models: Models, holding: Holding) -> None:
        self.__dict__.update(models.__dict__)
        self._holding = holding

    async def preview(self, asked: Registration) -> str:
        """Looked at where the files are, before they are sent."""
        raise _elsewhere(asked.source)

    def _asked_by(self, key: RequestKey | None) -> RequestKey | None:
        """With the caller that the API server vouches for."""
        return callers_key(key)

    async def _content(self, asked: Registration) -> Sent:
        if not asked.manifest:
            raise _elsewhere(asked.source)
        return Sent(CALLER.get().user, asked.manifest, held=await self._holding(CALLER.get(), asked.namespace))


class CallersDatasets(DatasetCommands):
    """The same for datasets."""

    def __init__(self, datasets: DatasetCommands, holding: Holding) -> None:
        self.__dict__.update(datasets.__dict__)
        self._holding = holding

    async def _content(self, asked: Addition) -> Sent:
        if asked.reference or not asked.manifest:
            raise _elsewhere(asked.path)
        held = await self._holding(CALLER.get(), asked.namespace)
        return Sent(CALLER.get().user, asked.manifest, asked.is_file, held)


def _elsewhere(path: str) -> UsageError:
    """No path and no URI that a caller names is read with the operator's rights."""
    message = f"{path} is not read by the cluster"
    fix = "send its files (`fairway model register`, `fairway data add`), or name it under data: in a job"
    return UsageError(message, fix=fix)
