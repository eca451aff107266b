"""Large bodies take turns: one is read in each turn of the loop."""

from __future__ import annotations

import asyncio

from fairway.serving.replica.http.pacer import LargeRequestPacer, SmallRequestClock
from fairway.serving.replica.http.turn_queue import TurnQueue


class Upload:
    """A connection with `pieces` pieces to read; it queues again after each."""

    def __init__(self, line: TurnQueue, log: list[str], name: str, pieces: int) -> None:
        self._line, self._log, self._name, self._left = line, log, name, pieces

    def read_on(self) -> None:
        self._log.append(self._name)
        self._left -= 1
        if self._left:
            self._line.join(self)


class Waiting(LargeRequestPacer):
    """Pauses after each piece, and counts the pauses."""

    def __init__(self) -> None:
        super().__init__(SmallRequestClock())
        self.pauses = 0

    def pause_after(self, seconds: float) -> float:
        assert seconds > 0.0
        self.pauses += 1
        return 0.001 if self.pauses % 2 else 0.0


async def drained(log: list[str], count: int) -> int:
    """Return the turns of the loop until `count` pieces were read; check that no turn reads two."""
    turns = 0
    async with asyncio.timeout(10):
        while len(log) < count:
            before = len(log)
            await asyncio.sleep(0)
            assert len(log) - before <= 1
            turns += 1
    return turns


async def test_each_has_its_turn_and_one_turn_of_the_loop_reads_for_one() -> None:
    log: list[str] = []
    line = TurnQueue()
    for name in "abc":
        line.join(Upload(line, log, name, 3))
    await drained(log, 9)
    assert log == list("abc" * 3)


async def test_a_pace_lets_the_line_wait() -> None:
    log: list[str] = []
    pace = Waiting()
    line = TurnQueue(pace)
    for name in "ab":
        line.join(Upload(line, log, name, 3))
    await drained(log, 6)
    assert log == list("ab" * 3)
    assert pace.pauses >= 5


async def test_time_in_which_the_line_was_empty_is_no_work() -> None:
    log: list[str] = []
    pace = Waiting()
    line = TurnQueue(pace)
    for count in range(1, 4):
        line.join(Upload(line, log, "a", 1))
        await drained(log, count)
    assert pace.pauses == 0
