"""The ports of services: a router, a replica watch, a model catalogue, a key store and sample files."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from fairway.app.port.model_store import NameResolver
from fairway.state.job import JobKey
from fairway.state.model import ModelVersion
from fairway.state.serving.access import ApiKey
from fairway.state.serving.load import ReplicaLoad, RouteLoad
from fairway.state.serving.route import RoutePlan, RouterFault


@dataclass(frozen=True, slots=True)
class ProbeTarget:
    """A replica that is probed."""

    address: str
    ready_path: str
    tells_load: bool
    """Whether it runs Fairway's own server, which reports its load."""
    protocol: str = "http"
    """Its protocol: http, http2 or grpc."""


@dataclass(frozen=True, slots=True)
class ProbeResult:
    """The last observation of a replica."""

    ready: bool = False
    since: float = 0.0
    """Time of the last change of `ready`."""
    load: ReplicaLoad | None = None
    refused: str = ""
    """Why its load report was rejected; empty if it was accepted."""


class ReplicaProber(Protocol):
    """Probes whether replicas are ready. Guarantees to call `wake` as soon as one becomes ready, or ceases to be."""

    def start(self, wake: Callable[[], None]) -> None:
        """Start; `wake` is called from the event loop."""
        ...

    def follow(self, targets: Mapping[str, ProbeTarget]) -> None:
        """Probe exactly these replicas from now on, by name."""
        ...

    def seen(self) -> Mapping[str, ProbeResult]:
        """Return the last observation of each; those not observed yet are left out."""
        ...

    async def close(self) -> None:
        """Stop probing."""
        ...


class ModelResolver(NameResolver, Protocol):
    """Resolves models."""

    def get(self, reference: str) -> ModelVersion:
        """Return the version that `mnist`, `mnist@7` or `mnist@champion` refers to; `NotFoundError` lists the existing ones."""
        ...


class ServiceRouter(Protocol):
    """Routes requests to replicas. Guarantees:

    1. `put` is idempotent and returns when the plan is in force; no request fails because of a change.
    2. The listening socket outlives the router's process and the daemon.
    3. Counters never decrease; a restarted router has another `epoch`.
    4. A killed process of a router is reported by `troubles` until the same plan is put again, which replaces it.
    """

    async def start(self, wake: Callable[[], None]) -> None:
        """Start. `wake` is called on urgent events: a request without a replica, a replica that refuses connections."""
        ...

    async def close(self) -> None:
        """Detach. Routers continue to run."""
        ...

    async def put(self, plan: RoutePlan) -> int:
        """Apply the plan; return the port on which the router listens."""
        ...

    async def drop(self, service: str) -> None:
        """End the router of a service. Requests that it holds are answered with 503."""
        ...

    async def look(self) -> dict[str, RouteLoad]:
        """Return measurements, by service."""
        ...

    async def troubles(self) -> dict[str, RouterFault]:
        """Return the problems of routers, by service. Calling `put` with the same plan repairs what can be repaired."""
        ...

    async def kept(self) -> list[str]:
        """Return the services that have a router, including those from before a restart."""
        ...


class KeyStore(Protocol):
    """Stores the API keys of services and distributes them to routers. It stores digests, not the keys themselves."""

    async def keys(self, service: str) -> tuple[ApiKey, ...]:
        """Return the stored records of a service's keys, in order of name."""
        ...

    async def change_keys(self, service: str, change: Callable[[tuple[ApiKey, ...]], tuple[ApiKey, ...]]) -> tuple[ApiKey, ...]:
        """Change the keys; the change is in force at every router of the service when this returns. `change` may raise."""
        ...


@dataclass(frozen=True, slots=True)
class SampleFile:
    """A complete file of sampled requests."""

    name: str
    """Its name in the dataset: unique, and sorted by time."""
    path: Path
    size: int
    closed: float
    """Time at which it was closed, in seconds since the epoch."""


class SampleFiles(Protocol):
    """The sample files of replicas. A listed file is complete; it stays until it is removed or is the oldest of too many."""

    def runs(self) -> Sequence[JobKey]:
        """Return the replicas that have files here."""
        ...

    def finish(self, run: JobKey) -> None:
        """Complete the file that an ended, perhaps killed, replica was writing: its whole requests are kept."""
        ...

    def complete(self, run: JobKey) -> Sequence[SampleFile]:
        """Return the complete files of a replica."""
        ...

    def remove(self, files: Iterable[SampleFile]) -> None:
        """Remove files that are stored elsewhere now."""
        ...


@dataclass(frozen=True, slots=True)
class ServingPorts:
    """Everything an engine needs to serve models."""

    router: ServiceRouter
    watch: ReplicaProber
    models: ModelResolver
    python: str
    """The interpreter of Fairway's own server."""
    samples: SampleFiles | None = None
    """The sample files of replicas; None where samples are not gathered."""
