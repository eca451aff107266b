"""Waits until an installation is up, and reports what is not and why."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from fairway.engines.kubernetes.client import api_resource, errors, pod_session
from fairway.engines.kubernetes.client.api import ApiClient
from fairway.engines.kubernetes.client.api_path import ApiResource
from fairway.engines.kubernetes.install import component_state
from fairway.engines.kubernetes.install.component_state import ComponentState
from fairway.engines.kubernetes.install.installer import Manifest, Say, called
from fairway.engines.kubernetes.objects import KubernetesEvent, Pod
from fairway.errors import FairwayError, UnavailableError

WAITED_FOR = ("Deployment", "DaemonSet", "APIService")
PAUSE = 0.5
"""Polling interval in seconds."""
REMIND = 20.0
"""Seconds without a change after which the parts that are not up are reported again."""


async def wait_until_up(client: ApiClient, manifests: Sequence[Manifest], say: Say, limit: float) -> None:
    """Poll until all parts are up, and report each change.

    Raises:
        UnavailableError: the time limit has passed; it names what is not up, and why.
    """
    parts = [manifest for manifest in manifests if manifest["kind"] in WAITED_FOR]
    reported: set[tuple[str, str, str]] = set()
    waiting = parts
    try:
        async with asyncio.timeout(limit):
            clock = asyncio.get_running_loop().time
            last_report = clock()
            while waiting := [manifest for manifest in parts if not await _is_up(client, manifest, reported, say)]:
                if clock() - last_report > REMIND:
                    last_report = clock()
                    say(f"still waiting for {', '.join(called(manifest) for manifest in waiting)}")
                await asyncio.sleep(PAUSE)
    except TimeoutError:
        reasons = [f"{called(manifest)}: {await _why(client, manifest)}" for manifest in waiting]
        message = "\n  ".join([f"everything is applied, but this is not up after {limit:g} s:", *reasons])
        raise UnavailableError(message, fix=_fix(waiting)) from None


async def _is_up(client: ApiClient, one: Manifest, told: set[tuple[str, str, str]], say: Say) -> bool:
    """Return whether an object is up.

    Each state is reported once, since a kubelet alternates between its states as it retries.
    """
    state = await _standing(client, one)
    reason, why = ("", "") if state.up else await _trouble(client, one)
    if (called(one), state.words, reason) not in told:
        told.add((called(one), state.words, reason))
        words = f"{state.words}{_joined(why)}"
        say(f"{called(one)} {'is up' if state.up else 'is not up yet'}{f': {words}' if words else ''}")
    return state.up


async def _standing(client: ApiClient, one: Manifest) -> ComponentState:
    name, namespace = one["metadata"]["name"], one["metadata"].get("namespace", "")
    try:
        if one["kind"] == "Deployment":
            return component_state.of_deployment(await client.get(api_resource.DEPLOYMENTS, name, namespace))
        resource: ApiResource[dict[str, Any]] = await client.resource(one["apiVersion"], one["kind"])
        current = await client.get(resource, name, namespace)
    except errors.NotFound:
        return ComponentState(False, "another client deleted it")
    return component_state.of_daemon_set(current) if one["kind"] == "DaemonSet" else component_state.of_api(current)


async def _trouble(client: ApiClient, one: Manifest) -> tuple[str, str]:
    return component_state.trouble(await _pods(client, one), await _events(client, one))


async def _why(client: ApiClient, one: Manifest) -> str:
    """Return all that is known after the timeout, with the last log lines of a process that runs but is not ready."""
    try:
        words = (await _standing(client, one)).words + _joined((await _trouble(client, one))[1])
        # Several pods do the same, so one is enough.
        for pod in component_state.newest(await _pods(client, one))[:1]:
            words += await _last_words(client, pod)
    except FairwayError as error:
        return f"it cannot be read: {error.message}"
    return words


async def _pods(client: ApiClient, one: Manifest) -> tuple[Pod, ...]:
    """Return the pods of a process that are not being deleted; none where it has no pods, or where they may not be listed."""
    if one["kind"] == "APIService":
        return ()
    labels = ",".join(f"{key}={value}" for key, value in one["spec"]["selector"]["matchLabels"].items())
    try:
        listed = await client.list(api_resource.PODS, one["metadata"]["namespace"], labels=labels)
    except errors.Forbidden:
        return ()
    return tuple(pod for pod in listed.items if not pod.metadata.deletion_timestamp)


async def _events(client: ApiClient, one: Manifest) -> tuple[KubernetesEvent, ...]:
    if one["kind"] == "APIService":
        return ()
    try:
        return (await client.list(api_resource.EVENTS, one["metadata"]["namespace"])).items
    except errors.Forbidden:
        return ()


async def _last_words(client: ApiClient, pod: Pod) -> str:
    """Return the last log lines of a pod that is not ready; of a pod that keeps restarting, those before its last end."""
    status = next((item for item in pod.status.container_statuses if not item.ready), None)
    if status is None or (status.state.waiting is not None and not status.restart_count):
        return ""
    request = pod_session.LogOptions(tail=50, previous=status.state.waiting is not None)
    ended, log = component_state.ended(status), b""
    try:
        async for chunk in pod_session.logs(client.connection, pod.metadata.name, pod.metadata.namespace, request):
            log += chunk
    except FairwayError as error:
        return f"{ended}; its log cannot be read: {error.message}"
    return ended + component_state.last_words(log)


def _joined(words: str) -> str:
    return f"; {words}" if words else ""


def _fix(waiting: Sequence[Manifest]) -> str:
    namespaces = {manifest["metadata"]["namespace"] for manifest in waiting if "namespace" in manifest["metadata"]}
    shown = f"kubectl -n {min(namespaces)} get pods,events" if namespaces else "kubectl describe apiservice"
    return f"correct that and run the command again, or wait longer (--timeout); `{shown}` shows more"
