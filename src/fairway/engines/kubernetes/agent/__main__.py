"""`python -m fairway.engines.kubernetes.agent`: run the agent of a node until a signal ends it."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from pathlib import Path

from fairway.app.system import crash_point
from fairway.app.system.clock import SystemClock
from fairway.devices.device_probe import pick_probe
from fairway.engines.kubernetes.agent.agent import AgentSettings, NodeAgent
from fairway.engines.kubernetes.client import kubeconfig
from fairway.engines.kubernetes.client.connection import ApiConnection
from fairway.engines.kubernetes.shutdown_signal import until_told
from fairway.errors import FairwayError


async def watch_over(settings: AgentSettings) -> None:
    """Watch the devices of the node until a signal ends it. Pods keep running, and what was reported remains."""
    clock = SystemClock()
    # Simulated devices have names of their own on every node.
    probe = pick_probe(os.environ.get("FAIRWAY_FAKE_GPUS", ""), Path(settings.node))
    try:
        async with ApiConnection(kubeconfig.find(os.environ), clock) as connection:
            await until_told(NodeAgent(connection, clock, probe, settings).run())
    finally:
        probe.close()


def main() -> int:
    """Run the program."""
    logging.basicConfig(
        level=os.environ.get("FAIRWAY_LOG_LEVEL", "INFO").upper(),
        format="%(asctime)s %(levelname)s %(name)s %(message)s",
        stream=sys.stderr,
    )
    try:
        crash_point.arm(os.environ.get("FAIRWAY_CRASH_AT", ""))
        asyncio.run(watch_over(AgentSettings.from_environment(os.environ)))
    except FairwayError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
