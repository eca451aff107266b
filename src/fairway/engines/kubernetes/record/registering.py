"""Models and datasets as callers of the cluster's API have them: their files lie on other machines, and were sent ahead."""

from __future__ import annotations

from fairway.app.datasets import Addition, DatasetCommands
from fairway.app.models import Models, Registration
from fairway.app.receipt import RequestKey
from fairway.app.sent import Sent
from fairway.engines.kubernetes.people import CALLER
from fairway.engines.kubernetes.record.callers import callers_key
from fairway.errors import UsageError


class CallersModels(Models):
    """The same parts as the operator's own; what is registered is what the caller sent."""

    def __init__(self, models: Models) -> None:
        self.__dict__.update(models.__dict__)

    async def preview(self, asked: Registration) -> str:
        """Looked at where the files are, before they are sent."""
        raise _elsewhere(asked.source)

    def _asked_by(self, key: RequestKey | None) -> RequestKey | None:
        """With the caller that the API server vouches for."""
        return callers_key(key)

    def _content(self, asked: Registration) -> Sent:
        if not asked.manifest:
            raise _elsewhere(asked.source)
        return Sent(CALLER.get().user, asked.manifest)


class CallersDatasets(DatasetCommands):
    """The same for datasets."""

    def __init__(self, datasets: DatasetCommands) -> None:
        self.__dict__.update(datasets.__dict__)

    def _content(self, asked: Addition) -> Sent:
        if asked.reference or not asked.manifest:
            raise _elsewhere(asked.path)
        return Sent(CALLER.get().user, asked.manifest, asked.is_file)


def _elsewhere(path: str) -> UsageError:
    """No path and no URI that a caller names is read with the operator's rights."""
    message = f"{path} is not read by the cluster"
    fix = "send its files (`fairway model register`, `fairway data add`), or name it under data: in a job"
    return UsageError(message, fix=fix)
