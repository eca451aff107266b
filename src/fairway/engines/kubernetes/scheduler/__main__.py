"""`python -m fairway.engines.kubernetes.scheduler`: run the scheduler until a signal ends it."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import sys

import uvloop

from fairway.app.system import crash_point
from fairway.app.system.clock import SystemClock
from fairway.engines.kubernetes import health_endpoint
from fairway.engines.kubernetes.client import kubeconfig
from fairway.engines.kubernetes.client.connection import ApiConnection
from fairway.engines.kubernetes.scheduler.process import SchedulerProcess
from fairway.engines.kubernetes.shutdown_signal import until_told
from fairway.errors import FairwayError


async def schedule() -> None:
    """Run the scheduler until a signal ends it. Bound pods stay where they are."""
    clock = SystemClock()
    identity = f"{os.environ.get('HOSTNAME') or socket.gethostname()}_{os.getpid()}"
    namespace = os.environ.get("FAIRWAY_SYSTEM_NAMESPACE") or "fairway-system"
    async with ApiConnection(kubeconfig.find(os.environ), clock) as connection:
        process = SchedulerProcess(connection, clock, namespace, identity, os.environ.get(health_endpoint.PORT, ""))
        await until_told(process.run())


def main() -> int:
    """The entry point."""
    logging.basicConfig(
        level=os.environ.get("FAIRWAY_LOG_LEVEL", "INFO").upper(),
        format="%(asctime)s %(levelname)s %(name)s %(message)s",
        stream=sys.stderr,
    )
    try:
        crash_point.arm(os.environ.get("FAIRWAY_CRASH_AT", ""))
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(schedule())
    except FairwayError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
