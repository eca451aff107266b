"""Companions of the loop: work besides runs that is part of every turn. The failure of one concerns no other."""

from __future__ import annotations

from typing import Protocol

from fairway.app.fault import Faults


class Companion(Protocol):
    """Takes part in every turn: it makes runs and ends them, and the loop does the rest."""

    name: str
    """Names it in faults: `companion:services`."""

    async def start(self) -> None:
        """Load what was stored; the snapshot is there. It is called again after it failed."""
        ...

    async def turn(self) -> float | None:
        """Look, plan and act, under the loop's lock. Returns when to look again."""
        ...

    def has_news(self) -> bool:
        """Whether the rest of the turn did something that it waits for, so that another turn must follow at once."""
        ...

    async def close(self) -> None:
        """Release what it holds."""
        ...


class Companions:
    """The companions of one loop. Each is started, and has its part of a turn, whatever happens to the others.

    A companion that fails is shown as `companion:NAME` and tried again with back-off.
    """

    def __init__(self, faults: Faults) -> None:
        self._faults = faults
        self._all: list[Companion] = []
        self._started: set[str] = set()

    def append(self, companion: Companion) -> None:
        """Add one; those added first have their part first."""
        self._all.append(companion)

    async def start(self) -> None:
        """Start those that are not started yet."""
        for companion in self._all:
            subject = _subject(companion)
            if companion.name not in self._started and self._faults.due(subject, "start"):
                with self._faults.contain(subject, "start"):
                    await companion.start()
                    self._started.add(companion.name)

    async def turn(self) -> list[float]:
        """The part of each. Returns when they want to look again."""
        await self.start()
        times = []
        for companion in self._all:
            subject = _subject(companion)
            if companion.name in self._started and self._faults.due(subject, "turn"):
                with self._faults.contain(subject, "turn"):
                    at = await companion.turn()
                    if at is not None:
                        times.append(at)
        return times

    def have_news(self) -> bool:
        """Whether one of them needs another turn at once."""
        found = False
        for companion in self._all:
            if companion.name in self._started:
                with self._faults.contain(_subject(companion), "look"):
                    found = companion.has_news() or found
        return found

    async def close(self) -> None:
        """Close all of them."""
        for companion in self._all:
            with self._faults.contain(_subject(companion), "close"):
                await companion.close()


def _subject(companion: Companion) -> str:
    return f"companion:{companion.name}"
