"""Keeps a TensorBoard beside every run that asks for one, until nothing of the run's logs is kept any more."""

from __future__ import annotations

from collections.abc import Callable

from fairway.app.ports import Clock
from fairway.engines.kubernetes.client import kinds
from fairway.engines.kubernetes.client.api import Client
from fairway.engines.kubernetes.operator.installation import Installation
from fairway.engines.kubernetes.operator.manifests import tensorboard
from fairway.state.job import Job, JobKey
from fairway.units import quantity

MANAGER = "fairway-operator"
FOREVER = "forever"
NOTHING_SHARED = "none: pods share no volume on this cluster; an administrator may set `run_volume`"
NO_IMAGE = "none: no image has it; an administrator may add `runtimes: {tensorboard: ...}`"

Owner = Callable[[JobKey], dict[str, object] | None]


class Boards:
    """What is there is asked of nobody: what was applied or taken away since the start is remembered."""

    def __init__(self, client: Client, installation: Installation, owner: Owner, clock: Clock) -> None:
        self._client = client
        self._installation = installation
        self._owner = owner
        self._clock = clock
        self._there: set[JobKey] = set()
        self._gone: set[JobKey] = set()

    async def look(self, job: Job) -> tuple[str, float | None]:
        """Bring the server in step with the run: its address, or why there is none, and seconds until it should go."""
        owner = self._owner(job.key)
        if not job.spec.tensorboard.serve or owner is None:
            return "", None
        left = self._left(job)
        if left is not None and left <= 0:
            await self._remove(job.key)
            return "", None
        runtime = tensorboard.runtime_for(job.spec, self._installation)
        if runtime is None or "emptyDir" in self._installation.run_volume:
            return NOTHING_SHARED if runtime is not None else NO_IMAGE, None
        if job.key not in self._there:
            made = tensorboard.deployment(job.key, job.spec, self._installation, runtime, owner)
            await self._client.apply(kinds.DEPLOYMENTS, made, manager=MANAGER)
            await self._client.apply(kinds.SERVICES, tensorboard.service(job.key, owner), manager=MANAGER)
            self._there.add(job.key)
            self._gone.discard(job.key)
        return tensorboard.address(job.key, self._installation.cluster_domain), left

    def forget(self, key: JobKey) -> None:
        """The object is gone, and what it owned goes with it."""
        self._there.discard(key)
        self._gone.discard(key)

    def _left(self, job: Job) -> float | None:
        """Seconds until the logs of the run go; None: nobody knows yet."""
        if job.finished is None or not job.phase.over or job.spec.keep.logs == FOREVER:
            return None
        return job.finished + quantity.seconds(job.spec.keep.logs) - self._clock.now()

    async def _remove(self, key: JobKey) -> None:
        if key in self._gone:
            return
        await self._client.delete(kinds.DEPLOYMENTS, tensorboard.name_of(key), key.namespace)
        await self._client.delete(kinds.SERVICES, tensorboard.name_of(key), key.namespace)
        self._gone.add(key)
        self._there.discard(key)
