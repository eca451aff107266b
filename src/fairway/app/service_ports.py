"""What services need of the outside, as roles: a router, somebody who looks at replicas, and who knows models."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from fairway.app.model_store import RegistryNames
from fairway.state.access import ApiKey
from fairway.state.job import JobKey
from fairway.state.load import ReplicaLoad, RouteLoad
from fairway.state.model import ModelVersion
from fairway.state.route import RoutePlan, RouteTrouble


@dataclass(frozen=True, slots=True)
class Watched:
    """A replica that is looked at."""

    address: str
    ready_path: str
    tells_load: bool
    """Whether it is a server of ours, that says how busy it is."""
    protocol: str = "http"
    """What it speaks: http, http2 or grpc."""


@dataclass(frozen=True, slots=True)
class Sight:
    """What was seen of a replica last."""

    ready: bool = False
    since: float = 0.0
    """When `ready` became what it is."""
    load: ReplicaLoad | None = None
    refused: str = ""
    """What it said of its load and could not be taken, in words; empty: nothing."""


class ReplicaWatch(Protocol):
    """Looks whether replicas answer. Promises to call `wake` as soon as one becomes ready, or stops to be."""

    def start(self, wake: Callable[[], None]) -> None:
        """Begin; `wake` is called from the event loop."""
        ...

    def follow(self, targets: Mapping[str, Watched]) -> None:
        """Look at exactly these from now on, by name."""
        ...

    def seen(self) -> Mapping[str, Sight]:
        """What was seen of each; those not seen yet are left out."""
        ...

    async def close(self) -> None:
        """Stop looking."""
        ...


class ModelCatalogue(RegistryNames, Protocol):
    """Knows models."""

    def get(self, reference: str) -> ModelVersion:
        """The version that `mnist`, `mnist@7` or `mnist@champion` means; `NotFoundError` with what there is."""
        ...


class Router(Protocol):
    """Sends requests to replicas. Promises:

    1. `put` is idempotent and returns when the plan is in force; no request fails because of a change.
    2. The listening socket outlives the router's process and the daemon.
    3. Counters never go back; a router that started anew has another `epoch`.
    4. A process of a router that was killed is named by `troubles` until the same plan is put again, which replaces it.
    """

    async def start(self, wake: Callable[[], None]) -> None:
        """Begin. `wake` is called when something urgent is seen: a request without a replica, a replica that refuses."""
        ...

    async def close(self) -> None:
        """Let go. Routers go on."""
        ...

    async def put(self, plan: RoutePlan) -> int:
        """Make it so; the port it listens on."""
        ...

    async def drop(self, service: str) -> None:
        """End the router of a service. What is held is answered 503."""
        ...

    async def look(self) -> dict[str, RouteLoad]:
        """What was measured, by service."""
        ...

    async def troubles(self) -> dict[str, RouteTrouble]:
        """What is wrong with the routers of services, by service. To `put` the plan again repairs what can be repaired."""
        ...

    async def kept(self) -> list[str]:
        """The services that have a router, also from before a restart."""
        ...


class KeyStore(Protocol):
    """Keeps the API keys of services, and has routers follow them. It keeps no key, only what one is recognised by."""

    async def keys(self, service: str) -> tuple[ApiKey, ...]:
        """What is kept of the keys of a service, in order of name."""
        ...

    async def change_keys(self, service: str, change: Callable[[tuple[ApiKey, ...]], tuple[ApiKey, ...]]) -> tuple[ApiKey, ...]:
        """Change them; what changed is in force at every router of the service when this returns. `change` may raise."""
        ...


@dataclass(frozen=True, slots=True)
class SampleFile:
    """A complete file of sampled requests."""

    name: str
    """What it is called in the dataset: unique, and in order of time."""
    path: Path
    size: int
    closed: float
    """When, in seconds since the epoch."""


class SampleFiles(Protocol):
    """What replicas have written. A file that is named is complete; it stays until it is removed or is the oldest of too many."""

    def runs(self) -> Sequence[JobKey]:
        """The replicas of which something lies here."""
        ...

    def finish(self, run: JobKey) -> None:
        """The replica is over, perhaps killed: whole requests of what it was writing make a complete file."""
        ...

    def complete(self, run: JobKey) -> Sequence[SampleFile]:
        """The complete files of a replica."""
        ...

    def remove(self, files: Iterable[SampleFile]) -> None:
        """They are kept elsewhere."""
        ...


@dataclass(frozen=True, slots=True)
class Serving:
    """What an engine needs to serve models."""

    router: Router
    watch: ReplicaWatch
    models: ModelCatalogue
    python: str
    """The interpreter that has Fairway's own server."""
    samples: SampleFiles | None = None
    """Where replicas leave the requests that they sample; None where nobody gathers them."""
