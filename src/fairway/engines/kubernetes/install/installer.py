"""Applies an installation after a dry run of every object, and removes it completely."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from fairway.engines.kubernetes import annotation
from fairway.engines.kubernetes.client import api_resource, errors
from fairway.engines.kubernetes.client.api import ApiClient
from fairway.engines.kubernetes.client.api_path import ApiResource
from fairway.engines.kubernetes.install.section import VERSION_LABEL
from fairway.errors import ConflictError, FairwayError, RefusedError, UnavailableError
from fairway.version import VERSION

MANAGER = "fairway-install"
PATIENCE = 60.0
"""Seconds in which the API server must serve a newly defined kind."""
DEFINITION = "CustomResourceDefinition"
NAMESPACE = "Namespace"
CLAIM = "PersistentVolumeClaim"
KEPT = (DEFINITION, NAMESPACE, CLAIM)
"""Kinds kept on uninstall unless everything is to be removed: the objects of users are in them."""
TOGETHER = 8
"""Maximum number of objects that are tried concurrently."""
TOLD = 5
"""Maximum number of refusals that an error lists."""
ENDING = (DEFINITION, NAMESPACE)
"""Kinds that disappear only after everything in them has been deleted."""
END_PATIENCE = 120.0
"""Timeout in seconds for that."""
LOOK_EVERY = 0.1
"""Polling interval in seconds."""
SERVED = ("Established", "NamesAccepted")
"""Conditions of a definition that do not concern its deletion."""
LEASES = ("fairway-operator", "fairway-scheduler")
"""The Leases that the processes create."""

Say = Callable[[str], None]
Manifest = dict[str, Any]


async def apply_all(client: ApiClient, manifests: Sequence[Manifest], say: Say, left: Iterable[Manifest] = ()) -> None:
    """Apply the manifests in order. Unchanged objects stay; objects of another installation in `left` are removed.

    Everything is tried in a dry run first: if one object would be refused nothing is changed, and the error lists the refusals.
    An installation by a newer version is not touched.
    """
    await _refuse_older(client, manifests)
    created = await _try_all(client, manifests)
    for number, manifest in enumerate(manifests):
        try:
            changed = await _apply(client, manifest) or manifest in created
        except FairwayError as error:
            message = f"{called(manifest)}: {error.message}; {number} of {len(manifests)} objects are applied"
            kind = UnavailableError if isinstance(error, UnavailableError) else RefusedError
            raise kind(message, fix="correct that and run the command again: it continues where it stopped") from error
        say(f"{called(manifest)} {'applied' if changed else 'unchanged'}")
        if manifest["kind"] == DEFINITION:
            await _served(client, manifest["metadata"]["name"])
    names = {called(manifest) for manifest in manifests}
    await remove_each(
        client, [manifest for manifest in left if called(manifest) not in names and manifest["kind"] not in KEPT], say
    )


async def _apply(client: ApiClient, one: Manifest) -> bool:
    """Apply a manifest and return whether it changed anything."""
    resource = await _plain(client, one)
    before = await _there(client, resource, one)
    after = await client.apply(resource, one, manager=MANAGER)
    return before is None or _said(before) != _said(after)


def _said(one: Manifest) -> Manifest:
    """Return an object without what controllers and the API server itself write."""
    metadata = {name: value for name, value in one["metadata"].items() if name not in ("managedFields", "resourceVersion")}
    return {**{name: value for name, value in one.items() if name != "status"}, "metadata": metadata}


async def _there(client: ApiClient, resource: ApiResource[dict[str, Any]], one: Manifest) -> Manifest | None:
    """Return the existing object; None where there is none, or where the caller may not see it."""
    try:
        return await client.get(resource, one["metadata"]["name"], one["metadata"].get("namespace", ""))
    except (errors.NotFound, errors.Forbidden):
        return None


async def _refuse_older(client: ApiClient, manifests: Sequence[Manifest]) -> None:
    """Refuse to replace newer definitions: older ones would remove fields from existing objects."""
    for manifest in manifests:
        if manifest["kind"] != DEFINITION:
            continue
        existing = await _there(client, await _plain(client, manifest), manifest)
        if existing is None:
            continue  # A caller who may not read the definition is refused in the next step, in the API server's own words.
        version = existing["metadata"].get("labels", {}).get(VERSION_LABEL, "")
        if _number(version) > _number(VERSION):
            message = (
                f"the cluster has Fairway {version}, and this is {VERSION}: {manifest['metadata']['name']} would lose fields"
            )
            raise ConflictError(message, fix=f"use Fairway {version} or newer: pip install -U fairway")


def _number(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".") if part.isdecimal())


async def _try_all(client: ApiClient, manifests: Sequence[Manifest]) -> list[Manifest]:
    """Apply everything as a dry run. That needs the namespace, which is created first and deleted again if anything is refused.

    Returns what was created.
    """
    created = [
        manifest
        for manifest in manifests
        if manifest["kind"] == NAMESPACE and not await _there(client, await _plain(client, manifest), manifest)
    ]
    try:
        refused = await _refusals(client, created, dry_run=False)
        refused += await _refusals(client, [manifest for manifest in manifests if manifest not in created], dry_run=True)
    except FairwayError:
        await remove_each(client, created, lambda _: None)
        raise
    # Where the namespace was refused, its objects are refused as not found: that is no news.
    refused = [item for item in refused if not isinstance(item[1], errors.NotFound)] or refused
    if not refused:
        return created
    await remove_each(client, [manifest for manifest in created if manifest not in [item for item, _ in refused]], lambda _: None)
    messages = [f"{called(manifest)}: {error.message}" for manifest, error in refused[:TOLD]]
    more = [f"and {len(refused) - TOLD} more"] if len(refused) > TOLD else []
    raise RefusedError(f"nothing was changed: {'; '.join([*messages, *more])}", fix=refused[0][1].fix)


async def _refusals(client: ApiClient, manifests: Iterable[Manifest], *, dry_run: bool) -> list[tuple[Manifest, FairwayError]]:
    """Return what the API server refuses, in order. Raises when it does not respond."""
    slots = asyncio.Semaphore(TOGETHER)

    async def attempt(one: Manifest) -> tuple[Manifest, FairwayError] | None:
        async with slots:
            try:
                await client.apply(await _plain(client, one), one, manager=MANAGER, dry_run=dry_run)
            except UnavailableError:
                raise
            except FairwayError as error:
                return one, error
        return None

    results = await asyncio.gather(*(attempt(one) for one in manifests))
    return [result for result in results if result is not None]


async def remove_all(client: ApiClient, manifests: Sequence[Manifest], say: Say, *, whole: bool = False) -> None:
    """Delete the manifests in reverse order, and wait until they are gone.

    Definitions, record and namespace are kept, and with them the objects of users, unless `whole` is given.
    """
    deleted = [manifest for manifest in manifests if whole or manifest["kind"] not in KEPT]
    ending = [
        manifest
        for manifest in deleted
        if manifest["kind"] in ENDING and await _there(client, await _plain(client, manifest), manifest)
    ]
    namespace = next(manifest["metadata"]["name"] for manifest in manifests if manifest["kind"] == NAMESPACE)
    await remove_each(client, [manifest for manifest in deleted if manifest["kind"] != NAMESPACE], say)
    for name in LEASES:
        await client.delete(api_resource.LEASES, name, namespace)
    await _let_pods_go(client, say)
    await remove_each(client, [manifest for manifest in deleted if manifest["kind"] == NAMESPACE], say)
    for manifest in ending:
        await _until_gone(client, manifest, say)


async def remove_each(client: ApiClient, gone: Sequence[Manifest], say: Say) -> None:
    """Delete those of the objects that exist, in reverse order."""
    for manifest in reversed(gone):
        try:
            resource = await _plain(client, manifest)
        except errors.NotFound:
            continue  # The cluster does not even have the kind.
        objects = await _objects_of(client, manifest) if manifest["kind"] == DEFINITION else 0
        if await client.delete(resource, manifest["metadata"]["name"], manifest["metadata"].get("namespace", "")):
            with_them = f" with {objects} object{'s' * (objects > 1)}" if objects else ""
            say(f"{called(manifest)} {'is being deleted' if manifest['kind'] in ENDING else 'is deleted'}{with_them}")


async def _objects_of(client: ApiClient, definition: Manifest) -> int:
    """Return how many objects are deleted with a definition.

    Listing them also makes the API server read them. Otherwise it may have to read them for the first time when the definition is
    being deleted ("storage is (re)initializing"), and then it gives up for five minutes.
    """
    spec = definition["spec"]
    version = next(item["name"] for item in spec["versions"] if item["storage"])
    names, namespaced = spec["names"], spec["scope"] == "Namespaced"
    resource: ApiResource[Manifest] = ApiResource(dict, spec["group"], version, names["plural"], names["kind"], namespaced)
    try:
        return len((await client.list(resource)).items)
    except errors.NotFound:
        return 0


async def _until_gone(client: ApiClient, one: Manifest, say: Say) -> None:
    """Wait for an object that disappears only after everything in it has been deleted."""
    resource = await _plain(client, one)
    conditions: list[dict[str, Any]] = []
    try:
        async with asyncio.timeout(END_PATIENCE):
            while (there := await _there(client, resource, one)) is not None:
                conditions = there.get("status", {}).get("conditions") or []
                await asyncio.sleep(LOOK_EVERY)
    except TimeoutError as error:
        words = [
            condition.get("message", "")
            for condition in conditions
            if condition["status"] == "True" and condition["type"] not in SERVED
        ]
        why = f": {'; '.join(words)}" if words else ""
        message = f"{called(one)} is being deleted and still exists after {END_PATIENCE:g} s{why}"
        fix = (
            f"it disappears by itself once that is finished: kubectl get {one['kind'].lower()} {one['metadata']['name']} -o yaml"
        )
        raise UnavailableError(message, fix=fix) from error
    say(f"{called(one)} is deleted")


async def _let_pods_go(client: ApiClient, say: Say) -> None:
    """Remove our finalizers from pods: no operator remains to record how they end."""
    listed = await client.list(api_resource.PODS, labels=f"{annotation.MANAGED_BY}={annotation.MANAGER}")
    for pod in listed.items:
        others = [name for name in pod.metadata.finalizers if not name.startswith(f"{annotation.DOMAIN}/")]
        if len(others) == len(pod.metadata.finalizers):
            continue
        test = {"op": "test", "path": "/metadata/uid", "value": pod.metadata.uid}
        change = {"op": "replace", "path": "/metadata/finalizers", "value": others}
        try:
            await client.patch(api_resource.PODS, pod.metadata.name, pod.metadata.namespace, [test, change])
        except errors.NotFound:
            continue
        say(f"Pod {pod.metadata.namespace}/{pod.metadata.name} is released: its finalizers are removed")


def called(one: Manifest) -> str:
    """Return the name for messages: `Deployment fairway-system/fairway-operator`."""
    metadata = one["metadata"]
    return (
        f"{one['kind']} {metadata['namespace']}/{metadata['name']}"
        if "namespace" in metadata
        else f"{one['kind']} {metadata['name']}"
    )


async def _plain(client: ApiClient, one: Manifest) -> ApiResource[dict[str, Any]]:
    """Return the resource of an object, to be read as plain data whatever its kind is."""
    typed: ApiResource[Any] = await client.resource(one["apiVersion"], one["kind"])
    return ApiResource(dict, typed.group, typed.version, typed.plural, typed.kind, typed.namespaced)


async def _served(client: ApiClient, name: str) -> None:
    """Wait until the API server serves a newly defined kind."""
    try:
        async with asyncio.timeout(PATIENCE):
            while not (await client.get(api_resource.DEFINITIONS, name)).established:
                await asyncio.sleep(LOOK_EVERY)
    except TimeoutError as error:
        message = f"the API server does not serve {name} after {PATIENCE:g} s"
        raise UnavailableError(message, fix=f"see `kubectl describe crd {name}`") from error
