"""Probing replicas over HTTP."""

import asyncio
import json
import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairway.app.port.serving import ProbeTarget
from fairway.app.system.clock import SystemClock
from fairway.serving import replica_prober as watching_module
from fairway.serving.replica_prober import LIMIT, HttpReplicaProber, fetch, read_load, replica_load
from fairway.state.serving.load import ReplicaLoad

LOAD = b'{"served": 7, "busy_seconds": 1.5, "queue": 2, "later": "unknown"}'


class Replica:
    """A server with answers set by the test."""

    def __init__(self) -> None:
        self.status = 200
        self.load = LOAD
        self.server: asyncio.Server | None = None
        self.port = 0

    async def open(self) -> None:
        self.server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)
        self.port = self.server.sockets[0].getsockname()[1]

    async def close(self) -> None:
        if self.server is not None:
            self.server.close()
            await self.server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        body = self.load if b"/fairway/load" in head else b"x"
        writer.write(f"HTTP/1.1 {self.status} Fine\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)
        writer.close()


class Waking:
    """Counts the calls of the watch."""

    def __init__(self) -> None:
        self.event = asyncio.Event()

    def __call__(self) -> None:
        self.event.set()

    async def called(self) -> None:
        await asyncio.wait_for(self.event.wait(), 10)
        self.event.clear()


@asynccontextmanager
async def watching() -> AsyncIterator[tuple[HttpReplicaProber, Waking, Replica]]:
    watch, waking, replica = HttpReplicaProber(SystemClock()), Waking(), Replica()
    await replica.open()
    watch.start(waking)
    try:
        yield watch, waking, replica
    finally:
        await watch.close()
        await replica.close()


async def test_a_replica_that_answers_is_ready_and_says_how_busy_it_is() -> None:
    async with watching() as (watch, waking, replica):
        watch.follow({"a": ProbeTarget(f"127.0.0.1:{replica.port}", "/ready", tells_load=True)})
        await waking.called()
        seen = watch.seen()["a"]
        assert seen.ready
        assert seen.load is not None
        assert (seen.load.served, seen.load.busy_seconds, seen.load.queue) == (7, 1.5, 2)


async def test_one_that_appears_later_is_seen_at_once_and_so_is_its_going() -> None:
    async with watching() as (watch, waking, replica):
        await replica.close()
        watch.follow({"a": ProbeTarget(f"127.0.0.1:{replica.port}", "/", tells_load=False)})
        await asyncio.sleep(0)
        assert not any(sight.ready for sight in watch.seen().values())
        await replica.open()
        await waking.called()
        assert watch.seen()["a"].ready
        assert watch.seen()["a"].load is None
        await replica.close()
        await waking.called()
        assert not watch.seen()["a"].ready


async def test_another_status_than_200_is_not_ready_and_what_is_not_followed_is_forgotten() -> None:
    async with watching() as (watch, waking, replica):
        replica.status = 503
        watch.follow({"a": ProbeTarget(f"127.0.0.1:{replica.port}", "/", tells_load=False)})
        while "a" not in watch.seen():
            await asyncio.sleep(0.01)
        assert not watch.seen()["a"].ready
        replica.status = 200
        await waking.called()
        assert watch.seen()["a"].ready
        watch.follow({})
        assert watch.seen() == {}


async def test_an_answer_that_is_none_is_an_error() -> None:
    async def babble(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"hello\r\n\r\n")
        writer.close()

    async with await asyncio.start_server(babble, "127.0.0.1", 0) as server:
        address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        status, _ = await fetch(address, "/")
    assert status == 0
    with pytest.raises(OSError, match="onnect"):
        await fetch(address, "/")


BAD_LOADS = {
    "a list": (b"[1]", "it is not a JSON object"),
    "no JSON": (b"\xff\xfe", "it is not a JSON object"),
    "deep nesting": (b"[" * 60_000, "it is not a JSON object"),
    "5,000 digits": (b'{"served": ' + b"9" * 5000 + b"}", "it is not a JSON object"),
    "a counter beyond 64 bits": (b'{"served": 9223372036854775808}', "served is 9223372036854775808"),
    "a counter below nothing": (b'{"queue": -1}', "queue is -1"),
    "a truth": (b'{"served": true}', "served is True"),
    "text": (b'{"in_flight": "7"}', "in_flight is '7'"),
    "a fraction": (b'{"batches": 1.5}', "batches is 1.5"),
    "no number": (b'{"busy_seconds": NaN}', "busy_seconds is nan"),
    "an infinity": (b'{"busy_seconds": 1e400}', "busy_seconds is inf"),
    "a nested object": (b'{"served": {"a": 1}}', "served is a dict of 1"),
}


@pytest.mark.parametrize(("body", "reason"), BAD_LOADS.values(), ids=BAD_LOADS.keys())
def test_a_load_that_cannot_be_taken_is_refused_and_named(body: bytes, reason: str) -> None:
    assert read_load(body, 1.0) == (None, f"/fairway/load refused: {reason}")


def test_a_load_has_the_verdict_about_batching() -> None:
    told = {"batched": False, "basis": "mixed", "detail": "output 'y'\n" + 600 * "x", "rows": 0}
    load, refused = read_load(json.dumps({"served": 1, "batching": told}).encode(), 1.0)
    assert (load is not None and load.served, refused) == (1, "")
    verdict = load.batching if load else None
    assert verdict is not None
    assert (verdict.batched, verdict.basis, verdict.detail[:12], len(verdict.detail)) == (False, "mixed", "output 'y' x", 500)


@pytest.mark.parametrize(
    "told", [None, [], {}, {"batched": 1}, {"basis": "luck"}, {"basis": []}, {"detail": None}, {"rows": -1}, {"rows": "7"}]
)
def test_a_verdict_that_is_not_known_here_is_left_out(told: Any) -> None:
    whole = {"batched": True, "basis": "proven", "detail": "", "rows": 1}
    body = json.dumps({"served": 1, "batching": {**whole, **told} if isinstance(told, dict) and told else told}).encode()
    assert read_load(body, 1.0) == (ReplicaLoad(1.0, served=1), "")


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=2),
    max_leaves=3,
)


@given(
    st.binary(max_size=100)
    | st.dictionaries(st.sampled_from(("served", "queue", "busy_seconds", "x")), VALUES).map(lambda d: json.dumps(d).encode())
)
def test_any_answer_gives_a_sound_load_or_none(body: bytes) -> None:
    load, refused = read_load(body, 1.0)
    assert len(refused) < 200
    if load is not None:
        assert not refused
        assert 0 <= load.served < 2**63
        assert 0 <= load.queue < 2**63
        assert 0.0 <= load.busy_seconds < math.inf


async def test_a_load_that_is_refused_is_told_and_the_next_good_one_counts(caplog: pytest.LogCaptureFixture) -> None:
    async with watching() as (watch, waking, replica):
        replica.load = b'["not", "a", "load"]'
        watch.follow({"a": ProbeTarget(f"127.0.0.1:{replica.port}", "/ready", tells_load=True)})
        await waking.called()
        assert watch.seen()["a"].ready
        assert watch.seen()["a"].load is None
        assert watch.seen()["a"].refused == "/fairway/load refused: it is not a JSON object"
        assert "replica a: /fairway/load refused" in caplog.text
        replica.load = LOAD
        async with asyncio.timeout(20):
            while watch.seen()["a"].load is None:
                await asyncio.sleep(0.01)
        assert watch.seen()["a"].refused == ""


async def test_an_answer_without_end_is_cut_and_one_that_never_comes_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    async def pour(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        try:
            if b"/slow" in head:
                writer.write(b"HTTP/1.1 200 Fine\r\n")
                await reader.read()
            elif b"/head" in head:
                writer.write(b"HTTP/1.1 200 " + b"x" * (4 * LIMIT))
                await writer.drain()
                await reader.read()
            else:
                writer.write(b"HTTP/1.1 200 Fine\r\n\r\n")
                while True:
                    writer.write(b"1" * 10_000)
                    await writer.drain()
        except OSError:
            pass
        finally:
            writer.close()

    async with await asyncio.start_server(pour, "127.0.0.1", 0) as server:
        address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        status, body = await fetch(address, "/fairway/load")
        assert (status, len(body)) == (200, LIMIT)
        assert await replica_load(address, SystemClock()) is None
        with pytest.raises(ValueError, match="has no end"):
            await fetch(address, "/head")
        monkeypatch.setattr(watching_module, "TIMEOUT", 0.05)
        with pytest.raises(TimeoutError):
            await fetch(address, "/slow")
    with pytest.raises(ValueError, match="is not a port"):
        await fetch("127.0.0.1:99999", "/")
