"""Looks at replicas over HTTP: does it answer, and how busy is it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from dataclasses import replace

from fairway.app.ports import Clock
from fairway.app.service_ports import Sight, Watched
from fairway.state.load import ReplicaLoad

LOAD_PATH = "/fairway/load"
EAGER = 0.005
"""Seconds between two looks at a replica that is not ready yet: somebody may be waiting for it."""
EAGER_FOR = 3.0
PATIENT = 0.05
"""The same for one that takes longer than `EAGER_FOR`."""
STEADY = 1.0
"""The same for one that is ready."""
TIMEOUT = 3.0
LIMIT = 1 << 20
FORGIVEN = 2
"""Looks in a row without an answer in time before a ready replica counts as not ready; one that refuses does not at once."""


class HttpWatch:
    """One task a replica. Nothing of a replica's doing raises here."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._wake: Callable[[], None] = lambda: None
        self._targets: dict[str, Watched] = {}
        self._looking: dict[str, asyncio.Task[None]] = {}
        self._seen: dict[str, Sight] = {}

    def start(self, wake: Callable[[], None]) -> None:
        """Begin; `wake` is called from the event loop."""
        self._wake = wake

    def follow(self, targets: Mapping[str, Watched]) -> None:
        """Look at exactly these from now on, by name."""
        for name in [name for name, target in self._targets.items() if targets.get(name) != target]:
            self._looking.pop(name).cancel()
            del self._targets[name]
            self._seen.pop(name, None)
        for name, target in targets.items():
            if name not in self._targets:
                self._targets[name] = target
                self._looking[name] = asyncio.create_task(self._look(name, target))

    def seen(self) -> Mapping[str, Sight]:
        """What was seen of each; those not seen yet are left out."""
        return self._seen

    async def close(self) -> None:
        """Stop looking."""
        looking = list(self._looking.values())
        self.follow({})
        await asyncio.gather(*looking, return_exceptions=True)

    async def _look(self, name: str, target: Watched) -> None:
        began, missed = self._clock.now(), 0
        while True:
            try:
                ready, missed = await _answers(target.address, target.ready_path), 0
            except ConnectionRefusedError:
                ready, missed = False, 0
            except (OSError, TimeoutError, ValueError, EOFError):
                missed += 1
                ready = self._was_ready(name) and missed <= FORGIVEN
            load = await replica_load(target.address, self._clock) if ready and target.tells_load and not missed else None
            self._note(name, ready, load)
            await asyncio.sleep(STEADY if ready else EAGER if self._clock.now() < began + EAGER_FOR else PATIENT)

    def _was_ready(self, name: str) -> bool:
        return name in self._seen and self._seen[name].ready

    def _note(self, name: str, ready: bool, load: ReplicaLoad | None) -> None:
        before = self._seen.get(name)
        if before is not None and before.ready == ready:
            self._seen[name] = replace(before, load=load or before.load)
            return
        self._seen[name] = Sight(ready, self._clock.now(), load)
        if ready or before is not None:
            self._wake()


_COUNTERS = ("served", "failed", "refused", "busy_seconds", "queue", "in_flight", "batches", "batch_rows")


async def replica_load(address: str, clock: Clock) -> ReplicaLoad | None:
    """How busy a server of ours says it is; None when it does not say."""
    try:
        status, body = await fetch(address, LOAD_PATH)
        found = json.loads(body) if status == 200 else {}
        known = {name: found[name] for name in _COUNTERS if isinstance(found.get(name), int | float)}
        return ReplicaLoad(clock.now(), **known) if known else None
    except (OSError, TimeoutError, ValueError, EOFError):
        return None


async def _answers(address: str, path: str) -> bool:
    status, _ = await fetch(address, path)
    return status == 200


async def fetch(address: str, path: str) -> tuple[int, bytes]:
    """Status and body of a GET. `OSError`, `TimeoutError`, `EOFError` or `ValueError` when there is no proper answer."""
    async with asyncio.timeout(TIMEOUT):
        host, _, port = address.rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port), limit=LIMIT)
        try:
            writer.write(f"GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n".encode())
            head = await reader.readuntil(b"\r\n\r\n")
            words = head.split(b" ", 2)
            status = int(words[1]) if len(words) > 2 else 0
            body = await reader.read(LIMIT)
            while len(body) < LIMIT and (more := await reader.read(LIMIT)):
                body += more
            return status, body
        except asyncio.LimitOverrunError as error:
            message = f"the answer of {address} has no end"
            raise ValueError(message) from error
        finally:
            writer.close()
