"""Fetching despite network failures: broken connections, operators that restart, damaged answers."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from fairway.runtime.pod import archive, fetch

Answer = Callable[[BaseHTTPRequestHandler], None]


class Operator:
    """Answers each request with the next of its answers, and repeats the last one."""

    def __init__(self) -> None:
        self.answers: list[Answer] = []
        self.tokens: list[str | None] = []
        operator = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                operator.tokens.append(self.headers["Authorization"])
                answer = operator.answers.pop(0) if len(operator.answers) > 1 else operator.answers[0]
                self.close_connection = True
                answer(self)

            def log_message(self, format: str, *args: object) -> None:
                del format, args

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/v1/given/code"


@pytest.fixture
def operator() -> Iterator[Operator]:
    found = Operator()
    serving = threading.Thread(target=found.server.serve_forever, daemon=True)
    serving.start()
    yield found
    found.server.shutdown()
    found.server.server_close()


@pytest.fixture
def packed(tmp_path: Path) -> tuple[bytes, str]:
    """Return an archive, and the digest of its content."""
    source = tmp_path / "source"
    source.mkdir()
    (source / "one.py").write_text("1" * 3000)
    (source / "two.py").write_text("2" * 3000)
    data = b"".join(archive.pack(str(source)))
    aside = tmp_path / "aside"
    aside.mkdir()
    with (tmp_path / "archive").open("wb") as file:
        file.write(data)
    with (tmp_path / "archive").open("rb") as file:
        return data, archive.digest_of(archive.unpack(file, str(aside)))


def whole(data: bytes, digest: str, cut: int | None = None, chunked: bool = False) -> Answer:
    def answer(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        handler.send_header(fetch.DIGEST_HEADER, digest)
        handler.send_header(*(("Transfer-Encoding", "chunked") if chunked else ("Content-Length", str(len(data)))))
        handler.end_headers()
        body = b"%x\r\n%s\r\n0\r\n\r\n" % (len(data), data) if chunked else data
        handler.wfile.write(body[:cut])

    return answer


def error(code: int, words: str = "") -> Answer:
    def answer(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(code)
        handler.send_header("Content-Length", str(len(words)))
        handler.end_headers()
        handler.wfile.write(words.encode())

    return answer


@pytest.mark.parametrize("chunked", [False, True])
@pytest.mark.parametrize("cut", [0, 100, 3584, 4000, 7000])
def test_a_connection_that_is_cut_is_tried_again_and_nothing_half_is_left(
    operator: Operator, packed: tuple[bytes, str], tmp_path: Path, cut: int, chunked: bool
) -> None:
    target = tmp_path / "pod"
    operator.answers = [whole(*packed, cut=cut, chunked=chunked), error(503), whole(*packed, chunked=chunked)]
    seen: list[list[Path]] = []
    fetch.fetch(operator.url, "secret", str(target), pause=lambda _: seen.append(list(target.iterdir())))
    assert seen == [[], []], "between two tries the folder was empty"
    assert sorted(path.name for path in target.iterdir()) == ["one.py", "two.py"]
    assert set(operator.tokens) == {"Bearer secret"}


def test_content_of_another_digest_is_refused(operator: Operator, packed: tuple[bytes, str], tmp_path: Path) -> None:
    operator.answers = [whole(packed[0], "0" * 64)]
    with pytest.raises(OSError, match="but the expected digest is 000000000000"):
        fetch.fetch(operator.url, "secret", str(tmp_path / "pod"), patience=0.0)
    operator.answers = [whole(*packed)]
    with pytest.raises(OSError, match="but the expected digest is 111111111111"):
        fetch.fetch(operator.url, "secret", str(tmp_path / "pod"), digest="1" * 64, patience=0.0)
    operator.answers = [whole(packed[0], "")]
    with pytest.raises(OSError, match="but the expected digest is missing"):
        fetch.fetch(operator.url, "secret", str(tmp_path / "pod"), patience=0.0)


def test_a_second_start_of_the_step_finds_what_the_first_left(
    operator: Operator, packed: tuple[bytes, str], tmp_path: Path
) -> None:
    target = tmp_path / "pod"
    operator.answers = [whole(*packed)]
    fetch.fetch(operator.url, "secret", str(target))
    (target / "one.py").write_text("changed")
    fetch.fetch(operator.url, "secret", str(target))
    assert (target / "one.py").read_text() == "1" * 3000


def test_what_the_command_says(
    operator: Operator,
    packed: tuple[bytes, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "token").write_text("of-a-file\n")
    command = ["--url", operator.url, "--into", str(tmp_path / "pod")]
    operator.answers = [whole(*packed)]
    monkeypatch.setenv(fetch.TOKEN, "of-the-environment")
    assert fetch.main(command) == 0
    assert capsys.readouterr().out.startswith("fairway: 2 files from http://")
    assert fetch.main([*command, "--token-file", str(tmp_path / "token")]) == 0
    assert operator.tokens == ["Bearer of-the-environment", "Bearer of-a-file"]
    operator.answers = [error(404, "there is no model mnist here")]
    assert fetch.main(command) == fetch.NOT_THERE
    operator.answers = [error(401, "this is not the token of a run")]
    assert fetch.main(command) == 1
    assert "there is no model mnist here" in capsys.readouterr().err
