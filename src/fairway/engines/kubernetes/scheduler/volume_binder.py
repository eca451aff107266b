"""Binds claims to volumes before their pods are bound: selects the node for provisioners, and waits for the volumes."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from fairway.engines.kubernetes.client import api_resource, errors
from fairway.engines.kubernetes.client.api import ApiClient
from fairway.engines.kubernetes.objects import PersistentVolumeClaim, key_of
from fairway.engines.kubernetes.scheduler.filter.volume_filter import ClaimBinding
from fairway.errors import FairwayError

log = logging.getLogger("fairway.scheduler")

SELECTED_NODE = "volume.kubernetes.io/selected-node"
BOUND_BY_CONTROLLER = "pv.kubernetes.io/bound-by-controller"
VOLUME_TIMEOUT = 120.0
"""Seconds to wait for a volume."""

_MARK = "/metadata/annotations/" + SELECTED_NODE.replace("/", "~1")


class VolumeTimeoutError(FairwayError):
    """A claim did not get its volume in time."""

    code = "volume_timeout"


class VolumeClaimBinder:
    """Binds claims, and undoes the request when one does not get its volume."""

    def __init__(
        self,
        client: ApiClient,
        claim: Callable[[str], PersistentVolumeClaim | None],
        done: Callable[[Iterable[ClaimBinding]], None],
    ) -> None:
        """`claim` returns the present state of a claim by its key; `done` is called with claims that are no longer waited for."""
        self._client = client
        self._claim = claim
        self._done = done
        self._heard = asyncio.Condition()

    async def hear(self) -> None:
        """Wake the waiters: a claim has changed."""
        async with self._heard:
            self._heard.notify_all()

    async def bind(self, wanted: Sequence[ClaimBinding]) -> None:
        """Wait until all claims have their volumes. On failure, withdraw the requests and raise the cause."""
        if not wanted:
            return
        try:
            async with asyncio.timeout(VOLUME_TIMEOUT):
                for binding in wanted:
                    await self._ask(binding)
                async with self._heard:
                    await self._heard.wait_for(lambda: all(self._is_bound(binding) for binding in wanted))
        except TimeoutError as error:
            await self._take_back(wanted)
            names = ", ".join(binding.claim.metadata.name for binding in wanted if not self._is_bound(binding))
            message = f"the volume claims {names} were not bound within {VOLUME_TIMEOUT:g} s"
            raise VolumeTimeoutError(
                message, fix="read the events of these claims and the log of the storage class's provisioner"
            ) from error
        except Exception:
            await self._take_back(wanted)
            raise
        finally:
            self._done(wanted)

    def _is_bound(self, one: ClaimBinding) -> bool:
        current = self._claim(key_of(one.claim))
        return current is not None and current.metadata.uid == one.claim.metadata.uid and current.status.phase == "Bound"

    async def _ask(self, one: ClaimBinding) -> None:
        if one.volume is not None:
            await self._promise(one)
            return
        claim = one.claim.metadata
        change: dict[str, Any] = {"op": "add", "path": _MARK, "value": one.node}
        if not claim.annotations:
            change = {"op": "add", "path": "/metadata/annotations", "value": {SELECTED_NODE: one.node}}
        await self._client.patch(api_resource.CLAIMS, claim.name, claim.namespace, [_is_still(claim.uid), change])

    async def _promise(self, one: ClaimBinding) -> None:
        """Reserve an existing volume for this claim; the volume controller completes the binding."""
        assert one.volume is not None
        claim = one.claim.metadata
        holder = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": claim.namespace, "name": claim.name}
        marks = {**one.volume.metadata.annotations, BOUND_BY_CONTROLLER: "yes"}
        changes: list[dict[str, Any]] = [
            {"op": "test", "path": "/metadata/resourceVersion", "value": one.volume.metadata.resource_version},
            {"op": "add", "path": "/spec/claimRef", "value": {**holder, "uid": claim.uid}},
            {"op": "add", "path": "/metadata/annotations", "value": marks},
        ]
        await self._client.patch(api_resource.VOLUMES, one.volume.metadata.name, "", changes)

    async def _take_back(self, wanted: Sequence[ClaimBinding]) -> None:
        """Remove the selected node from claims without a volume: another node may be selected the next time."""
        for binding in wanted:
            if self._is_bound(binding) or binding.volume is not None:
                continue
            claim = binding.claim.metadata
            changes = [
                _is_still(claim.uid),
                {"op": "test", "path": _MARK, "value": binding.node},
                {"op": "remove", "path": _MARK},
            ]
            try:
                await self._client.patch(api_resource.CLAIMS, claim.name, claim.namespace, changes)
            except (errors.NotFound, errors.Invalid, errors.Conflict):
                continue  # The claim was deleted, or another process has selected a node.
            except Exception as error:  # noqa: BLE001 - the others are undone all the same.
                log.warning("could not remove the selected node of the claim %s/%s: %s", claim.namespace, claim.name, error)


def _is_still(uid: str) -> dict[str, str]:
    return {"op": "test", "path": "/metadata/uid", "value": uid}
