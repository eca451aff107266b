"""Pairs of answers on their way to the process that compares them.

The router hands pairs over and counts what comes back; it never waits for either. Memory is bounded: answers that do not fit,
and pairs that come faster than they are compared, are counted and left out.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress

from fairway.serving.router.comparison import frame
from fairway.serving.router.counting import RevisionCount
from fairway.state.load import OutputComparison
from fairway.state.route import Mirror

LARGEST = 1024 * 1024
"""Bytes of an answer that are kept; a larger one is not compared."""
KEPT = 16 * 1024 * 1024
"""Bytes of all answers together that are kept until their copies are answered and compared."""
WAITING = 64
"""Pairs handed over and not compared yet; one more is left out."""
_A_SECOND = 200
"""Pairs that are compared within a second at the most."""
_PAUSES = (0.0, 1.0, 5.0, 30.0)
"""Seconds before the process is started again, by how often it ended without having compared anything."""


class KeptAnswer:
    """An answer as it came from its replica, kept until it was compared. What is too large is let go."""

    __slots__ = ("_comparer", "lines", "pieces", "size", "whole")

    def __init__(self, comparer: Comparer, lines: Sequence[bytes]) -> None:
        self.lines = lines
        self.pieces: list[bytes] = []
        self.size = 0
        self.whole = True
        """Nothing of it was let go."""
        self._comparer = comparer

    def add(self, piece: bytes) -> None:
        """More of its body."""
        if not self.whole or not piece:
            return
        size = len(piece)
        if self.size + size > LARGEST or self._comparer.used + size > KEPT:
            self.close()
            self.whole = False
            return
        self._comparer.used += size
        self.size += size
        self.pieces.append(piece)

    def close(self) -> None:
        """It is not needed any more."""
        self._comparer.used -= self.size
        self.size = 0
        self.pieces = []


class Comparer:
    """Compares pairs of answers in a process of its own, which lives as long as there is something to compare."""

    def __init__(self, tolerance: float, now: Callable[[], float]) -> None:
        self.tolerance = tolerance
        self.used = 0
        """Bytes of answers that are kept."""
        self._now = now
        self._asked: dict[int, tuple[RevisionCount, KeptAnswer, KeptAnswer]] = {}
        """What was handed over, or waits for the process to start."""
        self._unsent: list[int] = []
        self._number = 0
        self._second = 0
        self._within = 0
        self._process: asyncio.subprocess.Process | None = None
        self._task: asyncio.Task[None] | None = None
        self._taken = 0
        self._failures = 0
        self._closed = False
        self._not_before = 0.0

    def keep(self, lines: Sequence[bytes]) -> KeptAnswer:
        """Begin to keep an answer with these lines in its head."""
        return KeptAnswer(self, lines)

    def compare(self, count: RevisionCount, mine: KeptAnswer, copy: KeptAnswer) -> None:
        """Have a client's answer and the answer to its copy compared, and count what is found; both are closed then."""
        if not (mine.whole and copy.whole):
            count.outputs = count.outputs.plus(OutputComparison(incomparable=1))
        elif not self._has_room():
            count.outputs = count.outputs.plus(OutputComparison(skipped=1))
        else:
            self._number += 1
            self._asked[self._number] = (count, mine, copy)
            self._send(self._number)
            return
        mine.close()
        copy.close()

    def close(self) -> None:
        """Compare nothing more."""
        self._closed = True
        if self._task is not None:
            self._task.cancel()
        self._let_go()

    async def wait_closed(self) -> None:
        """Wait until its process is gone."""
        if self._task is not None:
            await asyncio.wait([self._task])

    def _has_room(self) -> bool:
        now = self._now()
        if int(now) != self._second:
            self._second, self._within = int(now), 0
        if self._within >= _A_SECOND or len(self._asked) >= WAITING:
            return False
        if self._closed or (self._task is None and now < self._not_before):
            return False
        self._within += 1
        return True

    def _send(self, number: int) -> None:
        if self._process is None or self._process.stdin is None:
            self._unsent.append(number)
            if self._task is None:
                self._task = asyncio.get_running_loop().create_task(self._run())
            return
        _, mine, copy = self._asked[number]
        heads = [b"\r\n".join(each.lines) for each in (mine, copy)]
        sizes = (len(heads[0]), mine.size, len(heads[1]), copy.size)
        # The transport writes what fits at once and keeps the rest; what is kept is bounded by `KEPT`.
        self._process.stdin.writelines(
            [frame.PAIR.pack(number, self.tolerance, *sizes), heads[0], *mine.pieces, heads[1], *copy.pieces]
        )

    async def _run(self) -> None:
        """Have the process, and take what it finds, until it ends."""
        before = self._taken
        try:
            self._process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-P", "-m", "fairway.serving.router.comparison.worker"),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                # It multiplies no matrices; BLAS would make threads for that at its import.
                env={**os.environ, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"},
            )
            unsent, self._unsent = self._unsent, []
            for number in unsent:
                self._send(number)
            assert self._process.stdout is not None
            while found := await self._process.stdout.readexactly(frame.FOUND.size):
                self._take(*frame.FOUND.unpack(found))
        except (OSError, EOFError):
            # It was killed, or cannot be started.
            self._failures = self._failures + 1 if self._taken == before else 0
        finally:
            self._task = None
            self._not_before = self._now() + _PAUSES[min(self._failures, len(_PAUSES) - 1)]
            self._let_go()
            process, self._process = self._process, None
            if process is not None:
                with suppress(ProcessLookupError):
                    process.kill()
                await process.wait()

    def _take(self, number: int, found: int, largest: float) -> None:
        self._taken += 1
        if number not in self._asked:
            return
        count, mine, copy = self._asked.pop(number)
        mine.close()
        copy.close()
        count.outputs = count.outputs.plus(
            OutputComparison(
                compared=int(bool(found & frame.COMPARED)),
                differing=int(bool(found & frame.DIFFERS)),
                relaid=int(bool(found & frame.RELAID)),
                classified=int(bool(found & frame.CLASSIFIED)),
                reclassified=int(bool(found & frame.RECLASSIFIED)),
                non_finite=int(bool(found & frame.NON_FINITE)),
                restored=int(bool(found & frame.RESTORED)),
                incomparable=int(not found),
                largest=largest,
            )
        )

    def _let_go(self) -> None:
        """The process is gone, or goes: what it had is left out."""
        for count, mine, copy in self._asked.values():
            count.outputs = count.outputs.plus(OutputComparison(skipped=1))
            mine.close()
            copy.close()
        self._asked.clear()
        self._unsent.clear()


def comparer_for(mirror: Mirror | None, before: Comparer | None, now: Callable[[], float]) -> Comparer | None:
    """What compares under this plan: the one from before goes on, or ends."""
    if mirror is None or mirror.tolerance is None:
        if before is not None:
            before.close()
        return None
    if before is None:
        return Comparer(mirror.tolerance, now)
    before.tolerance = mirror.tolerance
    return before
