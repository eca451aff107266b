"""A process that competes for a lease and, while it leads, writes repeatedly."""

from __future__ import annotations

import asyncio
import signal
import sys
from pathlib import Path

from fairway.app.system.clock import SystemClock
from fairway.engines.kubernetes.client import api_resource, errors
from fairway.engines.kubernetes.client import kubeconfig as client_kubeconfig
from fairway.engines.kubernetes.client.api import ApiClient
from fairway.engines.kubernetes.client.connection import ApiConnection
from fairway.engines.kubernetes.leader_election import LeaderElection, LeadershipLostError, LeaseTiming

PACE = LeaseTiming(duration=5, deadline=3.5, period=0.5)


def say(text: str) -> None:
    print(text, flush=True)


async def main(kubeconfig: str, namespace: str, name: str) -> int:
    async with ApiConnection(client_kubeconfig.read_kubeconfig(Path(kubeconfig)).target(), SystemClock()) as connection:
        leader = LeaderElection(ApiClient(connection), namespace, "fairway", name, PACE)
        acting = ApiClient(connection, permit=lambda: leader.leading)

        async def work() -> None:
            count = 0
            while True:
                count += 1
                body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": namespace}}
                try:
                    await acting.apply(api_resource.CONFIG_MAPS, {**body, "data": {"count": str(count)}}, manager=name)
                except errors.NotPermitted:
                    say("refused")
                    await asyncio.Event().wait()
                if count == 1:
                    say("leads")
                await asyncio.sleep(0.05)

        say("waits")
        running = asyncio.create_task(leader.run(work))
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, running.cancel)
        try:
            await running
        except LeadershipLostError as error:
            say(f"lost: {error.message}")
            return 3
        except asyncio.CancelledError:
            say("gave back")
        return 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main(*sys.argv[1:])))
