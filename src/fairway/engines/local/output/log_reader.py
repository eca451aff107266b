"""Reads the output of a run's tasks from the log files to which the tasks append."""

from __future__ import annotations

import asyncio
import heapq
import os
import re
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path

from fairway.app.port.port import LogChunk, LogQuery
from fairway.engines.local.home import EngineHome
from fairway.engines.local.output.file_watch import FileSubscription, FileWatcher
from fairway.engines.local.output.log_file import LogFile
from fairway.engines.local.output.pattern import compile_pattern
from fairway.engines.local.output.secret_mask import SecretMask
from fairway.engines.local.output.stream_span import MARKS, StreamSpans
from fairway.errors import UsageError
from fairway.runtime.line_pattern import LinePattern
from fairway.state.job import JobKey, JobState

EXIT_FILE = "exit.json"
ALL_ATTEMPTS = -1

_ATTEMPT = re.compile(r"(?P<role>[\w.-]+)-(?P<index>[0-9]+)-(?P<attempt>[0-9]+)", re.ASCII)
_LOG = re.compile(r"out-(?P<rank>[0-9]{1,9})\.log")
_UNFINISHED_LIMIT = 1024 * 1024
"""Limit of bytes in an unfinished line that a search waits for."""
_PATIENCE = 2.0
"""Time limit of a search in one piece, in seconds."""
_LIVE_BLOCK = 64 * 1024
_LOOK_AGAIN = 1.0
"""Seconds between checks whether the run is over, while its tasks run."""
_LOOK_AGAIN_SOON = (0.005, 0.25)
"""The same once all its tasks have ended: the first interval and the longest."""


@dataclass(frozen=True, slots=True, order=True)
class TaskLogName:
    """Identifies one log: by attempt, task and process."""

    attempt: int
    role: str
    index: int
    rank: int
    path: Path = field(compare=False)

    @property
    def task(self) -> str:
        """`worker-0`, or `worker-0.1` for the second process."""
        return f"{self.role}-{self.index}.{self.rank}" if self.rank else f"{self.role}-{self.index}"


class LogReader:
    """Reads logs below `jobs/<namespace>/<job>/attempts/` of a home.

    Promises:

    1. A tail costs as much as it shows, whatever the size of the log.
    2. Lines of several tasks come in the order of time, to the resolution of their indexes; no line is cut by another's.
    3. With `follow`, what a task writes arrives within milliseconds; attempts that start meanwhile are included;
       it ends when the run is over and everything was read. Waiting costs nothing.
    4. No masked value appears, wherever pieces are cut.
    """

    def __init__(self, home: EngineHome, watcher: FileWatcher | None = None) -> None:
        self._home = home
        self._watcher = watcher or FileWatcher()
        self._followers: dict[JobKey, set[FileSubscription]] = {}

    async def read(
        self, job: JobState, query: LogQuery, is_over: Callable[[], bool], mask: tuple[bytes, ...] = ()
    ) -> AsyncIterator[LogChunk]:
        """Yield the chunks that the query selects."""
        reading = _LogQueryRun(self._home.job(job.key) / "attempts", query, mask)
        subscription = self._subscribe(job.key) if query.follow else None
        try:
            if subscription is not None:
                # Watch before the first read, so that nothing appears unnoticed between the two.
                reading.watch(subscription)
            async for chunk in reading.so_far():
                yield chunk
            if subscription is not None:
                async for chunk in reading.live(subscription, is_over):
                    yield chunk
        finally:
            reading.close()
            if subscription is not None:
                self._unsubscribe(job.key, subscription)

    def wake(self, key: JobKey) -> None:
        """Make the followers of a run check again at once, for example because it is over."""
        for subscription in self._followers.get(key, ()):
            subscription.touch()

    def _subscribe(self, key: JobKey) -> FileSubscription:
        subscription = self._watcher.subscribe()
        self._followers.setdefault(key, set()).add(subscription)
        return subscription

    def _unsubscribe(self, key: JobKey, subscription: FileSubscription) -> None:
        subscription.close()
        followers = self._followers[key]
        followers.discard(subscription)
        if not followers:
            del self._followers[key]


def log_names(attempts: Path, query: LogQuery) -> list[TaskLogName]:
    """Return the logs that a query selects, by attempt, role, index and process."""
    names = [
        TaskLogName(int(match["attempt"]), match["role"], int(match["index"]), int(log["rank"]), Path(entry) / log.string)
        for entry, match in _attempt_folders(attempts)
        if (not query.role or match["role"] == query.role) and query.index in (None, int(match["index"]))
        for log in _matches(_LOG, _listed(entry))
    ]
    if query.attempt is None:
        newest: dict[tuple[str, int], int] = {}
        for name in names:
            newest[name.role, name.index] = max(name.attempt, newest.get((name.role, name.index), 0))
        names = [name for name in names if name.attempt == newest[name.role, name.index]]
    elif query.attempt != ALL_ATTEMPTS:
        names = [name for name in names if name.attempt == query.attempt]
    return sorted(names)


def removed_bytes(attempts: Path) -> dict[str, int]:
    """Return the number of bytes removed from the beginning of the newest logs, by process name; complete logs are left out."""
    removed_by_task = {}
    for name in log_names(attempts, LogQuery()):
        try:
            with closing(LogFile(name.path)) as file:
                if removed := file.removed():
                    removed_by_task[name.task] = removed
        except OSError:
            continue
    return removed_by_task


def _attempt_folders(attempts: Path) -> Iterator[tuple[str, re.Match[str]]]:
    for match in _matches(_ATTEMPT, _listed(attempts)):
        yield os.path.join(attempts, match.string), match


def _matches(pattern: re.Pattern[str], names: list[str]) -> Iterator[re.Match[str]]:
    return (match for name in names if (match := pattern.fullmatch(name)))


def _listed(folder: str | Path) -> list[str]:
    try:
        return os.listdir(folder)
    except (FileNotFoundError, NotADirectoryError):
        return []


class _LogSource:
    """One log that is being read: its position, and the data held back."""

    def __init__(self, name: TaskLogName, mask: tuple[bytes, ...], pattern: LinePattern | None, streams: bool = False) -> None:
        self.name = name
        self.file = LogFile(name.path)
        self.at = 0
        self._skipped = 0
        """Bytes that were removed since the last chunk."""
        self.final = False
        """Whether the log is complete."""
        self._spans = StreamSpans(name.path) if streams else None
        self._filters = {stderr: _StreamFilter(mask, pattern) for stderr in (False, True)}

    def place(self, query: LogQuery, wanted: int | None, pattern: LinePattern | None) -> int:
        """Set the position to where the query begins; return how many of the wanted lines follow it."""
        high = self.file.size()
        low = self.file.first()
        if query.since is not None:
            low = self.file.since(query.since, low, high)
        lines_found = 0
        if wanted is not None:
            low, lines_found = self.file.tail(wanted, low, high, pattern)
        self._skipped = low if wanted is None and query.since is None else 0
        self.at = low
        return lines_found

    def shown(self, data: bytes, written: float | None) -> list[LogChunk]:
        """Return the data to show, masked and filtered. The data ends at the present position."""
        data = self._without_hole(data)
        pieces = self._spans.split(self.at - len(data), data) if self._spans else [(False, data)]
        return self._chunks([(stderr, self._filters[stderr].feed(piece)) for stderr, piece in pieces], written)

    def rest(self) -> list[LogChunk]:
        """Return the data held back, at the end of the log."""
        return self._chunks([(stderr, held.flush()) for stderr, held in self._filters.items()], None)

    def more(self) -> list[LogChunk]:
        """Return new data, one block at most; nothing, without advancing, when there is none."""
        size = self.end()
        if self.file.size() < self.at:
            # The file was truncated: start again, as `tail -f` does.
            self.at = 0
        data = self.file.read(self.at, min(_LIVE_BLOCK, size - self.at)) if size > self.at else b""
        self.at += len(data)
        return self.shown(data, self.file.written()) if data else []

    def end(self) -> int:
        """Return how far the log can be read: to its end, or less while the stream of the last bytes is not known."""
        size = self.file.size()
        return size if self._spans is None or self.final else self._spans.known(size)

    @property
    def unread(self) -> bool:
        return self.end() != self.at

    def close(self) -> None:
        """Close the files."""
        self.file.close()
        if self._spans:
            self._spans.close()

    def _without_hole(self, data: bytes) -> bytes:
        """Return the data without bytes that were removed before they were read: a reader may be slower than the writer."""
        if data[:1] != b"\0":
            return data
        begin = self.at - len(data)
        removed_count = min(max(0, self.file.removed() - begin), len(data))
        self._skipped += removed_count
        return data[removed_count:]

    def _chunks(self, pieces: list[tuple[bool, bytes]], written: float | None) -> list[LogChunk]:
        chunks = [LogChunk(self.name.task, self.name.attempt, data, written, stderr) for stderr, data in pieces if data]
        if chunks and self._skipped:
            chunks[0] = replace(chunks[0], skipped=self._skipped)
            self._skipped = 0
        return chunks


class _StreamFilter:
    """Masks and filters one stream."""

    def __init__(self, mask: tuple[bytes, ...], pattern: LinePattern | None) -> None:
        self._mask = SecretMask(mask)
        self._lines = _MatchingLines(pattern) if pattern else None

    def feed(self, data: bytes) -> bytes:
        data = self._mask.feed(data)
        return self._lines.feed(data) if self._lines else data

    def flush(self) -> bytes:
        data = self._mask.flush()
        return self._lines.feed(data) + self._lines.flush() if self._lines else data


class _MatchingLines:
    """Passes on whole lines that match."""

    def __init__(self, pattern: LinePattern) -> None:
        self._pattern = pattern
        self._unfinished = b""

    def feed(self, data: bytes) -> bytes:
        lines = (self._unfinished + data).splitlines(keepends=True)
        self._unfinished = b""
        if lines and not lines[-1].endswith((b"\n", b"\r")) and len(lines[-1]) < _UNFINISHED_LIMIT:
            self._unfinished = lines.pop()
        begun = time.monotonic()
        matching = b"".join(line for line in lines if self._pattern.search(line))
        if time.monotonic() - begun > _PATIENCE:
            message = f"searching for {str(self._pattern)!r} takes too long on these lines"
            raise UsageError(message, fix="write an expression with fewer repetitions, or pipe the log through grep")
        return matching

    def flush(self) -> bytes:
        line, self._unfinished = self._unfinished, b""
        return line if line and self._pattern.search(line) else b""


class _LogQueryRun:
    """The state of one call of `read`."""

    def __init__(self, folder: Path, query: LogQuery, mask: tuple[bytes, ...]) -> None:
        self._folder = folder
        self._query = query
        self._mask = mask
        self._pattern = compile_pattern(query.grep) if query.grep else None
        self._sources: dict[TaskLogName, _LogSource] = {}
        self._ended: set[Path] = set()
        """Folders of attempts whose processes have ended."""
        self._read: set[TaskLogName] = set()
        """Logs of ended attempts, read to the end and closed."""

    def close(self) -> None:
        for source in self._sources.values():
            source.close()

    async def so_far(self) -> AsyncIterator[LogChunk]:
        """Yield the existing output, in the order of time."""
        for name in log_names(self._folder, self._query):
            self._open(name)
        # Finding the position may take a long search backwards, which must not block the event loop.
        await asyncio.to_thread(self._place)
        ends = {source: source.end() for source in self._sources.values()}
        coarse = len(ends) == 1 and not self._query.timed
        streams = [_timed(source, end, coarse, order) for order, (source, end) in enumerate(ends.items())]
        for written, _, source, data in heapq.merge(*streams, key=lambda piece: piece[:2]):
            for chunk in source.shown(data, written):
                yield chunk
            # Yield to other tasks of the event loop, however fast the reader is.
            await asyncio.sleep(0)
        if not self._query.follow:
            for chunk in self._rests():
                yield chunk

    async def live(self, subscription: FileSubscription, is_over: Callable[[], bool]) -> AsyncIterator[LogChunk]:
        """Yield what is written from now on, log by log."""
        soon, limit = _LOOK_AGAIN_SOON
        changed: set[Path] | None = None
        while True:
            # Checked before reading: whatever was written before the run was over is read below.
            over = is_over()
            changed = {path.with_suffix(".log") if path.suffix == MARKS else path for path in changed} if changed else None
            for source in self._sources.values():
                source.final = source.final or over
            if changed is None or over or any(path.suffix != ".log" for path in changed):
                self.watch(subscription)
            for chunk in self._round(changed if changed and not over else None):
                yield chunk
            for chunk in self._retire():
                yield chunk
            if any(source.unread for source in self._sources.values()):
                changed = None
                await asyncio.sleep(0)
                continue
            if over or self._attempt_is_over():
                break
            pause = soon if self._all_ended() else _LOOK_AGAIN
            soon = min(soon * 1.5, limit) if pause == soon else _LOOK_AGAIN_SOON[0]
            changed = await subscription.wait(pause) or None
        for chunk in self._rests():
            yield chunk

    def watch(self, subscription: FileSubscription) -> None:
        """Watch the existing folders and logs, and open logs that have appeared."""
        self._watch_folders(subscription)
        for name in log_names(self._folder, self._query):
            if name not in self._read:
                self._open(name)
                subscription.watch(name.path)
                if self._query.streams and (marks := name.path.with_suffix(MARKS)).exists():
                    subscription.watch(marks)
        folders = {name.path.parent for name in self._sources} - self._ended
        self._ended.update(folder for folder in folders if (folder / EXIT_FILE).exists())

    def _watch_folders(self, subscription: FileSubscription) -> None:
        nearest = self._folder
        while not nearest.is_dir() and nearest != nearest.parent:
            nearest = nearest.parent
        subscription.watch(nearest)
        if nearest == self._folder:
            for entry, _ in _attempt_folders(self._folder):
                subscription.watch(Path(entry))

    def _open(self, name: TaskLogName) -> None:
        if name in self._sources:
            return
        try:
            self._sources[name] = _LogSource(name, self._mask, self._pattern, self._query.streams)
        except OSError:
            # Removed between the listing and the opening, or replaced by something that is not a regular file.
            return

    def _place(self) -> None:
        """Set the starting position of every log; a tail counts backwards over the attempts of a process."""
        lines_left: dict[str, int] = {}
        for name in sorted(self._sources, reverse=True):
            still_wanted = lines_left.get(name.task, self._query.tail) if self._query.tail is not None else None
            lines_found = self._sources[name].place(self._query, still_wanted, self._pattern)
            if still_wanted is not None:
                lines_left[name.task] = still_wanted - lines_found

    def _round(self, changed: set[Path] | None) -> Iterator[LogChunk]:
        for source in list(self._sources.values()):
            if changed is None or source.name.path in changed:
                yield from source.more()

    def _rests(self) -> Iterator[LogChunk]:
        for source in self._sources.values():
            yield from source.rest()

    def _retire(self) -> Iterator[LogChunk]:
        """Close complete logs: a run may restart a thousand times."""
        for name, source in list(self._sources.items()):
            source.final = source.final or name.path.parent in self._ended
            if name.path.parent in self._ended and not source.unread:
                source.close()
                del self._sources[name]
                self._read.add(name)
                yield from source.rest()

    def _all_ended(self) -> bool:
        return bool(self._read) and not self._sources

    def _attempt_is_over(self) -> bool:
        """Return whether the query selects one attempt and it has ended: nothing more will come."""
        return self._query.attempt not in (None, ALL_ATTEMPTS) and self._all_ended()


def _timed(source: _LogSource, end: int, coarse: bool, order: int) -> Iterator[tuple[float, int, _LogSource, bytes]]:
    pieces = source.file.pieces(source.at, end) if coarse else source.file.timed_pieces(source.at, end)
    for written, data in pieces:
        source.at += len(data)
        yield written, order, source, data
