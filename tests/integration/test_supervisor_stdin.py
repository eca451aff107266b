"""The first process of a task reads what its caller pipes in; no other process does, and no process waits for input in vain."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from caller import Caller

from fairway.engines.local.supervision import caller_stdin
from fairway.testing.local_engine_fixture import SupervisorFixture, until


@pytest.fixture
def playground(tmp_path: Path) -> Iterator[SupervisorFixture]:
    made = SupervisorFixture(tmp_path)
    yield made
    made.close()


async def test_the_first_process_reads_to_the_end_and_the_others_find_nothing(
    playground: SupervisorFixture, caller: Caller
) -> None:
    count = ["sh", "-c", "cat; echo over"]
    attempt = await playground.start(count, count, stdin=caller.name)
    caller.write(b"one\n")
    await until(lambda: attempt.log == "one\n")
    caller.write(b"two\n")
    caller.end()
    assert (await attempt.over())["code"] == 0
    assert (attempt.output(0), attempt.output(1)) == ("one\ntwo\nover\n", "over\n")


async def test_an_open_pipe_without_data_keeps_nobody(playground: SupervisorFixture, caller: Caller) -> None:
    attempt = await playground.start(["true"], stdin=caller.name)
    assert (await attempt.over())["code"] == 0


async def test_with_the_task_the_last_reader_is_gone(playground: SupervisorFixture, caller: Caller) -> None:
    attempt = await playground.start(["sleep", "600"], stdin=caller.name)
    caller.write(b"unread\n")
    attempt.ask(op="kill")
    await attempt.over()
    with pytest.raises(BrokenPipeError):
        caller.write(b"more\n")


async def test_a_caller_that_has_gone_left_nothing_to_read(playground: SupervisorFixture) -> None:
    attempt = await playground.start(["sh", "-c", "cat; echo over"], stdin="fairway-nobody-is-here")
    assert (await attempt.over())["code"] == 0
    assert attempt.log == "over\n"


async def test_a_caller_that_does_not_answer_is_not_waited_for(playground: SupervisorFixture) -> None:
    name = f"fairway-test-{os.urandom(8).hex()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as mute:
        mute.bind(f"\0{name}")
        mute.listen(1)
        attempt = await playground.start(["cat"], stdin=name)
        assert (await attempt.over())["code"] == 0
    assert "does not hand over its standard input" in attempt.log


def test_what_is_fetched_is_not_inherited(caller: Caller) -> None:
    found = caller_stdin.fetch(caller.name)
    assert found is not None
    assert not os.get_inheritable(found)
    caller.write(b"x")
    assert os.read(found, 10) == b"x"
    os.close(found)
    with pytest.raises(BrokenPipeError):
        while True:
            # The caller's own copy is closed a moment after it was sent.
            caller.write(b"x")
