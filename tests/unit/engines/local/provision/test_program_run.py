"""Running helper programs."""

from __future__ import annotations

import asyncio
import os
import select
import sys
from pathlib import Path

import pytest

from fairway.engines.local.provision import program_run


def run(code: str, tmp_path: Path, say: program_run.Say = lambda _: None) -> tuple[int, list[str]]:
    return asyncio.run(program_run.run([sys.executable, "-c", code], cwd=tmp_path, env={"PATH": os.defpath}, say=say))


def test_exit_code_lines_of_both_outputs_and_what_was_said(tmp_path: Path) -> None:
    said: list[str] = []
    code = "import sys; print('one', flush=True); print('two', file=sys.stderr, flush=True); print(); print('three'); sys.exit(3)"
    assert run(code, tmp_path, said.append) == (3, ["one", "two", "three"])
    assert said == ["one", "two", "three"]


def test_only_the_last_lines_are_kept(tmp_path: Path) -> None:
    code, lines = run("for n in range(100): print(n)", tmp_path)
    assert (code, lines[-1]) == (0, "99")
    assert len(lines) < 50


def test_a_line_longer_than_any_buffer_and_bytes_that_are_no_text(tmp_path: Path) -> None:
    code, lines = run("import os; os.write(1, b'x' * 300_000 + b'\\xff\\nend')", tmp_path)
    assert code == 0
    assert sum(map(len, lines)) > 300_000
    assert lines[-1] == "end"


def test_a_cancelled_program_ends_with_its_children(tmp_path: Path) -> None:
    code = "import subprocess; print(subprocess.Popen(['sleep', '600']).pid, flush=True); import time; time.sleep(600)"

    async def go() -> int:
        queue: asyncio.Queue[str] = asyncio.Queue()
        argv = [sys.executable, "-c", code]
        task = asyncio.create_task(program_run.run(argv, cwd=tmp_path, env={"PATH": os.defpath}, say=queue.put_nowait))
        async with asyncio.timeout(20):
            child = int(await queue.get())
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        return child

    child = asyncio.run(go())
    try:
        handle = os.pidfd_open(child)
    except ProcessLookupError:
        return
    ended, _, _ = select.select([handle], [], [], 10)
    os.close(handle)
    assert ended, "the child of a program that was given up still runs"
