"""What `serve` prints about a new service."""

from __future__ import annotations

from typing import Any

import pytest

from fairway.cli.argument_parser import parse
from fairway.cli.session import CommandSession
from fairway.cli.verbs.serve import serve

SERVED = {"name": "adds", "url": "http://127.0.0.1:4000", "example": "curl http://127.0.0.1:4000/v2"}
URLESS = {"name": "adds", "url": "", "example": ""}


def printed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], found: dict[str, Any], *more: str
) -> tuple[str, list[str]]:
    """Return what goes to stdout, and the lines of stderr."""
    monkeypatch.setattr(CommandSession, "announce", lambda _: None)
    monkeypatch.setattr(CommandSession, "send", lambda *_: {"name": "adds"})
    monkeypatch.setattr(CommandSession, "fetch", lambda *_: found)
    command = serve.COMMANDS[""]
    assert serve.serve(parse(command, ["adds@1", "--detach", *more])) == 0
    captured = capsys.readouterr()
    return captured.out, captured.err.splitlines()


def test_a_service_that_listens_gives_its_url(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    out, said = printed(monkeypatch, capsys, SERVED)
    assert out == "http://127.0.0.1:4000\n"
    assert said[:2] == [
        "try: curl http://127.0.0.1:4000/v2",
        "docs: http://127.0.0.1:4000/docs; metrics: http://127.0.0.1:4000/metrics",
    ]


def test_one_that_does_not_listen_yet_gives_no_empty_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out, said = printed(monkeypatch, capsys, URLESS)
    assert out == ""
    assert said == [
        "adds does not listen yet: fairway wait service/adds",
        "next: fairway get service/adds; fairway logs service/adds; fairway bench service/adds",
    ]


def test_its_name_is_there_from_the_start(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert printed(monkeypatch, capsys, URLESS, "-o", "name")[0] == "adds\n"
