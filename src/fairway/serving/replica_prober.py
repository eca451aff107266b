"""Polls replicas over HTTP for readiness and load.

Answers of a replica are not trusted: their size and time are bounded, and each number is checked.
"""

from __future__ import annotations

import asyncio
import json
import logging
import ssl
from collections.abc import Callable, Mapping
from dataclasses import replace

from fairway.app.port.port import Clock
from fairway.app.port.serving import ProbeResult, ProbeTarget
from fairway.runtime.secured.connection_pool import PodConnectionPool
from fairway.runtime.secured.pod_peer import PodPeer
from fairway.serving.http2 import single_request
from fairway.state.serving.batching_verdict import BatchingBasis, BatchingVerdict
from fairway.state.serving.load import ReplicaLoad
from fairway.units import number

log = logging.getLogger("fairway.services")

LOAD_PATH = "/fairway/load"
EAGER = 0.005
"""Poll interval in seconds for a replica that is not ready, for the first `EAGER_FOR` seconds: a client may be waiting for it."""
EAGER_FOR = 3.0
PATIENT = 0.05
"""Poll interval in seconds for a replica that is still not ready after `EAGER_FOR`."""
STEADY = 1.0
"""Poll interval in seconds for a ready replica."""
TIMEOUT = 3.0
LIMIT = 64 * 1024
"""Maximum bytes read of an answer."""
LONGEST_DETAIL = 500
"""Maximum characters kept of the reason for a batching verdict."""
FORGIVEN = 2
"""Consecutive failed polls tolerated before a ready replica counts as not ready. A refused connection counts at once."""


class HttpReplicaProber:
    """Polls each replica in a task of its own. Nothing that a replica does raises here."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._wake: Callable[[], None] = lambda: None
        self._targets: dict[str, ProbeTarget] = {}
        self._looking: dict[str, asyncio.Task[None]] = {}
        self._seen: dict[str, ProbeResult] = {}

    def start(self, wake: Callable[[], None]) -> None:
        """Set the callback `wake`, which is called from the event loop."""
        self._wake = wake

    def follow(self, targets: Mapping[str, ProbeTarget]) -> None:
        """Poll exactly these replicas, by name, from now on."""
        for name in [name for name, target in self._targets.items() if targets.get(name) != target]:
            self._looking.pop(name).cancel()
            del self._targets[name]
            self._seen.pop(name, None)
        for name, target in targets.items():
            if name not in self._targets:
                self._targets[name] = target
                self._looking[name] = asyncio.create_task(self._look(name, target))

    def seen(self) -> Mapping[str, ProbeResult]:
        """Return the last observation of each replica; replicas not polled yet are left out."""
        return self._seen

    async def close(self) -> None:
        """Stop all polling."""
        looking = list(self._looking.values())
        self.follow({})
        await asyncio.gather(*looking, return_exceptions=True)

    async def _look(self, name: str, target: ProbeTarget) -> None:
        started, missed = self._clock.now(), 0
        while True:
            try:
                ready, missed = await _answers(target), 0
            except ConnectionRefusedError:
                ready, missed = False, 0
            except (OSError, TimeoutError, ValueError, EOFError):
                missed += 1
                ready = self._was_ready(name) and missed <= FORGIVEN
            load, refused = None, ""
            if ready and target.tells_load and not missed:
                load, refused = await told_load(target.address, self._clock)
            self._note(name, ready, load, refused)
            await asyncio.sleep(STEADY if ready else EAGER if self._clock.now() < started + EAGER_FOR else PATIENT)

    def _was_ready(self, name: str) -> bool:
        return name in self._seen and self._seen[name].ready

    def _note(self, name: str, ready: bool, load: ReplicaLoad | None, refused: str) -> None:
        previous = self._seen.get(name)
        if refused and (previous is None or refused != previous.refused):
            log.warning("replica %s: %s", name, refused)
        if previous is not None and previous.ready == ready:
            self._seen[name] = replace(previous, load=load or previous.load, refused=refused)
            return
        self._seen[name] = ProbeResult(ready, self._clock.now(), load, refused)
        if ready or previous is not None:
            self._wake()


_COUNTERS = ("served", "failed", "refused", "client_errors", "queue", "in_flight", "batches", "batch_rows", "non_finite")


async def replica_load(address: str, clock: Clock) -> ReplicaLoad | None:
    """Fetch the load that a Fairway server reports; None when it reports none."""
    load, _ = await told_load(address, clock)
    return load


class PodLoadClient:
    """Fetches the load of replicas in pods, over TLS where the replica was created with it, otherwise over plain HTTP."""

    def __init__(self, trusted: ssl.SSLContext | None) -> None:
        """Use `trusted` to verify the replicas that use TLS."""
        self._lines = PodConnectionPool(trusted, LIMIT)

    async def ask(self, peer: PodPeer, clock: Clock) -> ReplicaLoad | None:
        """Fetch the load of a replica; None when it reports none, or when the server is not the expected pod."""
        if not peer.name:
            return await replica_load(peer.address, clock)
        question = f"GET {LOAD_PATH} HTTP/1.1\r\nHost: {peer.name}\r\n\r\n".encode()
        try:
            async with asyncio.timeout(TIMEOUT):
                status, body = await self._lines.ask(peer, b"", question, _answer)
        except (OSError, TimeoutError, ValueError, EOFError) as error:
            log.debug("%s at %s does not report its load: %s", peer.name, peer.address, error)
            return None
        return read_load(body, clock.now())[0] if status == 200 else None

    def close(self) -> None:
        """Close all connections."""
        self._lines.close()


async def _answer(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    """Read the status and body of an answer that has a `content-length`."""
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.LimitOverrunError as error:
        message = "the answer has no end"
        raise ValueError(message) from error
    first, *fields = head.decode("latin-1").split("\r\n")
    headers = dict(field.lower().split(": ", 1) for field in fields if ": " in field)
    length = int(headers.get("content-length", "0"))
    if not 0 <= length <= LIMIT:
        message = f"an answer of {length} bytes"
        raise ValueError(message)
    return int(first.split(" ")[1]) if " " in first else 0, await reader.readexactly(length)


async def told_load(address: str, clock: Clock) -> tuple[ReplicaLoad | None, str]:
    """Fetch the load of a Fairway server, or None, and the reason if its report was refused."""
    try:
        status, body = await fetch(address, LOAD_PATH)
    except (OSError, TimeoutError, ValueError, EOFError):
        return None, ""
    return read_load(body, clock.now()) if status == 200 else (None, "")


def read_load(body: bytes, now: float) -> tuple[ReplicaLoad | None, str]:
    """Parse a report of load; return the load or None, and the reason if the report was refused.

    One wrong number invalidates the whole report, because rates are computed from all of them.
    """
    try:
        report = json.loads(body)
    except (ValueError, RecursionError):
        report = None
    if not isinstance(report, dict):
        return None, f"{LOAD_PATH} refused: it is not a JSON object"
    counters = {name: number.count(report[name]) for name in _COUNTERS if name in report}
    busy = number.finite(report.get("busy_seconds", 0.0))
    wrong = [name for name, value in counters.items() if value is None]
    if busy is None or busy < 0.0:
        wrong.append("busy_seconds")
    if busy is None or wrong:
        return None, f"{LOAD_PATH} refused: {wrong[0]} is {number.shown(report[wrong[0]])}"
    valid = {name: value for name, value in counters.items() if value is not None}
    if not valid and "busy_seconds" not in report:
        return None, ""
    return ReplicaLoad(now, busy_seconds=busy, batching=read_verdict(report.get("batching")), **valid), ""


def read_verdict(found: object) -> BatchingVerdict | None:
    """Parse a replica's report on batching; None when it reports nothing, or in an unknown format."""
    if not isinstance(found, dict):
        return None
    batched, basis, detail = found.get("batched"), found.get("basis"), found.get("detail")
    rows = number.count(found.get("rows", 0))
    if not isinstance(batched, bool) or basis not in list(BatchingBasis) or not isinstance(detail, str) or rows is None:
        return None
    printable = "".join(character if character.isprintable() else " " for character in detail[:LONGEST_DETAIL])
    return BatchingVerdict(batched, BatchingBasis(basis), printable, rows)


async def _answers(target: ProbeTarget) -> bool:
    if target.protocol == "http":
        status, _ = await fetch(target.address, target.ready_path)
        return status == 200
    host, _, port = target.address.rpartition(":")
    async with asyncio.timeout(TIMEOUT):
        if target.protocol == "grpc":
            return await single_request.is_serving(host, _port(port))
        answer = await single_request.ask(host, _port(port), b"GET", target.ready_path.encode(), [])
        return answer.status == 200


async def fetch(address: str, path: str) -> tuple[int, bytes]:
    """Send a GET; return the status and at most `LIMIT` bytes of the body.

    Raises `OSError`, `TimeoutError`, `EOFError` or `ValueError` when there is no valid answer.
    """
    async with asyncio.timeout(TIMEOUT):
        host, _, port = address.rpartition(":")
        reader, writer = await asyncio.open_connection(host, _port(port), limit=LIMIT)
        try:
            writer.write(f"GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n".encode())
            head = await reader.readuntil(b"\r\n\r\n")
            words = head.split(b" ", 2)
            status = int(words[1]) if len(words) > 2 else 0
            body = bytearray()
            while len(body) < LIMIT and (chunk := await reader.read(LIMIT - len(body))):
                body += chunk
            return status, bytes(body)
        except asyncio.LimitOverrunError as error:
            message = f"the answer of {address} has no end"
            raise ValueError(message) from error
        finally:
            writer.close()


def _port(text: str) -> int:
    port = int(text)
    if not 0 < port < 1 << 16:
        message = f"{text} is not a port"
        raise ValueError(message)
    return port
