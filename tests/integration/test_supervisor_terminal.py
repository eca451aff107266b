"""A user can interact with the first process of a task."""

from __future__ import annotations

import json
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from fairway.engines.local.supervision import control_socket
from fairway.testing.local_engine_fixture import SupervisedTask, SupervisorFixture, until

ASKS = """
import os, sys
print("terminal", os.isatty(0), os.isatty(1), os.isatty(2), os.open("/dev/tty", os.O_RDWR) > 0)
name = input("name? ")
print("hello", name, os.get_terminal_size())
"""


@pytest.fixture
def playground(tmp_path: Path) -> Iterator[SupervisorFixture]:
    made = SupervisorFixture(tmp_path)
    yield made
    made.close()


def attach(attempt: SupervisedTask) -> tuple[socket.socket, int]:
    connection = control_socket.connect(str(attempt.folder), 10.0)
    connection.sendall(b'{"op": "attach"}\n')
    answer = b""
    while not answer.endswith(b"\n"):
        answer += connection.recv(1)
    return connection, int(json.loads(answer)["offset"])


def read_all(connection: socket.socket) -> bytes:
    heard = b""
    while piece := connection.recv(4096):
        heard += piece
    return heard


async def test_a_program_with_a_terminal_can_ask(playground: SupervisorFixture) -> None:
    attempt = await playground.start([sys.executable, "-I", "-c", ASKS], terminal=True)
    await until(lambda: "name?" in attempt.log)
    assert attempt.log.startswith("terminal True True True True\r\n")
    assert attempt.ask(op="resize", rows=50, columns=132) == {"ok": True}
    connection, offset = attach(attempt)
    with connection:
        connection.sendall(b"Ana\n")
        heard = read_all(connection)
    end = await attempt.over()
    assert end["code"] == 0
    assert b"hello Ana os.terminal_size(columns=132, lines=50)" in heard
    whole = (attempt.folder / "out-0.log").read_bytes()
    assert whole[offset:] == heard


async def test_what_was_printed_before_the_end_is_not_lost(playground: SupervisorFixture) -> None:
    attempt = await playground.start(["sh", "-c", "seq 1 20000"], terminal=True)
    await attempt.over()
    assert attempt.log.split() == [str(number) for number in range(1, 20001)]


async def test_ctrl_c_reaches_the_program_only(playground: SupervisorFixture) -> None:
    # Short sleeps: an interrupt just before one long sleep would be handled only after it.
    code = "import time\nprint('up', flush=True)\nwhile True:\n    time.sleep(0.01)"
    attempt = await playground.start([sys.executable, "-I", "-c", code], terminal=True)
    await until(lambda: "up" in attempt.log)
    attempt.ask(op="input", data="\x03")
    end = await attempt.over()
    assert "KeyboardInterrupt" in attempt.log
    assert not end["by_us"]


async def test_only_the_first_process_has_the_terminal(playground: SupervisorFixture) -> None:
    show = ["sh", "-c", "test -t 0 && echo yes || echo no"]
    attempt = await playground.start(show, show, terminal=True)
    await attempt.over()
    assert (attempt.output(0).strip(), attempt.output(1).strip()) == ("yes", "no")


async def test_a_reader_that_does_not_read_holds_nobody_up(playground: SupervisorFixture) -> None:
    attempt = await playground.start(["sh", "-c", "read go; seq 1 300000; echo done"], terminal=True)
    connection, _ = attach(attempt)
    with connection:
        connection.sendall(b"go\n")
        await until(lambda: attempt.log.endswith("done\r\n"))
    assert (await attempt.over())["code"] == 0
