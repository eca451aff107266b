"""The load of `connections.py`: closed or open loops over many connections, with results per connection. Not a benchmark.

`python serving_load.py PORT CONNECTIONS SECONDS [RATE] < request` prints one JSON line. Without RATE each connection sends its
next request when it has the response to the last one. With RATE requests are due at random moments (Poisson, RATE per second),
regardless of unanswered ones, and latency counts from the moment at which a request was due. `run` starts several such processes,
divides the connections among them, and adds up their results.
"""

from __future__ import annotations

import asyncio
import gc
import json
import random
import subprocess
import sys
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import uvloop

WARM_UP = 0.5
"""Seconds of warm-up that are not counted: connections open, batches form."""
TICK = 0.001
LATE = 20.0
"""Seconds after the end during which responses are still awaited."""


@dataclass
class Found:
    """Results of a load. Latency in seconds."""

    seconds: float
    took: list[float] = field(default_factory=list)
    """Latencies of responses with 200."""
    statuses: dict[str, int] = field(default_factory=dict)
    """Responses by status; `lost`: connections that ended before the response."""
    each: list[int] = field(default_factory=list)
    """Responses with 200 of each connection."""
    cpu: float = 0.0
    """CPU seconds of the client in the same time."""
    unsent: int = 0
    """Requests that were due and never sent."""

    @property
    def rate(self) -> float:
        """Responses with 200 per second."""
        return len(self.took) / self.seconds

    @property
    def mean(self) -> float:
        """Latency in ms."""
        return 1000 * sum(self.took) / len(self.took)

    def percentile(self, percent: float) -> float:
        """Latency in ms."""
        ordered = sorted(self.took)
        return 1000 * ordered[min(len(ordered) - 1, int(len(ordered) * percent / 100))]

    @property
    def jain(self) -> float:
        """Jain's index of responses per connection: 1 when all got the same, 1/n when a single one got all."""
        squares = sum(count * count for count in self.each)
        return sum(self.each) ** 2 / (len(self.each) * squares) if squares else 0.0


class Line(asyncio.Protocol):
    """One connection."""

    def __init__(self, load: Load) -> None:
        self._load = load
        self._answer = b""
        self._due = 0.0
        self.busy = False
        self.count = 0
        self.transport: asyncio.Transport

    def connection_made(self, transport):
        """Keep the transport."""
        self.transport = transport

    def ask(self, due: float) -> None:
        """Send the request that was due at this moment."""
        self.busy = True
        self._due = due
        self.transport.write(self._load.request)

    def data_received(self, data):
        """Count a complete response and continue."""
        answer = self._answer = self._answer + data if self._answer else data
        end = answer.find(b"\r\n\r\n")
        if end < 0:
            return
        at = answer.lower().find(b"content-length: ", 0, end + 2) + 16
        if len(answer) < end + 4 + int(answer[at : answer.index(b"\r\n", at)]):
            return
        self._answer = b""
        self.busy = False
        self._load.answered(self, answer[9:12], self._due)

    def connection_lost(self, error):
        """Count a lost connection."""
        if self.busy:
            self._load.note("lost", self._due)
        self._load.lost += 1


class Load:
    """All connections of this process."""

    def __init__(self, port: int, request: bytes, seconds: float, rate: float) -> None:
        self.request = request
        self.found = Found(seconds)
        self.lost = 0
        self._port = port
        self._rate = rate
        self._counted = self._until = 0.0
        self._lines: list[Line] = []
        self._idle: deque[Line] = deque()
        self._due: deque[float] = deque()

    async def run(self, connections: int) -> Found:
        """Open all connections, then send requests until the time is over."""
        loop = asyncio.get_running_loop()
        for _ in range(connections):
            _, line = await loop.create_connection(lambda: Line(self), "127.0.0.1", self._port)
            self._lines.append(line)
        now = time.perf_counter()
        self._counted = now + WARM_UP
        self._until = self._counted + self.found.seconds
        if self._rate:
            await self._open_loop(now)
        else:
            for line in self._lines:
                line.ask(time.perf_counter())
            await self._wait(self._counted)
            cpu = time.process_time()
            await self._wait(self._until)
            self.found.cpu = time.process_time() - cpu
        ends = time.perf_counter() + LATE
        while any(line.busy for line in self._lines) and time.perf_counter() < ends:
            await asyncio.sleep(0.01)
        self.found.each = [line.count for line in self._lines]
        self.found.unsent = len(self._due)
        return self.found

    async def _wait(self, until: float) -> None:
        await asyncio.sleep(until - time.perf_counter())

    async def _open_loop(self, due: float) -> None:
        chance = random.Random(7)
        cpu = time.process_time()
        self._idle.extend(self._lines)
        while (now := time.perf_counter()) < self._until:
            while due <= now:
                self._due.append(due)
                due += chance.expovariate(self._rate)
            self._send()
            await asyncio.sleep(TICK)
        self.found.cpu = time.process_time() - cpu

    def _send(self) -> None:
        while self._due and self._idle:
            self._idle.popleft().ask(self._due.popleft())

    def answered(self, line: Line, status: bytes, due: float) -> None:
        """Handle the response to one connection."""
        now = time.perf_counter()
        self.note(status.decode(), due)
        if self._counted <= due < self._until and status == b"200":
            self.found.took.append(now - due)
            if now < self._until:
                line.count += 1
        if self._rate:
            self._idle.append(line)
            self._send()
        elif now < self._until:
            line.ask(now)

    def note(self, status: str, due: float) -> None:
        """Count a response to a request that was due after the warm-up."""
        if self._counted <= due < self._until:
            self.found.statuses[status] = self.found.statuses.get(status, 0) + 1


def run(
    port: int,
    connections: int,
    seconds: float,
    request: bytes,
    *,
    rate: float = 0.0,
    processes: int = 1,
    cores: Sequence[int] = (),
) -> Found:
    """Run the load in several processes, on these cores if given; return their results together."""
    pin = ["taskset", "-c", ",".join(map(str, cores))] if cores else []
    started = []
    for number in range(processes):
        part = connections // processes + (number < connections % processes)
        command = [*pin, sys.executable, str(Path(__file__).resolve()), str(port), str(part), str(seconds), str(rate / processes)]
        started.append(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True))
    total = Found(seconds)
    for process in started:
        assert process.stdin is not None
        process.stdin.write(request)
        process.stdin.close()
    for process in started:
        assert process.stdout is not None
        told = json.loads(process.stdout.read())
        process.wait()
        total.took += told["took"]
        total.each += told["each"]
        total.cpu += told["cpu"]
        total.unsent += told["unsent"]
        for status, count in told["statuses"].items():
            total.statuses[status] = total.statuses.get(status, 0) + count
    return total


if __name__ == "__main__":
    asked = sys.stdin.buffer.read()
    gc.disable()
    load = Load(int(sys.argv[1]), asked, float(sys.argv[3]), float(sys.argv[4]) if len(sys.argv) > 4 else 0.0)
    told = json.dumps(vars(uvloop.run(load.run(int(sys.argv[2]))))).encode()
    # Not `print`: unbuffered (PYTHONUNBUFFERED), it drops the bytes that a pipe does not accept at once.
    with open(1, "wb", closefd=False) as out:
        out.write(told)
