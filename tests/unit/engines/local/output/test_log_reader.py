"""Reading logs from real files: tails, times, searches, and following."""

from __future__ import annotations

import asyncio
import os
import struct
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from fairway.app.port.port import LogChunk, LogQuery
from fairway.engines.local.home import EngineHome
from fairway.engines.local.output.file_watch import POLL, FileWatcher
from fairway.engines.local.output.log_reader import LogReader, removed_bytes
from fairway.engines.local.supervision.process import kernel_call
from fairway.errors import UsageError
from fairway.spec.job import JobSpec, TaskRole
from fairway.state.job import JobKey, JobState

JOB = JobState(JobKey("default", "mnist-1"), "mnist", 1, JobSpec(roles={"worker": TaskRole(command=("python", "train.py"))}))


class Run:
    """The attempts of one run, as its tasks write them."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.attempts = home / "jobs" / "default" / "mnist-1" / "attempts"

    def write(self, task: str, data: bytes, *, attempt: int = 0, rank: int = 0, at: float | None = None) -> Path:
        """Append data, and record the new length in the index if a time is given."""
        path = self.attempts / f"{task}-{attempt}" / f"out-{rank}.log"
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("ab") as file:
            file.write(data)
        if at is not None:
            with path.with_suffix(".index").open("a") as index:
                index.write(f"{path.stat().st_size} {at}\n")
        return path

    def end(self, task: str, attempt: int = 0) -> None:
        folder = self.attempts / f"{task}-{attempt}"
        (folder / "exit.tmp").write_text("{}")
        (folder / "exit.tmp").rename(folder / "exit.json")

    def read(self, query: LogQuery = LogQuery(), mask: tuple[bytes, ...] = ()) -> list[LogChunk]:
        async def gather() -> list[LogChunk]:
            return [chunk async for chunk in LogReader(EngineHome(self.home)).read(JOB, query, lambda: True, mask)]

        return asyncio.run(gather())

    def text(self, query: LogQuery = LogQuery(), mask: tuple[bytes, ...] = ()) -> bytes:
        return b"".join(chunk.data for chunk in self.read(query, mask))


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run(tmp_path)


def test_a_run_without_logs_has_none(run: Run) -> None:
    assert run.read() == []


def test_a_whole_log_and_an_unfinished_last_line(run: Run) -> None:
    run.write("worker-0", b"one\ntwo\nthr")
    assert run.read() == [LogChunk("worker-0", 0, b"one\ntwo\nthr", time=pytest.approx(time.time(), abs=60))]


def test_the_newest_attempt_unless_asked_otherwise(run: Run) -> None:
    run.write("worker-0", b"first\n", attempt=0, at=10.0)
    run.write("worker-0", b"tenth\n", attempt=10, at=30.0)
    run.write("worker-0", b"second\n", attempt=2, at=20.0)
    assert run.text() == b"tenth\n"
    assert run.text(LogQuery(attempt=2)) == b"second\n"
    assert run.text(LogQuery(attempt=-1)) == b"first\nsecond\ntenth\n"
    assert run.text(LogQuery(attempt=7)) == b""


def test_roles_indexes_and_processes_are_told_apart(run: Run) -> None:
    run.write("worker-0", b"w0\n")
    run.write("worker-0", b"w0.1\n", rank=1)
    run.write("worker-1", b"w1\n")
    run.write("eval-worker-0", b"e\n")
    assert sorted(chunk.task for chunk in run.read()) == ["eval-worker-0", "worker-0", "worker-0.1", "worker-1"]
    assert {chunk.task for chunk in run.read(LogQuery(role="worker", index=0))} == {"worker-0", "worker-0.1"}
    assert run.text(LogQuery(role="eval-worker")) == b"e\n"


def test_files_that_are_no_logs_are_left_alone(run: Run) -> None:
    path = run.write("worker-0", b"w0\n")
    (path.parent / "out-0.log.bak").write_bytes(b"no")
    (path.parent.parent / "README").write_bytes(b"no")
    assert run.text() == b"w0\n"


def test_several_logs_come_in_the_order_of_time_and_in_whole_lines(run: Run) -> None:
    run.write("worker-0", b"a1\na2 ", at=1.0)
    run.write("worker-1", b"b1\n", at=2.0)
    run.write("worker-0", b"rest\na3\n", at=3.0)
    run.write("worker-1", b"b2\n", at=4.0)
    assert [(chunk.task, chunk.data, chunk.time) for chunk in run.read()] == [
        ("worker-0", b"a1\na2 rest\n", 1.0),
        ("worker-1", b"b1\n", 2.0),
        ("worker-0", b"a3\n", 3.0),
        ("worker-1", b"b2\n", 4.0),
    ]


def test_where_times_matter_a_chunk_has_one(run: Run) -> None:
    run.write("worker-0", b"a1\n", at=1.0)
    run.write("worker-0", b"a2\na3\n", at=2.5)
    assert [(chunk.data, chunk.time) for chunk in run.read(LogQuery(timed=True))] == [(b"a1\n", 1.0), (b"a2\na3\n", 2.5)]
    assert [(chunk.data, chunk.time) for chunk in run.read()] == [(b"a1\na2\na3\n", 1.0)]


@pytest.mark.parametrize(
    ("data", "count", "expected"),
    [
        (b"1\n2\n3\n", 2, b"2\n3\n"),
        (b"1\n2\n3", 2, b"2\n3"),
        (b"1\n2\n3\n", 9, b"1\n2\n3\n"),
        (b"1\n2\n3\n", 0, b""),
        (b"\n\n\n", 2, b"\n\n"),
        (b"", 2, b""),
    ],
)
def test_tail(run: Run, data: bytes, count: int, expected: bytes) -> None:
    run.write("worker-0", data)
    assert run.text(LogQuery(tail=count)) == expected


def test_a_tail_longer_than_the_blocks_it_is_read_in(run: Run) -> None:
    lines = [b"%07d " % number + b"x" * (number % 300) + b"\n" for number in range(20_000)]
    run.write("worker-0", b"".join(lines))
    assert run.text(LogQuery(tail=12_345)) == b"".join(lines[-12_345:])


def test_a_tail_over_attempts_counts_from_the_newest(run: Run) -> None:
    run.write("worker-0", b"1\n2\n3\n", attempt=0, at=1.0)
    run.write("worker-0", b"4\n", attempt=1, at=2.0)
    assert run.text(LogQuery(attempt=-1, tail=3)) == b"2\n3\n4\n"


def test_each_task_has_its_own_tail(run: Run) -> None:
    run.write("worker-0", b"a1\na2\n", at=1.0)
    run.write("worker-1", b"b1\nb2\n", at=2.0)
    assert run.text(LogQuery(tail=1)) == b"a2\nb2\n"


def test_a_tail_of_a_huge_log_is_as_fast_as_of_a_small_one(run: Run) -> None:
    path = run.write("worker-0", b"")
    with path.open("r+b") as file:
        file.truncate(1 << 30)
        file.seek(0, os.SEEK_END)
        file.write(b"\nlast but one\nlast\n")
    begun = time.process_time()
    assert run.text(LogQuery(tail=2)) == b"last but one\nlast\n"
    assert time.process_time() - begun < 0.5


def test_since_begins_at_the_line_that_was_being_written(run: Run) -> None:
    path = run.write("worker-0", b"old\n", at=10.0)
    run.write("worker-0", b"middle ", at=20.0)
    run.write("worker-0", b"end\nnew\n", at=30.0)
    os.utime(path, (30.0, 30.0))
    assert run.text(LogQuery(since=5.0)) == b"old\nmiddle end\nnew\n"
    assert run.text(LogQuery(since=15.0)) == b"middle end\nnew\n"
    assert run.text(LogQuery(since=25.0)) == b"middle end\nnew\n"
    assert run.text(LogQuery(since=31.0)) == b""
    assert run.text(LogQuery(since=25.0, tail=1)) == b"new\n"


def test_since_shows_what_is_not_indexed_yet(run: Run) -> None:
    run.write("worker-0", b"old\n", at=10.0)
    run.write("worker-0", b"new\n")
    assert run.text(LogQuery(since=15.0)) == b"new\n"


def test_grep_takes_matching_lines_and_the_last_ones_of_them(run: Run) -> None:
    run.write("worker-0", b"".join(b"step %d loss=%d\nnoise\n" % (number, number % 10) for number in range(5000)) + b"loss=9 end")
    assert run.text(LogQuery(grep=r"step \d+9 loss=9", tail=2)) == b"step 4989 loss=9\nstep 4999 loss=9\n"
    assert run.text(LogQuery(grep="^loss")) == b"loss=9 end"
    assert run.text(LogQuery(grep="noise")) == b"noise\n" * 5000


def test_a_bad_expression_is_refused(run: Run) -> None:
    run.write("worker-0", b"x\n")
    with pytest.raises(UsageError, match="is not a regular expression"):
        run.read(LogQuery(grep="("))


def test_secrets_are_masked_before_the_search(run: Run) -> None:
    run.write("worker-0", b"token=hunter2\n")
    assert run.text(mask=(b"hunter2",)) == b"token=***\n"
    assert run.text(LogQuery(grep="hunter2"), mask=(b"hunter2",)) == b""


def test_a_secret_across_a_border_of_blocks_is_masked(run: Run) -> None:
    run.write("worker-0", (b"x" * 1019 + b"hunter2") * 1000)
    assert b"hunter2" not in run.text(mask=(b"hunter2",))
    assert run.text(mask=(b"hunter2",)).count(b"***") == 1000


def test_a_hole_at_the_beginning_is_skipped(run: Run) -> None:
    lines = [b"line %06d\n" % number for number in range(20_000)]
    path = run.write("worker-0", b"".join(lines))
    with path.open("r+b") as file:
        _punch(file.fileno(), 10_000)
    shown = run.text()
    # 10,000 bytes are 833 lines and a part of another; the truncated line is not shown.
    assert shown == b"".join(lines[834:])
    assert run.text(LogQuery(tail=30_000)) == shown


def _punch(handle: int, length: int) -> None:
    import ctypes

    keep_size, punch = 1, 2
    library = ctypes.CDLL(None, use_errno=True)
    if library.fallocate(handle, keep_size | punch, ctypes.c_long(0), ctypes.c_long(length)) != 0:
        pytest.skip("no holes on this file system")


# Following


class Following:
    """A follower in the background, and what it has shown so far."""

    def __init__(self, run: Run, query: LogQuery, reader: LogReader, mask: tuple[bytes, ...] = ()) -> None:
        self.run = run
        self.over = False
        self.reader = reader
        self.chunks: list[LogChunk] = []
        self.arrived: list[float] = []
        self._news = asyncio.Event()
        self._task = asyncio.create_task(self._go(query, mask))

    async def _go(self, query: LogQuery, mask: tuple[bytes, ...]) -> None:
        async for chunk in self.reader.read(JOB, query, lambda: self.over, mask):
            self.chunks.append(chunk)
            self.arrived.append(time.perf_counter())
            self._news.set()

    @property
    def text(self) -> bytes:
        return b"".join(chunk.data for chunk in self.chunks)

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(10):
            while not condition():
                await self._news.wait()
                self._news.clear()

    async def sees(self, text: bytes) -> None:
        await self.until(lambda: text in self.text)

    async def end(self) -> None:
        self.over = True
        self.reader.wake(JOB.key)
        async with asyncio.timeout(10):
            await self._task


def following(
    run: Run, body: Callable[[Following], Coroutine[Any, Any, None]], query: LogQuery | None = None, **more: Any
) -> None:
    inotify = more.pop("inotify", True)

    async def go() -> None:
        follower = Following(
            run, query or LogQuery(follow=True), LogReader(EngineHome(run.home), FileWatcher(inotify=inotify)), **more
        )
        await body(follower)

    asyncio.run(go())


@pytest.mark.parametrize("inotify", [True, False])
def test_following_shows_old_new_and_the_end(run: Run, inotify: bool) -> None:
    run.write("worker-0", b"old\n")

    async def body(follower: Following) -> None:
        await follower.sees(b"old\n")
        run.write("worker-0", b"new")
        await follower.sees(b"old\nnew")
        run.write("worker-0", b" line\n")
        await follower.end()
        assert follower.text == b"old\nnew line\n"

    following(run, body, inotify=inotify)


@pytest.mark.parametrize("inotify", [True, False])
def test_following_a_run_that_has_no_folder_yet(run: Run, inotify: bool) -> None:
    async def body(follower: Following) -> None:
        await asyncio.sleep(0)
        run.write("worker-0", b"begun\n")
        await follower.sees(b"begun\n")
        run.write("worker-1", b"me too\n")
        await follower.sees(b"me too\n")
        run.write("worker-1", b"rank 1\n", rank=1)
        await follower.sees(b"rank 1\n")
        await follower.end()

    following(run, body, inotify=inotify)


def test_following_goes_on_with_the_next_attempt(run: Run) -> None:
    run.write("worker-0", b"a\n")

    async def body(follower: Following) -> None:
        await follower.sees(b"a\n")
        run.write("worker-0", b"died\n")
        run.end("worker-0")
        run.write("worker-0", b"again\n", attempt=1)
        await follower.sees(b"again\n")
        run.end("worker-0", 1)
        await follower.end()
        assert [(chunk.attempt, chunk.data) for chunk in follower.chunks] == [(0, b"a\n"), (0, b"died\n"), (1, b"again\n")]

    following(run, body)


def test_following_one_attempt_ends_with_it(run: Run) -> None:
    run.write("worker-0", b"a\n")

    async def body(follower: Following) -> None:
        await follower.sees(b"a\n")
        run.write("worker-0", b"b\n")
        run.end("worker-0")
        async with asyncio.timeout(10):
            await follower._task
        assert follower.text == b"a\nb\n"

    following(run, body, LogQuery(follow=True, attempt=0))


def test_following_from_the_end_shows_only_what_is_new(run: Run) -> None:
    run.write("worker-0", b"old\n")

    async def body(follower: Following) -> None:
        # Nothing signals that the follower has reached the end, so write until some of the later data has arrived.
        for number in range(1000):
            run.write("worker-0", b"new %d\n" % number)
            await asyncio.sleep(0.001)
            if follower.chunks:
                break
        await follower.end()
        assert follower.text.startswith(b"new ")
        assert follower.text.endswith(b"new %d\n" % number)

    following(run, body, LogQuery(follow=True, tail=0))


def test_a_secret_written_in_two_pieces_is_masked(run: Run) -> None:
    async def body(follower: Following) -> None:
        run.write("worker-0", b"pw: hun")
        await follower.sees(b"pw: ")
        run.write("worker-0", b"ter2 ok")
        await follower.sees(b"ok")
        await follower.end()
        assert follower.text == b"pw: *** ok"

    following(run, body, mask=(b"hunter2",))


def test_searching_while_following_shows_whole_lines(run: Run) -> None:
    async def body(follower: Following) -> None:
        run.write("worker-0", b"no\nlo")
        run.write("worker-0", b"ss=1\nno\n")
        await follower.sees(b"loss=1\n")
        await follower.end()
        assert follower.text == b"loss=1\n"

    following(run, body, LogQuery(follow=True, grep="loss"))


def test_a_log_that_was_emptied_is_read_from_its_beginning(run: Run) -> None:
    path = run.write("worker-0", b"a long first line\n")

    async def body(follower: Following) -> None:
        await follower.sees(b"first line\n")
        os.truncate(path, 0)
        run.write("worker-0", b"short\n")
        await follower.sees(b"short\n")
        await follower.end()

    following(run, body)


def test_what_is_written_arrives_within_milliseconds(run: Run) -> None:
    run.write("worker-0", b"start\n")

    async def body(follower: Following) -> None:
        await follower.sees(b"start\n")
        delays: list[float] = []
        for number in range(50):
            line = b"line %d\n" % number
            begun = time.perf_counter()
            run.write("worker-0", line)
            await follower.sees(line)
            delays.append(follower.arrived[-1] - begun)
        await follower.end()
        # Polling would take longer, however busy the machine.
        assert sorted(delays)[len(delays) // 2] < POLL / 4

    following(run, body)


def test_waiting_costs_no_processor_time(run: Run) -> None:
    run.write("worker-0", b"start\n")

    async def body(follower: Following) -> None:
        await follower.sees(b"start\n")
        begun = time.process_time()
        await asyncio.sleep(0.5)
        assert time.process_time() - begun < 0.05
        await follower.end()

    following(run, body)


def test_a_follower_that_goes_away_leaves_no_handle(run: Run) -> None:
    run.write("worker-0", b"x\n")

    async def go() -> None:
        reader = LogReader(EngineHome(run.home))
        chunks = reader.read(JOB, LogQuery(follow=True), lambda: False)
        assert (await anext(chunks)).data == b"x\n"
        await chunks.aclose()  # type: ignore[attr-defined]

    def handles() -> int:
        return len(os.listdir("/proc/self/fd"))

    asyncio.run(go())
    before = handles()
    asyncio.run(go())
    assert handles() == before


@pytest.mark.timeout(30)
@pytest.mark.parametrize("follow", [False, True])
def test_what_is_no_regular_file_is_passed_over_and_holds_nothing_up(run: Run, follow: bool) -> None:
    run.write("worker-0", b"zero\n")
    os.mkfifo(run.attempts / "worker-0-0" / "out-0.index")
    os.mkfifo(run.attempts / "worker-0-0" / "out-1.log")
    (run.attempts / "worker-0-0" / "out-2.log").symlink_to("/dev/zero")
    (run.attempts / "worker-0-0" / "out-3.log").mkdir()
    os.mkdir(os.fsencode(run.attempts) + b"/w\xff-0-0")
    assert run.text(LogQuery(follow=follow)) == b"zero\n"


@pytest.mark.parametrize("index", ["3 1e400\n", "-7 nan\n", "9" * 60 + " 5.0\n", "x" * 100_000, "3 5.0\n\0\0\n"])
def test_an_index_that_the_program_wrote_over_changes_times_and_no_line(run: Run, index: str) -> None:
    path = run.write("worker-0", b"one\ntwo\n")
    run.write("worker-1", b"three\n", at=10.0)
    path.with_suffix(".index").write_text(index)
    for query in (LogQuery(), LogQuery(timed=True), LogQuery(tail=5), LogQuery(since=1.0)):
        found = run.read(query)
        assert sorted(b"".join(chunk.data for chunk in found).split()) == [b"one", b"three", b"two"]
        assert all(chunk.time is None or chunk.time == chunk.time < 1e11 for chunk in found)


def test_what_was_removed_is_counted_and_never_read_as_zeros(run: Run) -> None:
    path = run.write("worker-0", b"a" * 8200 + b"\n" + b"b" * 8191 + b"\n")
    with path.open("rb+") as file:
        assert kernel_call.punch_hole(file.fileno(), 0, 8192)
    run.end("worker-0")
    (chunk,) = run.read(LogQuery(follow=True, streams=True))
    assert (chunk.data, chunk.skipped) == (b"b" * 8191 + b"\n", 8201)
    assert removed_bytes(run.attempts) == {"worker-0": 8201}


def test_a_reader_that_is_slower_than_the_writer_skips_what_is_gone(run: Run) -> None:
    path = run.write("worker-0", b"first\n")
    reader = LogReader(EngineHome(run.home))

    async def follow() -> list[LogChunk]:
        found = []
        async for chunk in reader.read(JOB, LogQuery(follow=True, streams=True), lambda: len(found) > 0):
            found.append(chunk)
            if len(found) == 1:
                run.write("worker-0", b"x" * (3 * 8192) + b"\n" + b"last\n")
                with path.open("rb+") as file:
                    assert kernel_call.punch_hole(file.fileno(), 0, 3 * 8192)
                run.end("worker-0")
        return found

    first, *rest = asyncio.run(follow())
    assert first.data == b"first\n"
    assert b"".join(chunk.data for chunk in rest) == b"last\n"
    assert sum(chunk.skipped for chunk in rest) == 3 * 8192 + 1


def test_streams_are_told_apart_where_the_log_knows(run: Run) -> None:
    path = run.write("worker-0", b"out\nerr\nout\n")
    path.with_suffix(".err").write_bytes(struct.pack("<qqq", -1, 4, 8))
    run.end("worker-0")
    found = [(chunk.stderr, chunk.data) for chunk in run.read(LogQuery(follow=True, streams=True))]
    assert found == [(False, b"out\n"), (True, b"err\n"), (False, b"out\n")]
    assert run.text() == b"out\nerr\nout\n"


def test_bytes_whose_stream_is_not_known_yet_wait_until_the_task_has_ended(run: Run) -> None:
    path = run.write("worker-0", b"out\nerr\n")
    path.with_suffix(".err").write_bytes(struct.pack("<q", 4))
    reader = LogReader(EngineHome(run.home))

    async def follow() -> list[LogChunk]:
        found = []
        async for chunk in reader.read(JOB, LogQuery(follow=True, streams=True), lambda: False):
            found.append(chunk)
            if len(found) == 1:
                path.with_suffix(".err").write_bytes(struct.pack("<qqq", -1, 4, 8))
            if len(found) == 2:
                break
        return found

    assert [(chunk.stderr, chunk.data) for chunk in asyncio.run(follow())] == [(False, b"out\n"), (True, b"err\n")]
