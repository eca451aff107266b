"""`python -m fairway.runtime.secured.load --operator URL --port PORT --replica PORT`: report a replica's load over TLS.

It runs next to the replica, in the same pod, and queries it over loopback. The replica's answer crosses the network encrypted,
and the pod's certificate identifies the pod to the operator. The replica needs neither key nor token, whatever image it uses.
Standard library only, Python 3.9 and newer.
"""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys

from fairway.runtime.secured.pod_certificate import PodCertificate
from fairway.runtime.secured.tls_listener import TlsListener

PATH = b"/fairway/load"
HOST = "127.0.0.1"
LARGEST = 64 << 10
"""Maximum size in bytes of a forwarded answer."""
SILENCE = 3.0
"""Timeout in seconds for an answer of the replica."""
IDLE = 60.0
"""Seconds without a request after which a connection is closed."""
_HEAD = 8192


class LoadReporter:
    """Forwards the load request and no other: the port gives no other access to the replica."""

    def __init__(self, replica: int) -> None:
        self._replica = replica

    async def met(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer requests on one connection until it is closed or idle."""
        loop = asyncio.get_running_loop()
        idle = loop.call_later(IDLE, writer.transport.abort)
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                idle.cancel()
                idle = loop.call_later(IDLE, writer.transport.abort)
                is_load_request = head.split(b" ", 2)[:2] == [b"GET", PATH]
                status, body = await self._ask() if is_load_request else (b"404 Not Found", b"")
                writer.write(b"HTTP/1.1 %b\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % (status, len(body)))
                writer.write(body)
                await writer.drain()
        except (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            return  # The client is gone, or does not send a request.
        finally:
            idle.cancel()
            writer.close()

    async def _ask(self) -> tuple[bytes, bytes]:
        """Return status and body of the replica's answer; 503 if there is none in time."""
        try:
            reader, writer = await asyncio.open_connection(HOST, self._replica, limit=LARGEST)
        except OSError:
            return b"503 Service Unavailable", b""
        late = asyncio.get_running_loop().call_later(SILENCE, writer.transport.abort)
        try:
            writer.write(b"GET %b HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n" % PATH)
            head = await reader.readuntil(b"\r\n\r\n")
            body = bytearray()
            while len(body) <= LARGEST:
                chunk = await reader.read(LARGEST)
                if not chunk:
                    break
                body += chunk
            if head.split(b" ", 2)[1:2] != [b"200"] or len(body) > LARGEST:
                return b"503 Service Unavailable", b""
            return b"200 OK", bytes(body)
        except (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            return b"503 Service Unavailable", b""
        finally:
            late.cancel()
            writer.close()


async def serve(operator: str, port: int, replica: int) -> None:
    """Answer requests until SIGTERM or SIGINT."""
    leaf, ended, loop = PodCertificate(operator), asyncio.Event(), asyncio.get_running_loop()
    for signal_number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(signal_number, ended.set)
    listener = TlsListener(leaf.context, LoadReporter(replica).met, _HEAD)
    await listener.open(port)
    renewal = loop.create_task(leaf.keep())
    try:
        await ended.wait()
    finally:
        renewal.cancel()
        listener.close()


def main(arguments: list[str] | None = None) -> int:
    """Run the program."""
    parser = argparse.ArgumentParser(prog="fairway-load", description="Report the load of a replica over TLS.")
    parser.add_argument("--operator", required=True, help="the operator that issues the certificate (https)")
    parser.add_argument("--port", type=int, required=True, help="the port on which the operator requests the load")
    parser.add_argument("--replica", type=int, required=True, help="the port of the replica, in this pod")
    options = parser.parse_args(arguments)
    asyncio.run(serve(options.operator, options.port, options.replica))
    return 0


if __name__ == "__main__":
    sys.exit(main())
