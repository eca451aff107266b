"""Health and metrics endpoint of a process in the cluster, for kubelets and for Prometheus.

`/healthz` answers as long as the process's event loop runs. `/readyz` answers 200 once all mirrors are complete, whether this
process leads or stands by. `/metrics` returns the Prometheus text format.
"""

from __future__ import annotations

import asyncio
import logging
import resource
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fairway.app.loop.fault_register import FaultRegister
from fairway.engines.kubernetes.client.informer import Informer
from fairway.engines.kubernetes.leader_election import LeaderElection
from fairway.state.fault import WorkFault

log = logging.getLogger("fairway.health")

PORT = "FAIRWAY_HEALTH_PORT"
"""Environment variable with the port to listen on; without it there is no endpoint."""
PATIENCE = 10.0
"""Seconds in which a request must have arrived."""
LONGEST = 8192
"""Maximum size of a request, in bytes."""

_WORDS = {200: "OK", 400: "Bad Request", 404: "Not Found", 503: "Service Unavailable"}


@dataclass(frozen=True)
class HealthEndpoint:
    """The state of a process that its health endpoint reports."""

    mirrors: Sequence[Informer[Any]]
    """The kinds that the process watches."""
    leader: LeaderElection
    faults: FaultRegister | None = None
    """Work that currently fails."""

    def waits_for(self) -> tuple[str, ...]:
        """Return the kinds whose mirrors are not complete yet; empty when the process is ready."""
        return tuple(mirror.resource.plural for mirror in self.mirrors if not mirror.complete)

    def answer(self, path: str) -> tuple[int, str]:
        """Return the HTTP status and body for a path."""
        if path == "/healthz":
            return 200, "ok\n"
        if path == "/readyz":
            waiting = self.waits_for()
            if waiting:
                return 503, f"not ready: {', '.join(waiting)} not read yet\n"
            return 200, "leading\n" if self.leader.leading else "standing by\n"
        if path == "/metrics":
            return 200, self.metrics()
        return 404, "there are /healthz, /readyz and /metrics\n"

    def _failing(self) -> tuple[WorkFault, ...]:
        return self.faults.all() if self.faults is not None else ()

    def metrics(self) -> str:
        """Return the metrics in the text format of Prometheus."""
        usage = resource.getrusage(resource.RUSAGE_SELF)
        lines = [
            *_metric(
                "fairway_leading",
                "gauge",
                "Whether this process is the leader (1) or stands by (0).",
                {"": int(self.leader.leading)},
            ),
            *_metric(
                "fairway_ready", "gauge", "Whether the copies of all watched kinds are complete.", {"": int(not self.waits_for())}
            ),
            *_metric(
                "fairway_mirrored_objects",
                "gauge",
                "Objects of the cluster that are watched, by kind.",
                {f'{{kind="{mirror.resource.plural}"}}': len(mirror) for mirror in self.mirrors},
            ),
            *_metric(
                "fairway_faults",
                "gauge",
                "Failed tries of work that is being retried, by its object.",
                {f'{{subject="{fault.subject}",work="{fault.work}"}}': fault.tries for fault in self._failing()},
            ),
            *_metric("process_cpu_seconds_total", "counter", "CPU time used, in seconds.", {"": usage.ru_utime + usage.ru_stime}),
            *_metric("process_peak_memory_bytes", "gauge", "Peak memory use, in bytes.", {"": usage.ru_maxrss * 1024}),
        ]
        return "\n".join([*lines, ""])


def _metric(name: str, kind: str, help: str, values: Mapping[str, float]) -> list[str]:
    return [f"# HELP {name} {help}", f"# TYPE {name} {kind}", *(f"{name}{labels} {value:g}" for labels, value in values.items())]


async def answer(port: str, health: HealthEndpoint) -> None:
    """Serve the endpoint on this port until cancelled; return at once where no port is given."""
    if not port:
        return

    async def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(PATIENCE):
                writer.write(_response(*health.answer(await _asked(reader))))
                await writer.drain()
        except (OSError, TimeoutError, ValueError, asyncio.IncompleteReadError, asyncio.LimitOverrunError) as error:
            log.debug("a request was not answered: %s", error)
        finally:
            writer.close()

    server = await asyncio.start_server(take, sock=_listening(int(port)), limit=LONGEST)
    log.info("serving /healthz, /readyz and /metrics on port %s", server.sockets[0].getsockname()[1])
    async with server:
        await server.serve_forever()


def _listening(port: int) -> socket.socket:
    """Open a listening socket for IPv4 and IPv6, where the machine has both."""
    if socket.has_dualstack_ipv6():
        return socket.create_server(("", port), family=socket.AF_INET6, dualstack_ipv6=True)
    return socket.create_server(("", port))


async def _asked(reader: asyncio.StreamReader) -> str:
    """Read a request and return its path; the rest of it is ignored."""
    head = await reader.readuntil(b"\r\n\r\n")
    words = head.split(b"\r\n", 1)[0].split()
    if len(words) != 3 or words[0] not in (b"GET", b"HEAD"):
        message = "not a GET or HEAD request"
        raise ValueError(message)
    return words[1].decode("ascii", "replace").partition("?")[0]


def _response(status: int, text: str) -> bytes:
    body = text.encode()
    head = f"HTTP/1.1 {status} {_WORDS[status]}\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n"
    return f"{head}Content-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode() + body
