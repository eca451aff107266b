from __future__ import annotations

import httptools
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from fairway.serving.router.message_head import (
    CHUNKED,
    COUNT_LIMIT,
    HEAD_LIMIT,
    LINE_LIMIT,
    UNTIL_CLOSE,
    BadHeadError,
    is_hopeless,
    read_answer,
    read_request,
    request_id_of,
)


def request(*lines: str, first: str = "POST /v2/x HTTP/1.1", host: str = "Host: here") -> bytes:
    return "\r\n".join([first, *([host] if host else []), *lines, "", ""]).encode("latin-1")


def read_or_status(read, raw: bytes):
    try:
        return read(raw)
    except BadHeadError as problem:
        return problem.status


def refusal(raw: bytes) -> int:
    with pytest.raises(BadHeadError) as caught:
        read_request(raw)
    assert caught.value.reason
    return caught.value.status


class TestRequests:
    def test_a_plain_one(self) -> None:
        head = read_request(request("Content-Length: 12", "Accept: */*", "X-A:b"))
        assert (head.method, head.target, head.host, head.length) == (b"POST", b"/v2/x", b"here", 12)
        assert (head.keep_alive, head.plain, head.expects) == (True, False, False)
        assert head.lines == [b"Accept: */*", b"X-A:b"]
        assert head.value_of(b"x-a") == b"b"
        assert head.value_of(b"host") == b"here"
        assert head.value_of(b"x-b") is None

    def test_what_goes_to_the_backend(self) -> None:
        head = read_request(request("X-A: b", "Content-Length: 3", "Keep-Alive: 5", "TE: trailers", "X-Forwarded-For: 1.2.3.4"))
        assert head.render(b"9.9.9.9", b"id-1") == (
            b"POST /v2/x HTTP/1.1\r\nhost: here\r\nX-A: b\r\ncontent-length: 3\r\nx-forwarded-for: 1.2.3.4, 9.9.9.9\r\n"
            b"x-forwarded-proto: http\r\nx-forwarded-host: here\r\nx-request-id: id-1\r\n\r\n"
        )

    def test_what_another_proxy_said_is_kept(self) -> None:
        head = read_request(request("X-Forwarded-Proto: https", "X-Forwarded-Host: example.org", "X-Request-Id: abc"))
        assert request_id_of(head) == b"abc"
        sent = head.render(b"9.9.9.9", b"abc")
        assert b"x-forwarded-proto: https\r\nx-forwarded-host: example.org\r\nx-request-id: abc\r\n" in sent

    @pytest.mark.parametrize("given_id", ["", "a b", "x" * 201, "\xe9"])
    def test_an_id_that_cannot_be_passed_on(self, given_id: str) -> None:
        assert request_id_of(read_request(request(f"X-Request-Id: {given_id}"))) is None

    def test_lines_for_this_connection_end_here(self) -> None:
        head = read_request(request("Connection: X-Secret, keep-alive", "X-Secret: 1", "X-Open: 2"))
        assert head.lines == [b"X-Open: 2"]
        head = read_request(request("Connection: content-length, host", "Content-Length: 5"))
        assert (head.length, head.host) == (5, b"here")

    @pytest.mark.parametrize(
        ("first", "lines", "keep"),
        [
            ("GET / HTTP/1.1", [], True),
            ("GET / HTTP/1.1", ["Connection: close"], False),
            ("GET / HTTP/1.1", ["Connection: keep-alive, Close"], False),
            ("GET / HTTP/1.0", [], False),
            ("GET / HTTP/1.0", ["Connection: Keep-Alive"], True),
        ],
    )
    def test_whether_the_connection_stays(self, first: str, lines: list[str], keep: bool) -> None:
        assert read_request(request(*lines, first=first)).keep_alive is keep

    def test_chunks(self) -> None:
        assert read_request(request("Transfer-Encoding: Chunked")).length == CHUNKED

    def test_expectations(self) -> None:
        assert read_request(request("Expect: 100-Continue", "Content-Length: 1")).expects
        assert refusal(request("Expect: 200-ok")) == 417

    def test_an_absolute_target(self) -> None:
        head = read_request(request(first="GET http://example.org:80/a?b=c HTTP/1.1"))
        assert (head.target, head.host) == (b"/a?b=c", b"example.org:80")
        assert read_request(request(first="GET HTTP://example.org HTTP/1.1")).target == b"/"

    def test_http_1_0_needs_no_host(self) -> None:
        assert read_request(request(first="GET / HTTP/1.0", host="")).host == b""

    @pytest.mark.parametrize(
        ("status", "raw"),
        [
            (400, request("Content-Length: 5", "Transfer-Encoding: chunked")),
            (400, request("Content-Length: 5", "Content-Length: 5")),
            (400, request("Content-Length: 5", "Content-Length: 6")),
            (400, request("Content-Length: 5, 5")),
            (400, request("Content-Length: +5")),
            (400, request("Content-Length: 0x5")),
            (400, request("Content-Length: -1")),
            (400, request("Content-Length:")),
            (400, request("Content-Length: 1 1")),
            (400, request("Content-Length: " + "9" * 19)),
            (400, request("Content-Length: \xb2")),
            (501, request("Transfer-Encoding: gzip, chunked")),
            (501, request("Transfer-Encoding: xchunked")),
            (501, request("Transfer-Encoding: chunked", "Transfer-Encoding: identity")),
            (501, request("Transfer-Encoding: chunked", "Transfer-Encoding: chunked")),
            (501, request("Transfer-Encoding: ")),
            (400, request("Transfer-Encoding : chunked")),
            (400, request("Transfer-Encoding\t: chunked")),
            (400, request(" Transfer-Encoding: chunked")),
            (400, request("Transfer-Encoding: chunked", first="POST / HTTP/1.0")),
            (400, request("X: a", " folded")),
            (400, request("X: a", "\tfolded")),
            (400, request("X: a\rb")),
            (400, request("X: a\nContent-Length: 5")),
            (400, request("X: a\x00b")),
            (400, request("X: a\x7fb")),
            (400, request("no colon")),
            (400, request(": nameless")),
            (400, request("X\x00: a")),
            (400, request("X(: a")),
            (400, request(host="")),
            (400, request("Host: there")),
            (400, request(first="GET  / HTTP/1.1")),
            (400, request(first="GET /a b HTTP/1.1")),
            (400, request(first="GET / HTTP/1.1 ")),
            (400, request(first=" GET / HTTP/1.1")),
            (400, request(first="G@T / HTTP/1.1")),
            (400, request(first="GET a HTTP/1.1")),
            (400, request(first="GET * HTTP/1.1")),
            (501, request(first="CONNECT example.org:443 HTTP/1.1")),
            (501, request(first="CONNECT /x HTTP/1.1")),
            (400, request(first="GET /")),
            (400, request(first="GET / http/1.1")),
            (505, request(first="GET / HTTP/2.0")),
            (505, b"PRI * HTTP/2.0\r\n\r\n"),
            (505, request(first="GET / HTTP/1.2")),
            (505, request(first="GET / HTTP/0.9")),
            (400, b"GET / HTTP/1.1\nHost: here\n\r\n\r\n"),
            (414, request(first=f"GET /{'a' * LINE_LIMIT} HTTP/1.1")),
            (431, request(*["A: b"] * (COUNT_LIMIT + 1))),
            (431, request("A: " + "b" * HEAD_LIMIT, " folded")),
            (501, request("Upgrade: websocket", "Connection: Upgrade")),
        ],
    )
    def test_what_is_refused(self, status: int, raw: bytes) -> None:
        assert refusal(raw) == status

    def test_an_offer_of_http_2_is_passed_over(self) -> None:
        head = read_request(request("Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAMAAABk"))
        assert head.lines == []

    @pytest.mark.parametrize("raw", [b"GET / HTTP/1.1\nHost", b"GET / HTTP/1.1\r\nA\rB", b"a" * (HEAD_LIMIT + 1)])
    def test_some_need_not_be_read_to_their_end(self, raw: bytes) -> None:
        assert is_hopeless(raw)

    def test_what_may_still_become_a_head(self) -> None:
        whole = request("A: b", "Content-Length: 3")
        assert not any(is_hopeless(whole[:size]) for size in range(len(whole)))


class Seen:
    """The result of httptools for a head."""

    def __init__(self) -> None:
        self.headers: list[tuple[bytes, bytes]] = []
        self.whole = False
        self.url = b""

    def on_url(self, url: bytes) -> None:
        self.url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        self.whole = True


LINE = st.one_of(
    st.sampled_from(
        [
            b"Host: here",
            b"Content-Length: 5",
            b"Content-Length: 05",
            b"Content-Length : 5",
            b"Transfer-Encoding: chunked",
            b"transfer-encoding:\tchunked",
            b"Transfer-Encoding: chunked, chunked",
            b"Connection: close",
            b"Expect: 100-continue",
            b"Upgrade: h2c",
            b"X-Forwarded-For: a",
            b" folded",
            b"X: \xff",
            b"Connection: content-length",
            b"",
        ]
    ),
    st.binary(max_size=12),
    st.tuples(st.from_regex(rb"[A-Za-z-]{1,9}", fullmatch=True), st.binary(max_size=9)).map(lambda pair: b": ".join(pair)),
)
FIRST = st.one_of(
    st.sampled_from(
        [b"GET / HTTP/1.1", b"POST /a HTTP/1.1", b"POST /a HTTP/1.0", b"GET http://a/b HTTP/1.1", b"OPTIONS * HTTP/1.1"]
    ),
    st.binary(max_size=20),
)
END = st.sampled_from([b"\r\n", b"\r\n", b"\r\n", b"\n", b"\r", b"\n\r\n"])


@settings(max_examples=600, deadline=None)
@given(FIRST, st.lists(st.tuples(LINE, END), max_size=6), END)
@example(b"POST /a HTTP/1.1", [(b"Host: here", b"\r\n"), (b"Content-Length: 5", b"\r\n")], b"\r\n")
@example(b"POST /a HTTP/1.1", [(b"Host: here", b"\r\n"), (b"Transfer-Encoding: chunked", b"\r\n")], b"\r\n")
def test_what_is_accepted_is_read_alike_by_another_parser(first: bytes, lines: list[tuple[bytes, bytes]], end: bytes) -> None:
    raw = first + b"\r\n" + b"".join(line + ending for line, ending in lines) + end
    head = read_or_status(read_request, raw)
    if isinstance(head, int):
        assert 400 <= head < 600
        return
    # A backend reads the same length from the forwarded head as we do, whatever was in the head.
    for sent in (raw, head.render(b"9.9.9.9", b"id")):
        seen = Seen()
        parser = httptools.HttpRequestParser(seen)
        if head.method in (b"GET", b"POST", b"OPTIONS"):
            parser.feed_data(sent)
            assert seen.whole
            lengths = [int(value) for name, value in seen.headers if name == b"content-length"]
            chunked = [value.lower() for name, value in seen.headers if name == b"transfer-encoding"] == [b"chunked"]
            assert (CHUNKED if chunked else sum(lengths)) == head.length
            assert not (chunked and lengths)
            assert len(lengths) <= 1


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=200))
def test_noise_is_refused_or_read(raw: bytes) -> None:
    for read in (read_request, read_answer):
        found = read_or_status(read, raw + b"\r\n\r\n")
        assert not isinstance(found, int) or found in (400, 431, 505, 502)


class TestAnswers:
    def test_a_plain_one(self) -> None:
        head = read_answer(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nA: b\r\nFairway-Revision: 9\r\n\r\n")
        assert (head.status, head.length, head.bodiless, head.keep_alive, head.lines) == (200, 5, False, True, [b"A: b"])
        assert head.render(3, b"id", b"content-length: 5\r\n") == (
            b"HTTP/1.1 200 OK\r\nA: b\r\nfairway-revision: 3\r\nx-request-id: id\r\ncontent-length: 5\r\n\r\n"
        )

    def test_where_it_ends(self) -> None:
        assert read_answer(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n").length == CHUNKED
        assert read_answer(b"HTTP/1.0 200 OK\r\n\r\n").length == UNTIL_CLOSE
        assert not read_answer(b"HTTP/1.0 200 OK\r\n\r\n").keep_alive
        assert not read_answer(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n").keep_alive
        assert read_answer(b"HTTP/1.1 204 None\r\n\r\n").bodiless
        assert read_answer(b"HTTP/1.1 304\r\nContent-Length: 5\r\n\r\n").bodiless
        assert read_answer(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", bodiless=True).bodiless
        assert read_answer(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 5\r\n\r\n").length == 5

    def test_what_was_not_begun(self) -> None:
        assert read_answer(b"HTTP/1.1 503 No\r\nRetry-After: 1\r\n\r\n").not_begun
        assert b"retry-after: 1" in read_answer(b"HTTP/1.1 503 No\r\nRetry-After: 1\r\n\r\n").lines
        assert read_answer(b"HTTP/1.1 503 No\r\nFairway-Draining: 1\r\n\r\n").not_begun
        assert not read_answer(b"HTTP/1.1 503 No\r\n\r\n").not_begun
        assert not read_answer(b"HTTP/1.1 429 No\r\nRetry-After: 1\r\n\r\n").not_begun

    @pytest.mark.parametrize(
        "raw",
        [
            b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n",
            b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n",
            b"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n",
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n",
            b"HTTP/1.1 200 OK\nContent-Length: 5\r\n\r\n",
            b"HTTP/1.1 20 OK\r\n\r\n",
            b"ICY 200 OK\r\n\r\n",
        ],
    )
    def test_what_cannot_be_passed_on(self, raw: bytes) -> None:
        with pytest.raises(BadHeadError) as caught:
            read_answer(raw)
        assert caught.value.status == 502
