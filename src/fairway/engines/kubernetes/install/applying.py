"""Carries an installation out: everything is tried first, then applied; and taken away again, all of it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from fairway.engines.kubernetes import marks
from fairway.engines.kubernetes.client import errors, kinds
from fairway.engines.kubernetes.client.api import Client
from fairway.engines.kubernetes.client.paths import Resource
from fairway.engines.kubernetes.install.shape import VERSION_LABEL
from fairway.errors import ConflictError, FairwayError, RefusedError, UnavailableError
from fairway.version import VERSION

MANAGER = "fairway-install"
PATIENCE = 60.0
"""Seconds until a kind that was defined must be served."""
DEFINITION = "CustomResourceDefinition"
NAMESPACE = "Namespace"
CLAIM = "PersistentVolumeClaim"
KEPT = (DEFINITION, NAMESPACE, CLAIM)
"""Holds what is everybody's: taken away only when that is said."""
TOGETHER = 8
"""Objects that are tried at the same time."""
TOLD = 5
"""Refusals that are told one by one."""
ENDING = (DEFINITION, NAMESPACE)
"""Goes when everything in it has gone."""
END_PATIENCE = 120.0
"""Seconds until it must have."""
LOOK_EVERY = 0.1
"""Seconds between two looks whether something is so."""
SERVED = ("Established", "NamesAccepted")
"""Conditions of a definition that say nothing of its end."""
LEASES = ("fairway-operator", "fairway-scheduler")
"""What the processes make for themselves."""

Say = Callable[[str], None]
Manifest = dict[str, Any]


async def apply_all(client: Client, manifests: Sequence[Manifest], say: Say, left: Iterable[Manifest] = ()) -> None:
    """Make it so, in order; what is so already stays, and what another installation `left` goes.

    Everything is tried first without changing anything: where one object would be refused nothing is changed, and all refusals
    are told. An installation by a newer version is left alone.
    """
    await _refuse_older(client, manifests)
    made = await _try_all(client, manifests)
    for done, one in enumerate(manifests):
        try:
            changed = await _apply(client, one) or one in made
        except FairwayError as error:
            message = f"{called(one)}: {error.message}; {done} of {len(manifests)} objects are as they should be"
            kind = UnavailableError if isinstance(error, UnavailableError) else RefusedError
            raise kind(message, fix="mend that and say it again: it goes on where it stopped") from error
        say(f"{called(one)} {'is there' if changed else 'was so already'}")
        if one["kind"] == DEFINITION:
            await _served(client, one["metadata"]["name"])
    wanted = {called(one) for one in manifests}
    await remove_each(client, [one for one in left if called(one) not in wanted and one["kind"] not in KEPT], say)


async def _apply(client: Client, one: Manifest) -> bool:
    """Whether it changed anything."""
    resource = await _plain(client, one)
    before = await _there(client, resource, one)
    after = await client.apply(resource, one, manager=MANAGER)
    return before is None or _said(before) != _said(after)


def _said(one: Manifest) -> Manifest:
    """An object without what controllers and the API server itself write."""
    metadata = {name: value for name, value in one["metadata"].items() if name not in ("managedFields", "resourceVersion")}
    return {**{name: value for name, value in one.items() if name != "status"}, "metadata": metadata}


async def _there(client: Client, resource: Resource[dict[str, Any]], one: Manifest) -> Manifest | None:
    """The object as it is; None where there is none, or none that the caller may see."""
    try:
        return await client.get(resource, one["metadata"]["name"], one["metadata"].get("namespace", ""))
    except (errors.NotFound, errors.Forbidden):
        return None


async def _refuse_older(client: Client, manifests: Sequence[Manifest]) -> None:
    """Older definitions would take fields away from objects that have them."""
    for one in manifests:
        if one["kind"] != DEFINITION:
            continue
        there = await _there(client, await _plain(client, one), one)
        if there is None:
            continue  # Whoever may not even look is refused in the next step, in the API server's own words.
        version = there["metadata"].get("labels", {}).get(VERSION_LABEL, "")
        if _number(version) > _number(VERSION):
            message = f"the cluster has Fairway {version}, and this is {VERSION}: {one['metadata']['name']} would lose fields"
            raise ConflictError(message, fix=f"use Fairway {version} or newer: pip install -U fairway")


def _number(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".") if part.isdecimal())


async def _try_all(client: Client, manifests: Sequence[Manifest]) -> list[Manifest]:
    """Let the API server say what it would do. The namespace is made for that, and goes again when anything is refused.

    What was made comes back.
    """
    made = [one for one in manifests if one["kind"] == NAMESPACE and not await _there(client, await _plain(client, one), one)]
    try:
        refused = await _refusals(client, made, dry_run=False)
        refused += await _refusals(client, [one for one in manifests if one not in made], dry_run=True)
    except FairwayError:
        await remove_each(client, made, lambda _: None)
        raise
    # Where a namespace was refused, what would lie in it is not found: that says nothing new.
    refused = [each for each in refused if not isinstance(each[1], errors.NotFound)] or refused
    if not refused:
        return made
    await remove_each(client, [one for one in made if one not in [each for each, _ in refused]], lambda _: None)
    told = [f"{called(one)}: {error.message}" for one, error in refused[:TOLD]]
    more = [f"and {len(refused) - TOLD} more"] if len(refused) > TOLD else []
    raise RefusedError(f"nothing was changed: {'; '.join([*told, *more])}", fix=refused[0][1].fix)


async def _refusals(client: Client, manifests: Iterable[Manifest], *, dry_run: bool) -> list[tuple[Manifest, FairwayError]]:
    """What the API server does not take, in order. Raises when it does not answer."""
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

    found = await asyncio.gather(*(attempt(one) for one in manifests))
    return [each for each in found if each is not None]


async def remove_all(client: Client, manifests: Sequence[Manifest], say: Say, *, whole: bool = False) -> None:
    """Take it away, the last first, and wait until it has gone.

    Kinds, record and namespace stay, and with them everybody's objects, unless all must go.
    """
    gone = [one for one in manifests if whole or one["kind"] not in KEPT]
    ending = [one for one in gone if one["kind"] in ENDING and await _there(client, await _plain(client, one), one)]
    namespace = next(one["metadata"]["name"] for one in manifests if one["kind"] == NAMESPACE)
    await remove_each(client, [one for one in gone if one["kind"] != NAMESPACE], say)
    for name in LEASES:
        await client.delete(kinds.LEASES, name, namespace)
    await _let_pods_go(client, say)
    await remove_each(client, [one for one in gone if one["kind"] == NAMESPACE], say)
    for one in ending:
        await _until_gone(client, one, say)


async def remove_each(client: Client, gone: Sequence[Manifest], say: Say) -> None:
    """Take these away, the last first, where they are there."""
    for one in reversed(gone):
        try:
            resource = await _plain(client, one)
        except errors.NotFound:
            continue  # The cluster does not even know the kind.
        objects = await _objects_of(client, one) if one["kind"] == DEFINITION else 0
        if await client.delete(resource, one["metadata"]["name"], one["metadata"].get("namespace", "")):
            with_them = f" with {objects} object{'s' * (objects > 1)}" if objects else ""
            say(f"{called(one)} {'goes' if one['kind'] in ENDING else 'is gone'}{with_them}")


async def _objects_of(client: Client, definition: Manifest) -> int:
    """How many objects go with a definition.

    Nobody may have asked for them yet, and the API server gives up for five minutes where it has to read them for the first time
    when the definition is being deleted ("storage is (re)initializing"): read here, they are ready to be read then.
    """
    spec = definition["spec"]
    version = next(one["name"] for one in spec["versions"] if one["storage"])
    names, namespaced = spec["names"], spec["scope"] == "Namespaced"
    resource: Resource[Manifest] = Resource(dict, spec["group"], version, names["plural"], names["kind"], namespaced)
    try:
        return len((await client.list(resource)).items)
    except errors.NotFound:
        return 0


async def _until_gone(client: Client, one: Manifest, say: Say) -> None:
    """Wait for what goes with everything in it."""
    resource = await _plain(client, one)
    conditions: list[dict[str, Any]] = []
    try:
        async with asyncio.timeout(END_PATIENCE):
            while (there := await _there(client, resource, one)) is not None:
                conditions = there.get("status", {}).get("conditions") or []
                await asyncio.sleep(LOOK_EVERY)
    except TimeoutError as error:
        words = [each.get("message", "") for each in conditions if each["status"] == "True" and each["type"] not in SERVED]
        why = f": {'; '.join(words)}" if words else ""
        message = f"{called(one)} was asked to go and is still there after {END_PATIENCE:g} s{why}"
        fix = f"it goes by itself when that is over: kubectl get {one['kind'].lower()} {one['metadata']['name']} -o yaml"
        raise UnavailableError(message, fix=fix) from error
    say(f"{called(one)} is gone")


async def _let_pods_go(client: Client, say: Say) -> None:
    """Nobody is left to record how pods end, so that none may wait for that."""
    listed = await client.list(kinds.PODS, labels=f"{marks.MANAGED_BY}={marks.MANAGER}")
    for pod in listed.items:
        others = [name for name in pod.metadata.finalizers if not name.startswith(f"{marks.DOMAIN}/")]
        if len(others) == len(pod.metadata.finalizers):
            continue
        test = {"op": "test", "path": "/metadata/uid", "value": pod.metadata.uid}
        change = {"op": "replace", "path": "/metadata/finalizers", "value": others}
        try:
            await client.patch(kinds.PODS, pod.metadata.name, pod.metadata.namespace, [test, change])
        except errors.NotFound:
            continue
        say(f"Pod {pod.metadata.namespace}/{pod.metadata.name} is nobody's any more")


def called(one: Manifest) -> str:
    """`Deployment fairway-system/fairway-operator`."""
    metadata = one["metadata"]
    return (
        f"{one['kind']} {metadata['namespace']}/{metadata['name']}"
        if "namespace" in metadata
        else f"{one['kind']} {metadata['name']}"
    )


async def _plain(client: Client, one: Manifest) -> Resource[dict[str, Any]]:
    """Where the object lives; read as plain data, whatever it is."""
    known: Resource[Any] = await client.resource(one["apiVersion"], one["kind"])
    return Resource(dict, known.group, known.version, known.plural, known.kind, known.namespaced)


async def _served(client: Client, name: str) -> None:
    """Wait until the API server serves a kind that was defined just now."""
    try:
        async with asyncio.timeout(PATIENCE):
            while not (await client.get(kinds.DEFINITIONS, name)).established:
                await asyncio.sleep(LOOK_EVERY)
    except TimeoutError as error:
        message = f"the API server has not taken {name} within {PATIENCE:g} s"
        raise UnavailableError(message, fix=f"see `kubectl describe crd {name}`") from error
