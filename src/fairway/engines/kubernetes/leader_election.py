"""Leader election: of several processes only the one that holds a Lease acts, and it renews the Lease every two seconds.

Whether another process's lease has expired is judged by this process's own monotonic clock, from when it last saw the record
change; clocks of different machines are never compared. A leader that could not renew for ten seconds stops writing by itself,
five seconds before another process may take the lease. Its client checks `leading` before every write, so that even a process
that was suspended and resumed does not write once more.
"""

from __future__ import annotations

import asyncio
import datetime
import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from fairway.engines.kubernetes.client import errors
from fairway.engines.kubernetes.client.api import ApiClient
from fairway.engines.kubernetes.client.api_resource import LEASES
from fairway.engines.kubernetes.objects import KubernetesLease
from fairway.errors import RefusedError

log = logging.getLogger("fairway.leader")


@dataclass(frozen=True, slots=True)
class LeaseTiming:
    """Timing of a lease, in seconds."""

    duration: float = 15.0
    """Time without a change after which another process may take the lease."""
    deadline: float = 10.0
    """Time without a renewal after which the holder stops; less than `duration`."""
    period: float = 2.0
    """Interval between two attempts to take or renew the lease."""


class LeadershipLostError(RefusedError):
    """The lease was lost: another process may be acting by now, and this one must end."""

    code = "leadership_lost"


class LeaseState:
    """The state of a lease as this process sees it. Pure: `now` is the monotonic clock of this process."""

    def __init__(self, identity: str, pace: LeaseTiming = LeaseTiming()) -> None:
        self.pace = pace
        self.identity = identity
        self.seen: KubernetesLease | None = None
        self._changed = float("-inf")
        self._renewed = float("-inf")

    def look(self, lease: KubernetesLease | None, now: float) -> None:
        """Record that the lease was read."""
        if lease is None or self.seen is None or lease.metadata.resource_version != self.seen.metadata.resource_version:
            self._changed = now
        self.seen = lease
        if lease is not None and lease.spec.holder_identity not in ("", None, self.identity):
            self._renewed = float("-inf")  # whatever the reason: there is another leader

    def wrote(self, lease: KubernetesLease, asked_at: float) -> None:
        """Record that our write was accepted. It counts from the time of the request, since the response may have taken long."""
        self.seen = lease
        self._changed = self._renewed = asked_at

    def leading(self, now: float) -> bool:
        """Whether this process holds the lease for certain, so that no other can be the leader now."""
        return now - self._renewed < self.pace.deadline

    def may_take(self, now: float) -> bool:
        """Whether the lease is ours, free or expired."""
        if self.seen is None:
            return True
        holder = self.seen.spec.holder_identity or ""
        span = float(self.seen.spec.lease_duration_seconds or self.pace.duration)
        return holder in ("", self.identity) or now - self._changed > span

    def record(self, namespace: str, name: str, stamp: str) -> dict[str, Any]:
        """Return the lease to write. It has the resource version that was read, so that only one of two takers succeeds."""
        spec = self.seen.spec if self.seen else None
        ours = spec is not None and spec.holder_identity == self.identity
        metadata: dict[str, Any] = {"name": name, "namespace": namespace}
        if self.seen:
            metadata["resourceVersion"] = self.seen.metadata.resource_version
        return {
            "apiVersion": LEASES.api_version,
            "kind": LEASES.kind,
            "metadata": metadata,
            "spec": {
                "holderIdentity": self.identity,
                "leaseDurationSeconds": max(1, round(self.pace.duration)),
                "acquireTime": (spec.acquire_time if ours and spec else None) or stamp,
                "renewTime": stamp,
                "leaseTransitions": ((spec.lease_transitions or 0) if spec else 0) + (0 if ours or not spec else 1),
            },
        }


class LeaderElection:
    """Waits until it is the leader, then runs the work and keeps renewing the lease meanwhile."""

    def __init__(self, client: ApiClient, namespace: str, name: str, identity: str, pace: LeaseTiming = LeaseTiming()) -> None:
        """`identity` must be unique to this process, also over restarts: a host name is not enough."""
        self._pace = pace
        self._client = client
        self._namespace = namespace
        self._name = name
        self._tenure = LeaseState(identity, pace)
        self._reread = True

    @property
    def leading(self) -> bool:
        """Whether this process is the leader for certain; the client checks this before every write."""
        return self._tenure.leading(_steady())

    async def run(self, work: Callable[[], Awaitable[None]]) -> None:
        """Run the work once this process is the leader, and release the lease when it ends.

        Raises `LeadershipLostError` when the lease was lost meanwhile.
        """
        while not await self._try():
            await asyncio.sleep(self._pace.period * (0.75 + 0.5 * self._client.connection.chance()))
        working = asyncio.ensure_future(work())
        try:
            await self._renew_while(working)
        finally:
            if not working.done():
                working.cancel()
                await asyncio.wait([working])
            if self.leading:
                await self._give_back()
        await working

    async def _renew_while(self, working: asyncio.Future[None]) -> None:
        while not working.done():
            await asyncio.wait([working], timeout=self._pace.period)
            if working.done():
                return
            if not await self._try() and not self.leading:
                holder = self._tenure.seen.spec.holder_identity if self._tenure.seen else ""
                message = (
                    f"the lease {self._namespace}/{self._name} was not renewed in time; it is held by {holder or 'no process'}"
                )
                raise LeadershipLostError(message, fix="nothing to do: another replica takes over, and this one restarts")

    async def _try(self) -> bool:
        """Take or renew the lease if that is possible now. Returns whether it succeeded."""
        try:
            async with asyncio.timeout(self._pace.deadline / 2):
                return await self._take()
        except (OSError, errors.Unavailable, errors.TooManyRequests, errors.Conflict):
            # Tried again next time. The cached lease may be out of date, so the next try reads it first.
            self._reread = True
            return False
        except errors.ApiError:
            raise  # It will not pass by itself: permissions are missing, or the kind is.
        except Exception:  # Tried again all the same; a leader that keeps failing stops by itself.
            log.exception("the lease %s/%s could not be read or written; this is retried", self._namespace, self._name)
            self._reread = True
            return False

    async def _take(self) -> bool:
        if self._reread or not self.leading:
            self._tenure.look(await self._read(), _steady())
            self._reread = False
        if not self._tenure.may_take(_steady()):
            return False
        asked_at = _steady()
        body = self._tenure.record(self._namespace, self._name, micro_time(self._client.connection.clock.now()))
        if self._tenure.seen is None:
            lease = await self._client.create(LEASES, body, self._namespace)
        else:
            lease = await self._client.replace(LEASES, body, self._namespace)
        self._tenure.wrote(lease, asked_at)
        return True

    async def _read(self) -> KubernetesLease | None:
        try:
            return await self._client.get(LEASES, self._name, self._namespace)
        except errors.NotFound:
            return None

    async def _give_back(self) -> None:
        body = self._tenure.record(self._namespace, self._name, micro_time(self._client.connection.clock.now()))
        body["spec"].update(holderIdentity="", leaseDurationSeconds=1)
        try:
            await self._client.replace(LEASES, body, self._namespace)
        except Exception as problem:  # noqa: BLE001 - the lease expires by itself.
            log.debug("the lease was not released: %s", problem)


def micro_time(seconds: float) -> str:
    """Format a time as the API does in leases and events."""
    return datetime.datetime.fromtimestamp(seconds, datetime.UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


# Counts the time while the machine is suspended, where the system has such a clock.
_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def _steady() -> float:
    return time.clock_gettime(_CLOCK)
