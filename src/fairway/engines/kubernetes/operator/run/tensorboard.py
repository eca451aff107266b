"""Keeps a TensorBoard for every run that requests one, until the run's logs are no longer kept."""

from __future__ import annotations

from collections.abc import Callable

from fairway.app.port.port import Clock
from fairway.engines.kubernetes.client import api_resource
from fairway.engines.kubernetes.client.api import ApiClient
from fairway.engines.kubernetes.operator.installation import InstallationSettings
from fairway.engines.kubernetes.operator.manifest import tensorboard
from fairway.state.job import JobKey, JobState
from fairway.units import quantity

MANAGER = "fairway-operator"
FOREVER = "forever"
NOTHING_SHARED = "none: pods share no volume on this cluster; an administrator may set `run_volume`"
NO_IMAGE = "none: no image contains TensorBoard; an administrator may add `runtimes: {tensorboard: ...}`"

Owner = Callable[[JobKey], dict[str, object] | None]


class TensorBoardReconciler:
    """The TensorBoards of runs. Kept in memory since the start; never listed from the API server."""

    def __init__(self, client: ApiClient, installation: InstallationSettings, owner: Owner, clock: Clock) -> None:
        self._client = client
        self._installation = installation
        self._owner = owner
        self._clock = clock
        self._there: set[JobKey] = set()
        self._gone: set[JobKey] = set()

    async def look(self, job: JobState) -> tuple[str, float | None]:
        """Reconcile the run's TensorBoard. Returns its address, or why there is none, and the seconds until it is removed."""
        owner = self._owner(job.key)
        if not job.spec.tensorboard.serve or owner is None:
            return "", None
        remaining = self._left(job)
        if remaining is not None and remaining <= 0:
            await self._remove(job.key)
            return "", None
        runtime = tensorboard.runtime_for(job.spec, self._installation)
        if runtime is None or "emptyDir" in self._installation.run_volume:
            return NOTHING_SHARED if runtime is not None else NO_IMAGE, None
        if job.key not in self._there:
            deployment = tensorboard.deployment(job.key, job.spec, self._installation, runtime, owner)
            await self._client.apply(api_resource.DEPLOYMENTS, deployment, manager=MANAGER)
            await self._client.apply(api_resource.SERVICES, tensorboard.service(job.key, owner), manager=MANAGER)
            self._there.add(job.key)
            self._gone.discard(job.key)
        return tensorboard.address(job.key, self._installation.cluster_domain), remaining

    def forget(self, key: JobKey) -> None:
        """Forget the run: its object was deleted, and with it everything that the object owned."""
        self._there.discard(key)
        self._gone.discard(key)

    def _left(self, job: JobState) -> float | None:
        """Return the seconds until the logs of the run are removed; None while that is unknown, or when they are kept forever."""
        if job.finished is None or not job.phase.over or job.spec.keep.logs == FOREVER:
            return None
        return job.finished + quantity.seconds(job.spec.keep.logs) - self._clock.now()

    async def _remove(self, key: JobKey) -> None:
        if key in self._gone:
            return
        await self._client.delete(api_resource.DEPLOYMENTS, tensorboard.name_of(key), key.namespace)
        await self._client.delete(api_resource.SERVICES, tensorboard.name_of(key), key.namespace)
        self._gone.add(key)
        self._there.discard(key)
