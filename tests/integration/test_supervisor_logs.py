"""Logs are indexed by time, and the disk space of old parts is released."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from caller import Caller

from fairway.engines.local.output.log_file import LogFile
from fairway.engines.local.output.log_index import LogIndex
from fairway.testing.local_engine_fixture import SupervisorFixture, until


@pytest.fixture
def playground(tmp_path: Path) -> Iterator[SupervisorFixture]:
    made = SupervisorFixture(tmp_path)
    yield made
    made.close()


async def test_the_index_tells_how_long_the_log_was_when(playground: SupervisorFixture, caller: Caller) -> None:
    attempt = await playground.start(["sh", "-c", "echo one; read go; echo two"], stdin=caller.name)
    index = LogIndex(attempt.folder / "out-0.index")
    await until(lambda: list(index.entries_after(0)))
    between = (attempt.folder / "out-0.log").stat().st_mtime
    caller.write(b"go\n")
    await attempt.over()
    entries = list(index.entries_after(0))
    assert [offset for offset, _ in entries] == [4, 8]
    assert entries[0][1] == pytest.approx(between, abs=0.002)
    assert entries[1][1] == pytest.approx((attempt.folder / "out-0.log").stat().st_mtime, abs=0.002)


async def test_old_parts_of_a_long_log_are_given_back(playground: SupervisorFixture, caller: Caller) -> None:
    code = "import sys\nfor n in range(40000): print(f'{n:99d}')\nsys.stdout.flush()\nsys.stdin.readline()\nprint('end')"
    attempt = await playground.start([sys.executable, "-I", "-c", code], stdin=caller.name, log_cap=1 << 20)
    log = attempt.folder / "out-0.log"
    await until(lambda: log.stat().st_size == 4_000_000 and log.stat().st_blocks * 512 < 1 << 20)
    caller.write(b"\n")
    await attempt.over()
    assert log.stat().st_size == 4_000_004
    opened = LogFile(log)
    lines = opened.read(opened.first(), 1 << 22).decode().splitlines()
    opened.close()
    assert lines[-1] == "end"
    numbers = [int(line) for line in lines[:-1]]
    assert numbers == list(range(numbers[0], 40000))
    assert len(numbers) * 100 >= (1 << 19) - 4096


async def test_a_program_that_empties_its_log_is_followed(playground: SupervisorFixture, caller: Caller) -> None:
    script = "echo a long first line; read go; : > /dev/stdout; echo new; read go"
    attempt = await playground.start(["sh", "-c", script], stdin=caller.name)
    index = attempt.folder / "out-0.index"
    await until(index.exists)
    caller.write(b"go\n")
    await until(lambda: os.path.getsize(attempt.folder / "out-0.log") == 4)
    caller.write(b"go\n")
    end = await attempt.over()
    assert end["tail"] == "new\n"
