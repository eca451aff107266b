"""HTTP without a library: requests as sent, and answers that arrive in any pieces."""

from __future__ import annotations

import pytest

from fairway.errors import BugError, NotFoundError, SpecError, UnavailableError
from fairway.sdk.transport import http, local_path
from fairway.testing.fake.fake_daemon import FakeDaemon

PLAIN = b"HTTP/1.1 200 OK\r\nContent-Length: 11\r\n\r\nhello world"
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n6;note=x\r\n world\r\n0\r\n\r\n"
CONTINUED = b"HTTP/1.1 100 Continue\r\n\r\n" + PLAIN


@pytest.mark.parametrize("answer", [PLAIN, CHUNKED, CONTINUED])
@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
def test_an_answer_is_read_in_pieces_of_any_size(answer: bytes, size: int) -> None:
    decoder = http.ReplyDecoder()
    body = b"".join(decoder.feed(answer[start : start + size]) for start in range(0, len(answer), size))
    assert (decoder.status, body, decoder.done) == (200, b"hello world", True)


def test_an_answer_without_a_length_ends_with_the_connection() -> None:
    decoder = http.ReplyDecoder()
    assert decoder.feed(b"HTTP/1.0 200 OK\r\n\r\nall of") == b"all of"
    assert not decoder.done
    decoder.end()
    assert decoder.done


@pytest.mark.parametrize("answer", [PLAIN[:-1], CHUNKED[:-5], CHUNKED[:60], b"HTTP/1.1 200 OK\r\nContent-Le", b""])
def test_an_answer_that_breaks_off_is_an_error(answer: bytes) -> None:
    decoder = http.ReplyDecoder()
    decoder.feed(answer)
    with pytest.raises(UnavailableError, match="middle of an answer"):
        decoder.end()


def test_an_empty_answer_is_complete() -> None:
    decoder = http.ReplyDecoder()
    assert decoder.feed(b"HTTP/1.1 204 No Content\r\n\r\n") == b""
    assert decoder.done


def test_what_speaks_no_http_is_named() -> None:
    with pytest.raises(BugError, match=r"does not speak HTTP: 'SSH-2\.0"):
        http.ReplyDecoder().feed(b"SSH-2.0-x\r\n\r\n")


def test_a_target_leaves_out_what_was_not_given() -> None:
    query: http.Query = {
        "namespace": "team a/b",
        "tail": 0,
        "follow": True,
        "all": False,
        "role": "",
        "index": None,
        "grep": "é%",
    }
    assert http.encode_target("/v1/jobs", query) == "/v1/jobs?namespace=team%20a%2Fb&tail=0&follow=true&grep=%C3%A9%25"
    assert http.encode_target("/v1/jobs", {"a": None}) == "/v1/jobs"


def test_a_request_carries_its_body() -> None:
    sent = http.encode_request("POST", "/x", None, b'{"a":1}')
    assert sent.startswith(b"POST /x HTTP/1.1\r\n")
    assert b"Content-Length: 7\r\n" in sent
    assert sent.endswith(b'\r\n\r\n{"a":1}')


def test_a_post_without_a_body_says_so() -> None:
    assert b"Content-Length: 0\r\n" in http.encode_request("POST", "/x")
    assert b"Content-Length" not in http.encode_request("GET", "/x")


def ask(home: str, path: str) -> http.SocketReply:
    return http.exchange(http.connect(local_path.find_socket(home)), http.encode_request("GET", path))


def test_an_exchange_over_a_socket(daemon: FakeDaemon) -> None:
    daemon.answers["GET /x"] = "text"
    reply = ask(daemon.home, "/x").check()
    assert (reply.status, reply.read()) == (200, b"text")


def test_lines_come_whole_whatever_the_pieces(daemon: FakeDaemon) -> None:
    daemon.answers["GET /x"] = [b"one\ntw", b"o\n", b"three"]
    assert list(ask(daemon.home, "/x").lines()) == [b"one", b"two", b"three"]


def test_a_stream_that_breaks_off_is_an_error_after_what_came(daemon: FakeDaemon) -> None:
    daemon.answers["GET /x"] = [b"one\n", b""]
    heard: list[bytes] = []
    with pytest.raises(UnavailableError):
        heard.extend(ask(daemon.home, "/x").lines())
    reply = ask(daemon.home, "/x")
    assert reply.chunk() == b"one\n"
    reply.close()


def test_errors_are_raised_as_what_they_are(daemon: FakeDaemon) -> None:
    daemon.answers["GET /x"] = NotFoundError("there is no job mnist", fix="did you mean minst?")
    with pytest.raises(NotFoundError, match=r"there is no job mnist\n  fix: did you mean minst\?"):
        ask(daemon.home, "/x").check()


def test_an_answer_that_is_no_error_of_ours_is_shown() -> None:
    error = http.read_error(502, b"<html>bad gateway</html>")
    assert isinstance(error, BugError)
    assert "status 502: <html>" in str(error)


def test_mistakes_in_a_document_survive_the_wire() -> None:
    body = b'{"error":{"code":"spec","message":"","mistakes":[{"message":"is no number","path":"a.b","value":"x","line":3}]}}'
    error = http.read_error(422, body)
    assert isinstance(error, SpecError)
    assert str(error) == "3 a.b: x is no number"
