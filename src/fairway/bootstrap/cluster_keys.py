"""API keys of services on a cluster: kept in the operator's home and told to routers at once.

For routers that start, their hashes lie in Secrets.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path

from fairway.engines.kubernetes.serving.router import ClusterRouter
from fairway.errors import FairwayError
from fairway.serving.router.access.key_file import key_records, read_keys, write_keys
from fairway.serving.router.home import home_of
from fairway.state.access import ApiKey, KeyRule
from fairway.state.service import ServiceKey

log = logging.getLogger("fairway.operator")


class ClusterKeys:
    """Implements `KeyStore` over router pods."""

    def __init__(self, folder: Path, router: ClusterRouter) -> None:
        self._folder = folder
        self._router = router
        self._locks: dict[str, asyncio.Lock] = {}
        router.keys = self.rules

    def rules(self, key: ServiceKey) -> tuple[KeyRule, ...]:
        """What routers must know of the keys of a service."""
        try:
            return tuple(kept.rule for kept in read_keys(home_of(self._folder, str(key))))
        except FairwayError as problem:
            # Without the file no key is valid, and no request is let in.
            log.warning("%s", problem)
            return ()

    def records(self, key: ServiceKey) -> bytes:
        """What is kept of the keys, as a router pod reads it."""
        try:
            return key_records(home_of(self._folder, str(key)))
        except FairwayError:
            return b"[]"

    async def keys(self, service: str) -> tuple[ApiKey, ...]:
        """What is kept of the keys of a service."""
        return await asyncio.to_thread(read_keys, home_of(self._folder, service))

    async def change_keys(self, service: str, change: Callable[[tuple[ApiKey, ...]], tuple[ApiKey, ...]]) -> tuple[ApiKey, ...]:
        """Change them. Every router pod that runs has heard it when this returns; else `UnavailableError`."""
        async with self._locks.setdefault(service, asyncio.Lock()):
            home = home_of(self._folder, service)
            changed = change(await asyncio.to_thread(read_keys, home))
            await asyncio.to_thread(write_keys, home, changed)
            await self._router.follow_keys(ServiceKey(*service.split("/", 1)))
            return changed

    def forget(self, service: str) -> None:
        """The service is gone, and its keys with it."""
        home = home_of(self._folder, service)
        (home / "keys.json").unlink(missing_ok=True)
