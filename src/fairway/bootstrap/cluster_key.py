"""API keys of services in a cluster: stored in the operator's home and sent to routers at once.

Routers that start read the keys' hashes from Secrets.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path

from fairway.engines.kubernetes.serving.cluster_router import ClusterRouter
from fairway.errors import FairwayError
from fairway.serving.router.access.key_file import key_records, read_keys, write_keys
from fairway.serving.router.router_folder import home_of
from fairway.state.service import ServiceKey
from fairway.state.serving.access import ApiKey, KeyRule

log = logging.getLogger("fairway.operator")


class ClusterKeys:
    """Implements `KeyStore` for router pods."""

    def __init__(self, folder: Path, router: ClusterRouter) -> None:
        self._folder = folder
        self._router = router
        self._locks: dict[str, asyncio.Lock] = {}
        router.keys = self.rules

    def rules(self, key: ServiceKey) -> tuple[KeyRule, ...]:
        """Return the rules that routers need to check a service's keys."""
        try:
            return tuple(record.rule for record in read_keys(home_of(self._folder, str(key))))
        except FairwayError as problem:
            # Without the file no key is valid, and every request is rejected.
            log.warning("%s", problem)
            return ()

    def records(self, key: ServiceKey) -> bytes:
        """Return the stored records of the keys, in the format of router pods."""
        try:
            return key_records(home_of(self._folder, str(key)))
        except FairwayError:
            return b"[]"

    async def keys(self, service: str) -> tuple[ApiKey, ...]:
        """Return the stored records of a service's keys."""
        return await asyncio.to_thread(read_keys, home_of(self._folder, service))

    async def change_keys(self, service: str, change: Callable[[tuple[ApiKey, ...]], tuple[ApiKey, ...]]) -> tuple[ApiKey, ...]:
        """Change the keys. When this returns, every running router pod has received the change; otherwise `UnavailableError`."""
        async with self._locks.setdefault(service, asyncio.Lock()):
            home = home_of(self._folder, service)
            changed = change(await asyncio.to_thread(read_keys, home))
            await asyncio.to_thread(write_keys, home, changed)
            await self._router.follow_keys(ServiceKey(*service.split("/", 1)))
            return changed

    def forget(self, service: str) -> None:
        """Delete the keys of a deleted service."""
        home = home_of(self._folder, service)
        (home / "keys.json").unlink(missing_ok=True)
