"""Input that is piped into `fairway run` is read as the program would read it without Fairway."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path

FAIRWAY = str(Path(sys.executable).with_name("fairway"))
READ = "import hashlib, sys; d = sys.stdin.buffer.read(); print(len(d), hashlib.sha256(d).hexdigest())"
LARGE = 64 << 20


def start(desk, *words: str, stdin: int | None) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [FAIRWAY, *words], cwd=desk.folder, env=desk.environment, stdin=stdin, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )


def test_a_program_reads_a_pipe_to_its_end(desk) -> None:
    data = os.urandom(1 << 20) * (LARGE >> 20)
    ended = desk.type("run", "--", "python", "-c", READ, given=data)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.decode().split() == [str(LARGE), hashlib.sha256(data).hexdigest()]


def test_a_program_reads_a_file_from_where_its_caller_is(desk) -> None:
    desk.write("lines", "one\ntwo\nthree\n")
    with open(desk.folder / "lines", "rb", buffering=0) as lines:
        lines.seek(4)
        first = start(desk, "run", "--", "sh", "-c", "read a; echo got $a", stdin=lines.fileno())
        assert first.communicate(timeout=60)[0] == b"got two\n"
        # A shell seeks back over what it read ahead from a file; the next command continues there.
        second = start(desk, "run", "--", "cat", stdin=lines.fileno())
        assert second.communicate(timeout=60)[0] == b"three\n"


def test_only_the_first_of_several_workers_reads(desk) -> None:
    ended = desk.type("run", "--workers", "2", "--", "sh", "-c", "cat; echo over", given=b"data\n")
    assert sorted(ended.stdout.splitlines()) == [b"worker-0 | data", b"worker-0 | over", b"worker-1 | over"]


def test_a_writer_whose_reader_leaves_is_told_and_the_run_ends(desk) -> None:
    # `yes` writes endlessly; it ends only when its last reader closes the pipe.
    yes = subprocess.Popen(["yes"], stdout=subprocess.PIPE)
    assert yes.stdout is not None
    run = start(desk, "run", "--", "head", "-n", "2", stdin=yes.stdout.fileno())
    yes.stdout.close()
    assert run.communicate(timeout=60)[0] == b"y\ny\n"
    assert run.returncode == 0
    assert yes.wait(timeout=60) != 0


def test_a_pipe_that_nobody_writes_to_does_not_hold_a_program_that_does_not_read(desk) -> None:
    read_end, write_end = os.pipe()
    run = start(desk, "run", "--", "echo", "hi", stdin=read_end)
    os.close(read_end)
    assert run.communicate(timeout=60)[0] == b"hi\n"
    os.close(write_end)


def test_the_next_attempt_finds_it_empty(desk) -> None:
    desk.write("twice.sh", 'cat; [ "$FAIRWAY_ATTEMPT" = 1 ]\n')
    ended = desk.type("run", "--retries", "1", "--", "sh", "twice.sh", given=b"once\n")
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout == b"once\n"


def test_who_does_not_watch_pipes_nothing(desk) -> None:
    name = desk.type("run", "-d", "--", "sh", "-c", "cat; echo over", given=b"unread\n").stdout.decode().strip()
    assert desk.type("wait", name).returncode == 0
    assert desk.type("logs", name).stdout == b"over\n"


def test_a_document_from_standard_input_is_not_read_twice(desk) -> None:
    document = b"kind: TrainingJob\nname: piped\nroles: {worker: {command: [sh, -c, 'cat; echo over']}}\n"
    ended = desk.type("run", "-", given=document)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout == b"over\n"
