"""Companions of the loop: work other than runs that is part of every turn. The failure of one does not affect the others."""

from __future__ import annotations

from typing import Protocol

from fairway.app.loop.fault_register import FaultRegister


class LoopCompanion(Protocol):
    """Takes part in every turn: creates and ends runs; the loop does the rest."""

    name: str
    """Its name in faults: `companion:services`."""

    async def start(self) -> None:
        """Load the stored state; the snapshot is already loaded. Called again after a failure."""
        ...

    async def turn(self) -> float | None:
        """Observe, plan and act, under the loop's lock. Return the time of the next turn that it needs."""
        ...

    def has_news(self) -> bool:
        """Return whether the rest of the turn produced something it waits for, so that another turn must follow at once."""
        ...

    async def close(self) -> None:
        """Release its resources."""
        ...


class CompanionSet:
    """The companions of one loop. Each is started and gets its turn, whatever happens to the others.

    A companion that fails is shown as `companion:NAME` and retried with back-off.
    """

    def __init__(self, faults: FaultRegister) -> None:
        self._faults = faults
        self._all: list[LoopCompanion] = []
        self._started: set[str] = set()

    def append(self, companion: LoopCompanion) -> None:
        """Add a companion; those added first take their turn first."""
        self._all.append(companion)

    async def start(self) -> None:
        """Start the companions that are not started yet."""
        for companion in self._all:
            subject = _subject(companion)
            if companion.name not in self._started and self._faults.due(subject, "start"):
                with self._faults.contain(subject, "start"):
                    await companion.start()
                    self._started.add(companion.name)

    async def turn(self) -> list[float]:
        """Run the turn of each companion. Return the times at which they need another turn."""
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
        """Return whether a companion needs another turn at once."""
        news = False
        for companion in self._all:
            if companion.name in self._started:
                with self._faults.contain(_subject(companion), "look"):
                    news = companion.has_news() or news
        return news

    async def close(self) -> None:
        """Close all companions."""
        for companion in self._all:
            with self._faults.contain(_subject(companion), "close"):
                await companion.close()


def _subject(companion: LoopCompanion) -> str:
    return f"companion:{companion.name}"
