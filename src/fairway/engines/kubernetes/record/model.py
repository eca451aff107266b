"""Models and datasets for callers of the cluster's API: their files are on other machines, and are uploaded first."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from fairway.app.dataset import DatasetAddition, DatasetUseCases
from fairway.app.idempotency import IdempotencyKey
from fairway.app.model import ModelRegistration, ModelUseCases
from fairway.app.upload import Held, UploadedContent
from fairway.engines.kubernetes.identity.caller import CALLER, ClusterCaller
from fairway.engines.kubernetes.record.front_proxy import callers_key
from fairway.errors import UsageError

Holding = Callable[[ClusterCaller, str], Awaitable[Held]]
"""Returns the contents that a caller need not send to a namespace: `Rights.held`."""


class CallerModels(ModelUseCases):
    """Shares the components of the operator's own; callers register what they have sent, or may read in that namespace."""

    def __init__(self, models: ModelUseCases, holding: Holding) -> None:
        self.__dict__.update(models.__dict__)
        self._holding = holding

    async def preview(self, asked: ModelRegistration) -> str:
        """Refuse: a preview is made where the files are, before they are sent."""
        raise _elsewhere(asked.source)

    def _asked_by(self, key: IdempotencyKey | None) -> IdempotencyKey | None:
        """Return the key with the caller that the API server authenticated."""
        return callers_key(key)

    async def _content(self, asked: ModelRegistration) -> UploadedContent:
        if not asked.manifest:
            raise _elsewhere(asked.source)
        return UploadedContent(CALLER.get().user, asked.manifest, held=await self._holding(CALLER.get(), asked.namespace))


class CallerDatasets(DatasetUseCases):
    """The same for datasets."""

    def __init__(self, datasets: DatasetUseCases, holding: Holding) -> None:
        self.__dict__.update(datasets.__dict__)
        self._holding = holding

    async def _content(self, asked: DatasetAddition) -> UploadedContent:
        if asked.reference or not asked.manifest:
            raise _elsewhere(asked.path)
        held = await self._holding(CALLER.get(), asked.namespace)
        return UploadedContent(CALLER.get().user, asked.manifest, asked.is_file, held)


def _elsewhere(path: str) -> UsageError:
    """Return the error for a path or URI of a caller: the operator never reads one with its own rights."""
    message = f"the cluster does not read {path}"
    fix = "send its files (`fairway model register`, `fairway data add`), or name it under data: in a job"
    return UsageError(message, fix=fix)
