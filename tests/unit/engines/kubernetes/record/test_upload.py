"""Chunks of files that callers upload."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from starlette.requests import ClientDisconnect

from fairway.engines.kubernetes.record import upload as module
from fairway.engines.kubernetes.record.upload import LONGEST_LINE, MOST_BYTES, UploadReceiver
from fairway.errors import RefusedError, UnavailableError, UsageError
from fairway.registry.blob import BlobStore

DATA = bytes(range(256)) * 10
DIGEST = hashlib.sha256(DATA).hexdigest()


class Clock:
    def now(self) -> float:
        return 1_790_000_000.0


@pytest.fixture
def uploads(tmp_path: Path) -> UploadReceiver:
    return UploadReceiver(BlobStore(tmp_path / "blobs"), Clock())


def part(offset: int = 0, length: int = 0, **changed: Any) -> dict[str, Any]:
    return {"digest": DIGEST, "size": len(DATA), "offset": offset, "length": length, **changed}


def body(*parts: dict[str, Any], data: bytes = b"") -> bytes:
    return json.dumps({"parts": parts}).encode() + b"\n" + data


async def pieces(data: bytes, step: int = 100) -> AsyncIterator[bytes]:
    for start in range(0, len(data), step):
        yield data[start : start + step]
    yield b""


async def take(uploads: UploadReceiver, data: bytes, user: str = "ann") -> list[tuple[int, bool]]:
    return [(one["have"], one["whole"]) for one in await uploads.take(pieces(data), user)]


async def test_parts_of_several_contents_come_with_one_request(uploads: UploadReceiver) -> None:
    other = hashlib.sha256(b"other").hexdigest()
    mixed = body(part(0, 1000), {"digest": other, "size": 5, "length": 5}, data=DATA[:1000] + b"other")
    assert await take(uploads, mixed) == [(1000, False), (5, True)]
    assert await take(uploads, body(part())) == [(1000, False)]
    assert await take(uploads, body(part(1000, 1560), data=DATA[1000:])) == [(2560, True)]
    assert await take(uploads, body(part()), "eve") == [(0, False)]


async def test_what_came_before_the_connection_broke_off_stays(uploads: UploadReceiver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_BLOCK", 500)

    async def broken() -> AsyncIterator[bytes]:
        yield body(part(0, 2560), data=DATA[:1200])
        raise ClientDisconnect

    with pytest.raises(ClientDisconnect):
        await uploads.take(broken(), "ann")
    assert await take(uploads, body(part())) == [(1000, False)]


async def test_two_who_send_the_same_at_once_do_not_mix_their_bytes(uploads: UploadReceiver) -> None:
    whole = body(part(0, 2560), data=DATA)
    assert await asyncio.gather(*[take(uploads, whole) for _ in range(4)]) == [[(2560, True)]] * 4


@pytest.mark.parametrize(
    ("sent", "why"),
    [
        pytest.param(b"", "does not begin with a line", id="nothing"),
        pytest.param(b"x" * (LONGEST_LINE + 1000), "does not begin with a line", id="no line"),
        pytest.param(b"{}\n", "the first line", id="no parts"),
        pytest.param(body(part(digest="../../etc")), "the first line", id="no digest"),
        pytest.param(body(part(digest=DIGEST.upper())), "the first line", id="a digest in capitals"),
        pytest.param(body(part(-1)), "the first line", id="before the beginning"),
        pytest.param(body(part(size=1 << 60)), "the first line", id="a size that nobody has"),
        pytest.param(body(part(more=1)), "the first line", id="a field of another version"),
        pytest.param(body(*[part()] * 5001), "the first line", id="too many parts"),
        pytest.param(body(part(0, 10), data=b"short"), "ends early", id="too few bytes"),
        pytest.param(body(part(0, 4), data=b"\0\1\2\3longer"), "more bytes than its parts", id="too many bytes"),
    ],
)
async def test_requests_that_nobody_honest_makes_are_refused(uploads: UploadReceiver, sent: bytes, why: str) -> None:
    with pytest.raises(UsageError, match=why):
        await uploads.take(pieces(sent, 100_000), "ann")


async def test_a_request_of_more_than_it_may_have_is_heard_and_refused(uploads: UploadReceiver) -> None:
    with pytest.raises(RefusedError, match="smaller pieces"):
        await uploads.take(pieces(body(part(0, MOST_BYTES + 1)), 100_000), "ann")


async def test_what_has_no_room_is_refused_before_it_comes(uploads: UploadReceiver) -> None:
    with pytest.raises(UnavailableError, match="the operator's volume has room for"):
        await take(uploads, body(part(size=1 << 50)))


async def test_what_is_abandoned_goes_by_itself(uploads: UploadReceiver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "TIDY_EVERY", 0.0)
    monkeypatch.setattr("fairway.registry.upload.content_upload.ABANDONED", -1e12)
    await take(uploads, body(part(0, 4), data=DATA[:4]))
    assert uploads._tidying is not None
    await uploads._tidying
    assert [path.name for path in (tmp_path / "blobs" / "arriving").rglob("*") if path.is_file()] == ["lock"]
