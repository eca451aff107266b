"""Waits until what was installed is up, and says what is not and why."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from fairway.engines.kubernetes.client import errors, inside, kinds
from fairway.engines.kubernetes.client.api import Client
from fairway.engines.kubernetes.client.paths import Resource
from fairway.engines.kubernetes.install import standing
from fairway.engines.kubernetes.install.applying import Manifest, Say, called
from fairway.engines.kubernetes.install.standing import Standing
from fairway.engines.kubernetes.objects import Event, Pod
from fairway.errors import FairwayError, UnavailableError

WAITED_FOR = ("Deployment", "DaemonSet", "APIService")
PAUSE = 0.5
"""Seconds between two looks."""
REMIND = 20.0
"""Seconds without a change after which it is said what is still waited for."""


async def wait_until_up(client: Client, manifests: Sequence[Manifest], say: Say, limit: float) -> None:
    """Look until all of it is up, and say each change.

    Raises:
        UnavailableError: the limit has passed; it names what is not up, and why.
    """
    parts = [one for one in manifests if one["kind"] in WAITED_FOR]
    told: set[tuple[str, str, str]] = set()
    waiting = parts
    try:
        async with asyncio.timeout(limit):
            clock = asyncio.get_running_loop().time
            spoken = clock()
            while waiting := [one for one in parts if not await _is_up(client, one, told, say)]:
                if clock() - spoken > REMIND:
                    spoken = clock()
                    say(f"still waiting for {', '.join(called(one) for one in waiting)}")
                await asyncio.sleep(PAUSE)
    except TimeoutError:
        reasons = [f"{called(one)}: {await _why(client, one)}" for one in waiting]
        message = "\n  ".join([f"everything is applied, and after {limit:g} s this is not up:", *reasons])
        raise UnavailableError(message, fix=_fix(waiting)) from None


async def _is_up(client: Client, one: Manifest, told: set[tuple[str, str, str]], say: Say) -> bool:
    """Whether it is. Each state is said once: a kubelet tries again and again, and says so in turn."""
    found = await _standing(client, one)
    reason, why = ("", "") if found.up else await _trouble(client, one)
    if (called(one), found.words, reason) not in told:
        told.add((called(one), found.words, reason))
        words = f"{found.words}{_joined(why)}"
        say(f"{called(one)} {'is up' if found.up else 'is not up yet'}{f': {words}' if words else ''}")
    return found.up


async def _standing(client: Client, one: Manifest) -> Standing:
    name, namespace = one["metadata"]["name"], one["metadata"].get("namespace", "")
    try:
        if one["kind"] == "Deployment":
            return standing.of_deployment(await client.get(kinds.DEPLOYMENTS, name, namespace))
        resource: Resource[dict[str, Any]] = await client.resource(one["apiVersion"], one["kind"])
        found = await client.get(resource, name, namespace)
    except errors.NotFound:
        return Standing(False, "somebody has taken it away")
    return standing.of_daemon_set(found) if one["kind"] == "DaemonSet" else standing.of_api(found)


async def _trouble(client: Client, one: Manifest) -> tuple[str, str]:
    return standing.trouble(await _pods(client, one), await _events(client, one))


async def _why(client: Client, one: Manifest) -> str:
    """All that is known once the time is over, with the last words of a process that runs and does not answer."""
    try:
        words = (await _standing(client, one)).words + _joined((await _trouble(client, one))[1])
        # Of several that do the same one is enough.
        for pod in standing.newest(await _pods(client, one))[:1]:
            words += await _last_words(client, pod)
    except FairwayError as error:
        return f"it cannot be looked at: {error.message}"
    return words


async def _pods(client: Client, one: Manifest) -> tuple[Pod, ...]:
    """The pods of a process that are to stay; none where it has no pods, or they may not be seen."""
    if one["kind"] == "APIService":
        return ()
    labels = ",".join(f"{key}={value}" for key, value in one["spec"]["selector"]["matchLabels"].items())
    try:
        listed = await client.list(kinds.PODS, one["metadata"]["namespace"], labels=labels)
    except errors.Forbidden:
        return ()
    return tuple(pod for pod in listed.items if not pod.metadata.deletion_timestamp)


async def _events(client: Client, one: Manifest) -> tuple[Event, ...]:
    if one["kind"] == "APIService":
        return ()
    try:
        return (await client.list(kinds.EVENTS, one["metadata"]["namespace"])).items
    except errors.Forbidden:
        return ()


async def _last_words(client: Client, pod: Pod) -> str:
    """What a pod that is not ready said last; of one that starts again and again, before its last end."""
    status = next((each for each in pod.status.container_statuses if not each.ready), None)
    if status is None or (status.state.waiting is not None and not status.restart_count):
        return ""
    wish = inside.LogWish(tail=50, previous=status.state.waiting is not None)
    ended, log = standing.ended(status), b""
    try:
        async for chunk in inside.logs(client.connection, pod.metadata.name, pod.metadata.namespace, wish):
            log += chunk
    except FairwayError as error:
        return f"{ended}; its log cannot be read: {error.message}"
    return ended + standing.last_words(log)


def _joined(words: str) -> str:
    return f"; {words}" if words else ""


def _fix(waiting: Sequence[Manifest]) -> str:
    namespaces = {one["metadata"]["namespace"] for one in waiting if "namespace" in one["metadata"]}
    shown = f"kubectl -n {min(namespaces)} get pods,events" if namespaces else "kubectl describe apiservice"
    return f"mend that and say it again, or wait longer (--timeout); `{shown}` shows more"
