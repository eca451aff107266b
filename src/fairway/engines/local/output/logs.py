"""The output of a run's tasks, from the files that the tasks themselves append to."""

from __future__ import annotations

import asyncio
import heapq
import os
import re
import time
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from fairway.app.ports import LogChunk, LogQuery
from fairway.engines.local.folders import Home
from fairway.engines.local.output.follow import Subscription, Watcher
from fairway.engines.local.output.logfile import LogFile
from fairway.engines.local.output.mask import Mask
from fairway.engines.local.output.pattern import compile_pattern
from fairway.errors import UsageError
from fairway.runtime.pattern import LinePattern
from fairway.state.job import Job, JobKey

EXIT_FILE = "exit.json"
ALL_ATTEMPTS = -1

_ATTEMPT = re.compile(r"(?P<role>[\w.-]+)-(?P<index>[0-9]+)-(?P<attempt>[0-9]+)", re.ASCII)
_LOG = re.compile(r"out-(?P<rank>[0-9]{1,9})\.log")
_UNFINISHED_LIMIT = 1024 * 1024
"""Bytes of a line without an end that a search waits for."""
_PATIENCE = 2.0
"""Seconds that a search may take on one piece."""
_LIVE_BLOCK = 64 * 1024
_LOOK_AGAIN = 1.0
"""Seconds between questions whether the run is over, while its tasks run."""
_LOOK_AGAIN_SOON = (0.005, 0.25)
"""The same once they have all ended: from, growing to."""


@dataclass(frozen=True, slots=True, order=True)
class LogName:
    """Names one log: whose, which attempt, which process."""

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

    def __init__(self, home: Home, watcher: Watcher | None = None) -> None:
        self._home = home
        self._watcher = watcher or Watcher()
        self._followers: dict[JobKey, set[Subscription]] = {}

    async def read(
        self, job: Job, query: LogQuery, is_over: Callable[[], bool], mask: tuple[bytes, ...] = ()
    ) -> AsyncIterator[LogChunk]:
        """The chunks that the query asks for."""
        reading = _Reading(self._home.job(job.key) / "attempts", query, mask)
        subscription = self._subscribe(job.key) if query.follow else None
        try:
            if subscription is not None:
                # Watch before the first look: nothing may appear unseen between the two.
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
        """Let the followers of a run look again at once, for example because it is over."""
        for subscription in self._followers.get(key, ()):
            subscription.touch()

    def _subscribe(self, key: JobKey) -> Subscription:
        subscription = self._watcher.subscribe()
        self._followers.setdefault(key, set()).add(subscription)
        return subscription

    def _unsubscribe(self, key: JobKey, subscription: Subscription) -> None:
        subscription.close()
        followers = self._followers[key]
        followers.discard(subscription)
        if not followers:
            del self._followers[key]


def log_names(attempts: Path, query: LogQuery) -> list[LogName]:
    """The logs that a query means, by attempt, role, index and process."""
    found = [
        LogName(int(match["attempt"]), match["role"], int(match["index"]), int(log["rank"]), Path(entry) / log.string)
        for entry, match in _attempt_folders(attempts)
        if (not query.role or match["role"] == query.role) and query.index in (None, int(match["index"]))
        for log in _matches(_LOG, _listed(entry))
    ]
    if query.attempt is None:
        newest: dict[tuple[str, int], int] = {}
        for name in found:
            newest[name.role, name.index] = max(name.attempt, newest.get((name.role, name.index), 0))
        found = [name for name in found if name.attempt == newest[name.role, name.index]]
    elif query.attempt != ALL_ATTEMPTS:
        found = [name for name in found if name.attempt == query.attempt]
    return sorted(found)


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


class _Source:
    """One log being read: how far, and what was held back."""

    def __init__(self, name: LogName, mask: tuple[bytes, ...], pattern: LinePattern | None) -> None:
        self.name = name
        self.file = LogFile(name.path)
        self.at = 0
        self._mask = Mask(mask)
        self._lines = _MatchingLines(pattern) if pattern else None

    def place(self, query: LogQuery, wanted: int | None, pattern: LinePattern | None) -> int:
        """Go to where the query begins; returns how many of the wanted lines are here."""
        high = self.file.size()
        low = self.file.first()
        if query.since is not None:
            low = self.file.since(query.since, low, high)
        found = 0
        if wanted is not None:
            low, found = self.file.tail(wanted, low, high, pattern)
        self.at = low
        return found

    def shown(self, data: bytes, written: float | None) -> LogChunk | None:
        """The part of the data that may be shown and is wanted."""
        data = self._mask.feed(data)
        return self._chunk(self._lines.feed(data) if self._lines else data, written)

    def rest(self) -> LogChunk | None:
        """What was held back, at the end."""
        data = self._mask.flush()
        return self._chunk(self._lines.feed(data) + self._lines.flush() if self._lines else data, None)

    def more(self) -> LogChunk | None:
        """What was written since; one block at most. None and no advance when there is nothing."""
        size = self.file.size()
        if size < self.at:
            # Somebody emptied the file; begin again, as `tail -f` does.
            self.at = 0
        data = self.file.read(self.at, _LIVE_BLOCK) if size > self.at else b""
        self.at += len(data)
        return self.shown(data, self.file.written()) if data else None

    @property
    def unread(self) -> bool:
        return self.file.size() != self.at

    def _chunk(self, data: bytes, written: float | None) -> LogChunk | None:
        return LogChunk(self.name.task, self.name.attempt, data, written) if data else None


class _MatchingLines:
    """Lets whole lines through that match."""

    def __init__(self, pattern: LinePattern) -> None:
        self._pattern = pattern
        self._unfinished = b""

    def feed(self, data: bytes) -> bytes:
        lines = (self._unfinished + data).splitlines(keepends=True)
        self._unfinished = b""
        if lines and not lines[-1].endswith((b"\n", b"\r")) and len(lines[-1]) < _UNFINISHED_LIMIT:
            self._unfinished = lines.pop()
        begun = time.monotonic()
        found = b"".join(line for line in lines if self._pattern.search(line))
        if time.monotonic() - begun > _PATIENCE:
            message = f"searching for {str(self._pattern)!r} takes too long on these lines"
            raise UsageError(message, fix="write an expression with fewer repetitions, or pipe the log through grep")
        return found

    def flush(self) -> bytes:
        line, self._unfinished = self._unfinished, b""
        return line if line and self._pattern.search(line) else b""


class _Reading:
    """One call of `read`."""

    def __init__(self, folder: Path, query: LogQuery, mask: tuple[bytes, ...]) -> None:
        self._folder = folder
        self._query = query
        self._mask = mask
        self._pattern = compile_pattern(query.grep) if query.grep else None
        self._sources: dict[LogName, _Source] = {}
        self._ended: set[Path] = set()
        """Folders of attempts whose processes are gone."""
        self._read: set[LogName] = set()
        """Logs of such attempts, read to the end and closed."""

    def close(self) -> None:
        for source in self._sources.values():
            source.file.close()

    async def so_far(self) -> AsyncIterator[LogChunk]:
        """What is there already, in the order of time."""
        for name in log_names(self._folder, self._query):
            self._open(name)
        # Going to the place may mean a long search backwards: not on the event loop.
        await asyncio.to_thread(self._place)
        ends = {source: source.file.size() for source in self._sources.values()}
        coarse = len(ends) == 1 and not self._query.timed
        streams = [_timed(source, end, coarse, order) for order, (source, end) in enumerate(ends.items())]
        for written, _, source, data in heapq.merge(*streams, key=lambda piece: piece[:2]):
            chunk = source.shown(data, written)
            if chunk:
                yield chunk
            # Others of this process get their turn, however fast the reader is.
            await asyncio.sleep(0)
        if not self._query.follow:
            for chunk in self._rests():
                yield chunk

    async def live(self, subscription: Subscription, is_over: Callable[[], bool]) -> AsyncIterator[LogChunk]:
        """What is written from now on, each log in its turn."""
        soon, limit = _LOOK_AGAIN_SOON
        changed: set[Path] | None = None
        while True:
            # Asked before reading: whatever was written until it was over is read below.
            over = is_over()
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

    def watch(self, subscription: Subscription) -> None:
        """Watch what is there now and what may come, and open logs that have appeared."""
        self._watch_folders(subscription)
        for name in log_names(self._folder, self._query):
            if name not in self._read:
                self._open(name)
                subscription.watch(name.path)
        folders = {name.path.parent for name in self._sources} - self._ended
        self._ended.update(folder for folder in folders if (folder / EXIT_FILE).exists())

    def _watch_folders(self, subscription: Subscription) -> None:
        nearest = self._folder
        while not nearest.is_dir() and nearest != nearest.parent:
            nearest = nearest.parent
        subscription.watch(nearest)
        if nearest == self._folder:
            for entry, _ in _attempt_folders(self._folder):
                subscription.watch(Path(entry))

    def _open(self, name: LogName) -> None:
        if name in self._sources:
            return
        try:
            self._sources[name] = _Source(name, self._mask, self._pattern)
        except OSError:
            # Forgotten between the look and the opening, or replaced by something that is no file to read.
            return

    def _place(self) -> None:
        """Put every log at its beginning; a tail counts backwards over the attempts of a process."""
        wanted: dict[str, int] = {}
        for name in sorted(self._sources, reverse=True):
            left = wanted.get(name.task, self._query.tail) if self._query.tail is not None else None
            found = self._sources[name].place(self._query, left, self._pattern)
            if left is not None:
                wanted[name.task] = left - found

    def _round(self, changed: set[Path] | None) -> Iterator[LogChunk]:
        for source in list(self._sources.values()):
            if changed is None or source.name.path in changed:
                chunk = source.more()
                if chunk:
                    yield chunk

    def _rests(self) -> Iterator[LogChunk]:
        for source in self._sources.values():
            chunk = source.rest()
            if chunk:
                yield chunk

    def _retire(self) -> Iterator[LogChunk]:
        """Close logs that cannot grow any more: a run may start again a thousand times."""
        for name, source in list(self._sources.items()):
            if name.path.parent in self._ended and not source.unread:
                source.file.close()
                del self._sources[name]
                self._read.add(name)
                chunk = source.rest()
                if chunk:
                    yield chunk

    def _all_ended(self) -> bool:
        return bool(self._read) and not self._sources

    def _attempt_is_over(self) -> bool:
        """One attempt was asked for, and it has ended: nothing more will come."""
        return self._query.attempt not in (None, ALL_ATTEMPTS) and self._all_ended()


def _timed(source: _Source, end: int, coarse: bool, order: int) -> Iterator[tuple[float, int, _Source, bytes]]:
    pieces = source.file.pieces(source.at, end) if coarse else source.file.timed_pieces(source.at, end)
    for written, data in pieces:
        source.at += len(data)
        yield written, order, source, data
