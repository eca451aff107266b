"""The caller's standard input is passed on once, and only where there is one."""

from __future__ import annotations

import contextlib
import os
import select
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from other_user import STRANGER, acting_as, needs_root

from fairway.cli.terminal.stdin_socket import StdinSocket, open_door
from fairway.engines.local.supervision import caller_stdin


@pytest.fixture
def becomes_stdin() -> Iterator[Callable[[int], None]]:
    """Return a function that makes a descriptor the standard input of this process, for one test."""
    before = os.dup(0)

    def become(descriptor: int) -> None:
        os.dup2(descriptor, 0)
        os.close(descriptor)

    yield become
    os.dup2(before, 0)
    os.close(before)


def fetch_from(door: StdinSocket) -> int | None:
    """Return what a supervisor receives that connects to the socket."""
    found: list[int | None] = []
    asking = threading.Thread(target=lambda: found.append(caller_stdin.fetch(door.name)))
    asking.start()
    waiting = select.poll()
    waiting.register(door.fileno(), select.POLLIN)
    assert waiting.poll(10_000)
    door.answer()
    asking.join()
    return found[0]


def test_a_pipe_is_handed_over_whole_and_once(becomes_stdin: Callable[[int], None]) -> None:
    read_end, write_end = os.pipe()
    becomes_stdin(read_end)
    door = open_door()
    assert door is not None
    os.write(write_end, b"data")
    descriptor = fetch_from(door)
    assert descriptor is not None
    assert os.read(descriptor, 10) == b"data"
    assert not door.is_open
    assert caller_stdin.fetch(door.name) is None
    assert os.read(0, 10) == b""
    os.close(descriptor)
    with pytest.raises(BrokenPipeError):
        os.write(write_end, b"nobody reads this")
    os.close(write_end)


def test_a_file_keeps_its_place(becomes_stdin: Callable[[int], None], tmp_path: Path) -> None:
    (tmp_path / "data").write_bytes(b"first\nsecond\n")
    opened = os.open(tmp_path / "data", os.O_RDONLY)
    os.lseek(opened, 6, os.SEEK_SET)
    becomes_stdin(opened)
    door = open_door()
    assert door is not None
    descriptor = fetch_from(door)
    assert descriptor is not None
    assert os.read(descriptor, 100) == b"second\n"
    os.close(descriptor)


def test_a_socket_will_do(becomes_stdin: Callable[[int], None]) -> None:
    ours, theirs = socket.socketpair()
    becomes_stdin(theirs.detach())
    door = open_door()
    assert door is not None
    ours.sendall(b"over ssh")
    descriptor = fetch_from(door)
    assert descriptor is not None
    assert os.read(descriptor, 100) == b"over ssh"
    os.close(descriptor)
    ours.close()


def test_where_nothing_can_come_from_there_is_no_door(becomes_stdin: Callable[[int], None]) -> None:
    becomes_stdin(os.open(os.devnull, os.O_RDONLY))
    assert open_door() is None
    read_end, write_end = os.pipe()
    becomes_stdin(write_end)
    assert open_door() is None
    os.close(read_end)
    master, slave = os.openpty()
    becomes_stdin(slave)
    assert open_door() is None
    os.close(master)
    os.close(0)
    assert open_door() is None


def test_whoever_hangs_up_while_it_waits_does_not_take_it_along(becomes_stdin: Callable[[int], None]) -> None:
    read_end, write_end = os.pipe()
    becomes_stdin(read_end)
    door = open_door()
    assert door is not None
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as hasty:
        hasty.connect(f"\0{door.name}")
    door.answer()
    assert door.is_open
    descriptor = fetch_from(door)
    assert descriptor is not None
    os.close(descriptor)
    os.close(write_end)


@needs_root
def test_users_who_crowd_the_address_do_not_keep_the_task_out(becomes_stdin: Callable[[int], None]) -> None:
    """All users see abstract addresses; one of them connects as often as it can, and reads nothing."""
    read_end, write_end = os.pipe()
    becomes_stdin(read_end)
    door = open_door()
    assert door is not None
    os.write(write_end, b"data")
    crowd: list[socket.socket] = []

    def connect() -> None:
        with contextlib.suppress(BlockingIOError):
            while True:
                one = socket.socket(socket.AF_UNIX)
                one.setblocking(False)
                one.connect(f"\0{door.name}")
                crowd.append(one)

    with acting_as(STRANGER, connect):
        found: list[int | None] = []
        asking = threading.Thread(target=lambda: found.append(caller_stdin.fetch(door.name)))
        asking.start()
        deadline = time.monotonic() + 30
        while asking.is_alive() and time.monotonic() < deadline:
            waiting = select.poll()
            waiting.register(door.fileno(), select.POLLIN)
            if waiting.poll(100) and door.is_open:
                door.answer()
            if not door.is_open:
                break
        asking.join()
    assert found
    assert found[0] is not None
    assert os.read(found[0], 10) == b"data"
    os.close(found[0])
    os.close(write_end)
