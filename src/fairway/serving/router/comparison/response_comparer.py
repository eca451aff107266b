"""Passes pairs of responses to the process that compares them.

The router hands pairs over and counts the results; it never waits for either. Memory is bounded: responses that do not fit, and
pairs that arrive faster than they are compared, are counted and left out.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress

from fairway.serving.router.comparison import frame
from fairway.serving.router.counter import RevisionCounters
from fairway.state.serving.load import OutputComparison
from fairway.state.serving.route import RouteMirror

LARGEST = 1024 * 1024
"""Limit on the bytes of a kept response; a larger one is not compared."""
KEPT = 16 * 1024 * 1024
"""Limit on the bytes of all responses that are kept until their copies are answered and compared."""
WAITING = 64
"""Limit on pairs handed over and not compared yet; one more is left out."""
_A_SECOND = 200
"""Limit on the pairs compared within a second."""
_PAUSES = (0.0, 1.0, 5.0, 30.0)
"""Seconds before the process is restarted, by how often it has ended without comparing anything."""


class KeptResponse:
    """A replica's response, kept until it was compared. One that is too large is dropped."""

    __slots__ = ("_comparer", "lines", "pieces", "size", "whole")

    def __init__(self, comparer: ResponseComparer, lines: Sequence[bytes]) -> None:
        self.lines = lines
        self.pieces: list[bytes] = []
        self.size = 0
        self.whole = True
        """Whether nothing was dropped."""
        self._comparer = comparer

    def add(self, piece: bytes) -> None:
        """Keep more of its body."""
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
        """Release its body."""
        self._comparer.used -= self.size
        self.size = 0
        self.pieces = []


class ResponseComparer:
    """Compares pairs of responses in a separate process, which is started for the first pair."""

    def __init__(self, tolerance: float, now: Callable[[], float]) -> None:
        self.tolerance = tolerance
        self.used = 0
        """Bytes of the responses that are kept."""
        self._now = now
        self._asked: dict[int, tuple[RevisionCounters, KeptResponse, KeptResponse]] = {}
        """Pairs that were handed over, or wait for the process to start."""
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

    def keep(self, lines: Sequence[bytes]) -> KeptResponse:
        """Start to keep a response with these header lines."""
        return KeptResponse(self, lines)

    def compare(self, count: RevisionCounters, mine: KeptResponse, copy: KeptResponse) -> None:
        """Compare a client's response with the response to its copy, count the result, and close both."""
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
        """Stop comparing."""
        self._closed = True
        if self._task is not None:
            self._task.cancel()
        self._let_go()

    async def wait_closed(self) -> None:
        """Wait until the process has ended."""
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
        _, original, copy = self._asked[number]
        heads = [b"\r\n".join(answer.lines) for answer in (original, copy)]
        sizes = (len(heads[0]), original.size, len(heads[1]), copy.size)
        # The transport writes what fits at once and buffers the rest, which is bounded by `KEPT`.
        self._process.stdin.writelines(
            [frame.PAIR.pack(number, self.tolerance, *sizes), heads[0], *original.pieces, heads[1], *copy.pieces]
        )

    async def _run(self) -> None:
        """Run the process and take its results until it ends."""
        before = self._taken
        try:
            self._process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-P", "-m", "fairway.serving.router.comparison.worker"),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                # It multiplies no matrices, but BLAS would start threads for that on import.
                env={**os.environ, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"},
            )
            unsent, self._unsent = self._unsent, []
            for number in unsent:
                self._send(number)
            assert self._process.stdout is not None
            while result := await self._process.stdout.readexactly(frame.FOUND.size):
                self._take(*frame.FOUND.unpack(result))
        except (OSError, EOFError):
            # The process was killed, or cannot be started.
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
        count, original, copy = self._asked.pop(number)
        original.close()
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
        """Skip the pairs that the process had: it is gone, or is ending."""
        for count, original, copy in self._asked.values():
            count.outputs = count.outputs.plus(OutputComparison(skipped=1))
            original.close()
            copy.close()
        self._asked.clear()
        self._unsent.clear()


def comparer_for(
    mirror: RouteMirror | None, before: ResponseComparer | None, now: Callable[[], float]
) -> ResponseComparer | None:
    """Return the comparer for this plan: the previous one is kept or closed."""
    if mirror is None or mirror.tolerance is None:
        if before is not None:
            before.close()
        return None
    if before is None:
        return ResponseComparer(mirror.tolerance, now)
    before.tolerance = mirror.tolerance
    return before
