"""Two processes and one lease: one leads, the other takes over when it is killed, stopped, or done."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from cluster.control_plane import ControlPlane

from fairway.engines.kubernetes.client import api_resource
from fairway.engines.kubernetes.client.api import ApiClient

CANDIDATE = Path(__file__).with_name("candidate.py")


class Candidate:
    """A process that competes for the lease and prints its state changes."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process

    async def says(self, word: str) -> str:
        """Wait until it prints a line with this word; return that line."""
        async with asyncio.timeout(90):
            while line := (await self.process.stdout.readline()).decode():
                if word in line:
                    return line
        raise AssertionError(f"it ended without {word!r}")

    def send(self, number: int) -> None:
        os.kill(self.process.pid, number)


@pytest.fixture
async def candidates(control_plane: ControlPlane, namespace: str) -> AsyncIterator:
    """Starts candidates by name."""
    made: list[Candidate] = []

    async def start(name: str) -> Candidate:
        command = [sys.executable, CANDIDATE, control_plane.kubeconfig(), namespace, name]
        made.append(Candidate(await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)))
        return made[-1]

    yield start
    for one in made:
        if one.process.returncode is None:
            one.send(signal.SIGKILL)
        await one.process.wait()


async def test_when_the_leader_is_killed_the_other_takes_over(candidates, client: ApiClient, namespace: str) -> None:
    first = await candidates("first")
    await first.says("leads")
    second = await candidates("second")
    await second.says("waits")
    first.send(signal.SIGKILL)
    await second.says("leads")
    lease = await client.get(api_resource.LEASES, "fairway", namespace)
    assert (lease.spec.holder_identity, lease.spec.lease_transitions) == ("second", 1)


async def test_a_leader_that_ends_gives_the_lease_back(candidates, client: ApiClient, namespace: str) -> None:
    first = await candidates("first")
    await first.says("leads")
    first.send(signal.SIGTERM)
    await first.says("gave back")
    lease = await client.get(api_resource.LEASES, "fairway", namespace)
    assert lease.spec.holder_identity == ""
    assert await first.process.wait() == 0


async def test_a_leader_that_slept_writes_nothing_and_ends(candidates, client: ApiClient, namespace: str) -> None:
    first = await candidates("first")
    await first.says("leads")
    second = await candidates("second")
    await second.says("waits")
    first.send(signal.SIGSTOP)
    await second.says("leads")
    written = (await client.get(api_resource.CONFIG_MAPS, "first", namespace)).metadata.resource_version
    first.send(signal.SIGCONT)
    assert "held by second" in await first.says("lost")
    assert await first.process.wait() == 3
    assert (await client.get(api_resource.CONFIG_MAPS, "first", namespace)).metadata.resource_version == written
