"""The router of a service as a pod: `python -m fairway.serving.router.pod`.

It starts with the plan in the file, which the cluster keeps, and then follows the plans sent to its control port. So it keeps
serving, and restarts, even while the sender of plans is down. SIGTERM: stop accepting and finish the requests in flight.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import os
import resource
import secrets
import signal
import socket
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import uvloop

from fairway.app.system.clock import SystemClock
from fairway.errors import BugError
from fairway.runtime.secured.pod_certificate import PodCertificate
from fairway.serving.router.access.connection_acceptor import ConnectionAcceptor
from fairway.serving.router.access.key_file import parse_keys
from fairway.serving.router.control_socket import RouterControlSocket
from fairway.serving.router.http1_client import Http1ClientConnection
from fairway.serving.router.observe.access_log import RequestLog, write_to
from fairway.serving.router.observe.service_observer import ServiceObserver
from fairway.serving.router.routing.router_state import RouterLimits, RouterState
from fairway.serving.router.wire_format import decode_plan
from fairway.serving.span_tracer import tracer_of
from fairway.state.serving.route import RoutePlan, outcome_token

TOKEN = "FAIRWAY_ROUTER_TOKEN"
"""The environment variable with the token that senders of plans must present."""
_SWEEP_SECONDS = 1.0
_ENDING_SECONDS = 0.05
"""Interval at which an ending router checks whether the last connection is closed."""


@dataclass(frozen=True, slots=True)
class RouterPodOptions:
    """The options of the pod."""

    plan: Path
    port: int
    control: int
    token: str
    keys: Path | None = None
    """The file with the stored records of the API keys; None: no keys are required."""
    operator: str = ""
    """The address that issues the certificate of the control port; empty: the port is without TLS."""


def read_orders(arguments: list[str], environment: Mapping[str, str]) -> RouterPodOptions:
    """Parse the command line."""
    parser = argparse.ArgumentParser(prog="python -m fairway.serving.router.pod", description=__doc__, allow_abbrev=False)
    parser.add_argument("--plan", type=Path, required=True, help="the file with the initial route plan")
    parser.add_argument("--port", type=int, required=True, help="the port for requests")
    parser.add_argument("--control", type=int, required=True, help="the port for route plans")
    parser.add_argument(
        "--operator", default="", help="the address (https) that issues the certificate of the control port; without it no TLS"
    )
    parser.add_argument("--keys", type=Path, help="the file with the hashes of the initial API keys")
    options = parser.parse_args(arguments)
    token = environment.get(TOKEN, "")
    if not token:
        parser.error(f"{TOKEN} is not set; without it any client could change where requests go")
    return RouterPodOptions(options.plan, options.port, options.control, token, options.keys, options.operator)


class RouterPod:
    """The router process of a pod."""

    def __init__(self, orders: RouterPodOptions, limits: RouterLimits) -> None:
        self._orders = orders
        self._ended = asyncio.Event()
        self._desk = RouterState(secrets.token_hex(6), limits, self._wake)
        # Clusters collect logs from the output of pods.
        log = RequestLog(1.0, write_to(sys.stdout.fileno()), SystemClock().now, secrets.randbelow(1000) / 1000)
        self._observer = self._desk.observer = ServiceObserver(self._desk, log, tracer_of(os.environ, "fairway-router"))
        token = outcome_token(orders.token)
        self._desk.outcome_token = lambda: token
        self._listener = socket.create_server(("", orders.port), backlog=4096)
        self._listener.setblocking(False)
        self._control = RouterControlSocket(self._desk, self._listener)
        self._leaf = PodCertificate(orders.operator) if orders.operator else None
        self._acceptor = ConnectionAcceptor(self._listener, lambda: Http1ClientConnection(self._desk))
        self._desk.followed = self._acceptor.follow

    async def run(self) -> None:
        """Serve until SIGTERM arrives."""
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGTERM, self._drain)
        self._read_plan()
        tls = self._leaf.context if self._leaf is not None else None
        control = await self._control.start_at_port(self._orders.control, self._orders.token, tls)
        port = self._listener.getsockname()[1]
        await self._acceptor.start()
        sys.stderr.write(f"listening for requests on port {port}, for plans on port {control}\n")
        sys.stderr.flush()
        gc.freeze()
        tasks = [loop.create_task(self._sweep())]
        tasks += [loop.create_task(self._leaf.keep())] if self._leaf is not None else []
        try:
            await self._ended.wait()
        finally:
            for task in tasks:
                task.cancel()
            self._control.close()
            await self._observer.close()

    def _read_plan(self) -> None:
        try:
            self._desk.put(self._with_keys(decode_plan(self._orders.plan.read_bytes())))
        except (OSError, BugError) as error:
            sys.stderr.write(f"the initial plan cannot be read: {error}\n")

    def _with_keys(self, plan: RoutePlan) -> RoutePlan:
        """Return the plan with the keys of the Secret: the ConfigMap has none. Without the file no key is valid."""
        if plan.access is None or not plan.access.keys_required or self._orders.keys is None:
            return plan
        try:
            keys = parse_keys(self._orders.keys.read_bytes())
        except (OSError, ValueError) as error:
            sys.stderr.write(f"the API keys cannot be read, so all requests are refused until a plan arrives: {error}\n")
            return plan
        return replace(plan, access=replace(plan.access, keys=tuple(key.rule for key in keys)))

    def _wake(self) -> None:
        self._control.wake()

    def _drain(self) -> None:
        if self._desk.draining:
            return
        self._desk.draining = True
        self._acceptor.close()
        self._desk.drain()
        loop = asyncio.get_running_loop()
        loop.call_later(self._desk.limits.drain, self._ended.set)
        loop.call_soon(self._look_for_the_last)

    def _look_for_the_last(self) -> None:
        """End once the last connection is closed."""
        if self._desk.guests or self._acceptor.pending:
            asyncio.get_running_loop().call_later(_ENDING_SECONDS, self._look_for_the_last)
        else:
            self._ended.set()

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(_SWEEP_SECONDS)
            self._desk.sweep()
            self._acceptor.files.look()


def main(arguments: list[str]) -> None:
    """Run the router."""
    orders = read_orders(arguments, os.environ)
    # Every request in flight takes two descriptors.
    _, hard_limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard_limit, hard_limit))

    async def serve() -> None:
        await RouterPod(orders, RouterLimits()).run()

    uvloop.run(serve())


if __name__ == "__main__":
    main(sys.argv[1:])
