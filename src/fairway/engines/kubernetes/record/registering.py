"""Models and datasets for callers of the cluster's API: their files are on other machines, and are uploaded first."""

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
"""Returns the contents that a caller need not send to a namespace: `Rights.held`."""


class CallersModels(Models):
    """Shares the components of the operator's own; callers register what they have sent, or may read in that namespace."""

    def __init__(self, models: Models, holding: Holding) -> None:
        self.__dict__.update(models.__dict__)
        self._holding = holding

    async def preview(self, asked: Registration) -> str:
        """Refuse: a preview is made where the files are, before they are sent."""
        raise _elsewhere(asked.source)

    def _asked_by(self, key: RequestKey | None) -> RequestKey | None:
        """Return the key with the caller that the API server authenticated."""
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
    """Return the error for a path or URI of a caller: the operator never reads one with its own rights."""
    message = f"the cluster does not read {path}"
    fix = "send its files (`fairway model register`, `fairway data add`), or name it under data: in a job"
    return UsageError(message, fix=fix)
