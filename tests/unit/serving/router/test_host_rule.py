"""Requests that a page of another site may not send to an endpoint of this machine."""

from __future__ import annotations

import pytest
from router_stage import Answer, Stage

from fairway.serving.router.host_rule import HostRules, is_loopback
from fairway.serving.router.message_head import BadHeadError, read_request


def check(site: HostRules, *lines: str, method: str = "POST") -> None:
    raw = "\r\n".join([f"{method} /v2/x HTTP/1.1", *lines, "", ""]).encode()
    site.check(read_request(raw), raw)


@pytest.mark.parametrize(
    "host",
    ["localhost", "localhost:8000", "LOCALHOST:80", "localhost.", "127.0.0.1", "127.0.0.1:40000", "127.1.2.3", "[::1]",
     "[::1]:8000", "gpu7:8000", "Models.example.org", ""],
)  # fmt: skip
def test_names_of_this_machine(host: str) -> None:
    site = HostRules(("gpu7", "models.example.org"))
    for _ in range(2):
        check(site, f"Host: {host}")


@pytest.mark.parametrize("written", ["2001:db8::7", "[2001:db8::7]", "2001:DB8:0:0:0:0:0:7"])
@pytest.mark.parametrize("host", ["[2001:db8::7]", "[2001:db8::7]:8443", "[2001:DB8:0::7]"])
def test_an_address_of_ipv6_is_a_name_in_any_form(written: str, host: str) -> None:
    check(HostRules((written,)), f"Host: {host}")
    with pytest.raises(BadHeadError, match="no name of this endpoint"):
        check(HostRules((written,)), "Host: [2001:db8::8]")


@pytest.mark.parametrize(
    "host",
    ["evil.example", "evil.example:8000", "localhost.evil.example", "127.0.0.1.evil.example", "evil-localhost", "[::2]",
     "localhost@evil.example", "127.0.0.1:80:80", "10.0.0.5", "gpu7.evil.example"],
)  # fmt: skip
def test_other_names(host: str) -> None:
    site = HostRules(("gpu7",))
    for method in ("GET", "POST"):
        with pytest.raises(BadHeadError, match="no name of this endpoint") as refused:
            check(site, f"Host: {host}", method=method)
        assert refused.value.status == 403
    assert "FAIRWAY_HOSTS=" in str(refused.value)


CROSS = [
    ("Sec-Fetch-Site: cross-site",),
    ("Origin: https://evil.example",),
    ("Origin: null",),
    ("oRIGIN: http://localhost.evil.example:8000", "Sec-Fetch-Site: same-site"),
    ("Origin: file://",),
]
SIMPLE = [
    "", "Content-Type: text/plain", "Content-Type: text/plain;charset=UTF-8", "content-type: multipart/form-data; boundary=x",
    "Content-Type: application/x-www-form-urlencoded",
]  # fmt: skip


@pytest.mark.parametrize("lines", CROSS)
@pytest.mark.parametrize("kind", SIMPLE)
def test_what_a_page_of_another_site_sends_without_asking(lines: tuple[str, ...], kind: str) -> None:
    with pytest.raises(BadHeadError, match="a page of another site") as refused:
        check(HostRules(()), "Host: localhost:8000", *lines, *([kind] if kind else []))
    assert refused.value.status == 403


@pytest.mark.parametrize(
    "lines",
    [
        ("Content-Type: application/json", "Origin: https://evil.example", "Sec-Fetch-Site: cross-site"),  # needs a preflight
        ("Content-Type: application/x-www-form-urlencoded",),  # curl -d
        ("Content-Type: text/plain", "Origin: http://localhost:3000", "Sec-Fetch-Site: same-site"),
        ("Content-Type: text/plain", "Origin: http://127.0.0.1:8000", "Sec-Fetch-Site: same-origin"),
        ("Content-Type: text/plain", "Origin: https://models.example.org"),
        ("Content-Type: application/octet-stream",),  # tritonclient
    ],
)
def test_everything_else_passes(lines: tuple[str, ...]) -> None:
    check(HostRules(("models.example.org",)), "Host: localhost:8000", *lines)


def test_a_page_may_ask_without_sending() -> None:
    for method in ("GET", "HEAD", "OPTIONS"):
        check(HostRules(()), "Host: localhost", "Origin: https://evil.example", method=method)


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.7", "::1", "localhost"])
def test_loopback(host: str) -> None:
    assert is_loopback(host)


@pytest.mark.parametrize("host", ["0.0.0.0", "", "10.0.0.1", "::"])
def test_what_others_reach(host: str) -> None:
    assert not is_loopback(host)


async def test_at_the_endpoint(stage: Stage) -> None:
    replica = await stage.one()
    request = b"POST /x HTTP/1.1\r\nHost: %b\r\nContent-Length: 2\r\nConnection: close\r\n\r\nab"
    assert Answer(await stage.talk(request % b"evil.example")).status == 200, (
        "where others reach it too, names are theirs to choose"
    )
    stage.desk.at_loopback = True
    stage.plan(replica.backend)
    answer = Answer(await stage.talk(request % b"evil.example"))
    assert (answer.status, answer.headers["connection"]) == (403, "close")
    assert Answer(await stage.talk(request % b"localhost:1")).status == 200
    stage.plan(replica.backend, hosts=("evil.example",))
    assert Answer(await stage.talk(request % b"evil.example")).status == 200
    stage.plan(replica.backend, hosts=("*",))
    assert Answer(await stage.talk(request % b"any.example")).status == 200
    assert len(replica.asked) == 4
