"""Access control on loopback: programs and the router may send requests, web pages in browsers may not."""

from __future__ import annotations

import pytest

from fairway.serving.replica.http.origin_check import OriginCheck, is_loopback
from fairway.serving.replica.request_error import RequestError

DOOR = OriginCheck(8001)


def headers(**lines: str) -> list[tuple[bytes, bytes]]:
    return [(name.replace("_", "-").encode(), value.encode()) for name, value in lines.items()]


@pytest.mark.parametrize(
    "lines",
    [
        {},
        {"host": "127.0.0.1:8001"},
        {"host": "localhost:8001"},
        {"host": "LOCALHOST"},
        {"host": "[::1]:8001"},
        {"host": "127.0.0.2:8001"},
        {"host": "localhost:8001", "origin": "http://localhost:8001", "sec_fetch_site": "same-origin"},
        {"host": "mnist.example.com", "x_forwarded_for": "10.0.0.1"},
        {"host": "mnist.example.com:8443", "x_forwarded_proto": "https", "origin": "https://app.example.com"},
        {"host": "127.0.0.1:9000", "x_forwarded_for": "127.0.0.1", "sec_fetch_site": "cross-site"},
    ],
)
def test_who_may_ask(lines: dict[str, str]) -> None:
    DOOR.check(headers(**lines))


@pytest.mark.parametrize(
    "lines",
    [
        {"host": "evil.example.com:8001"},
        {"host": "evil.example.com"},
        {"host": "evil.example.com:8001", "x_forwarded_for": "forged by a page of the same name"},
        {"host": "127.0.0.1.evil.example.com:8001"},
        {"host": "localhost.evil.example.com"},
        {"host": "169.254.169.254"},
        {"host": "localhost:8001", "origin": "http://evil.example.com"},
        {"host": "localhost:8001", "origin": "null"},
        {"host": "localhost:8001", "sec_fetch_site": "cross-site"},
        {"host": "localhost:8001", "origin": "http://localhost:3000", "sec_fetch_site": "same-site"},
    ],
)
def test_who_may_not(lines: dict[str, str]) -> None:
    with pytest.raises(RequestError) as refused:
        DOOR.check(headers(**lines))
    assert refused.value.status == 403


def test_addresses() -> None:
    assert [is_loopback(each) for each in ("127.0.0.1", "localhost", "::1", "0.0.0.0", "10.0.0.1")] == [True] * 3 + [False] * 2
