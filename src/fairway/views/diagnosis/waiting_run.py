"""Views of a waiting run: its position, its forecast start, and changes that would let it start sooner."""

from __future__ import annotations

import msgspec

from fairway.views.text.table import TextPage


class StartForecastView(msgspec.Struct, frozen=True):
    """The forecast start, from simulations of the scheduler. Times are seconds from now."""

    words: str
    low: float | None = None
    median: float | None = None
    high: float | None = None
    """All three are null if there is no estimate."""
    confidence: float = 0.0
    """Probability that the range holds, 0 to 1."""
    not_before: float = 0.0
    """Without a range: seconds within which the run will not start, in the current state."""
    plays: int = 0
    """Number of simulations that ran to their end."""
    guess: bool = False
    """Whether it is a guess: neither a timeout nor finished runs indicate how long the runs before it take."""


class HelpfulChangeView(msgspec.Struct, frozen=True):
    """A change that would let the run start."""

    kind: str
    """Machine-readable kind: `timeout`, `gpu_type`, `placement`, `queue`, `gpus`, `cpu`, `memory`, `replicas`, `priority`,
    `moves`, `ends`."""
    words: str
    """The change in words: `with 3 GPUs: now`."""
    command: str = ""
    """Command to paste; empty if there is none."""
    role: str = ""
    value: str = ""
    """The value to request instead, as written in a document."""
    after: tuple[str, ...] = ()
    """Runs that must be preempted or end first."""
    low: float | None = None
    median: float | None = None
    high: float | None = None
    confidence: float | None = None
    """Wait in seconds if other runs end by themselves, and the probability that the range holds."""


class WaitingRunView(msgspec.Struct, frozen=True):
    """The position of a waiting run, its forecast start, and changes that would help."""

    queue: str
    position: int
    """Position in its queue, 1 = next."""
    of: int
    """Number of runs that wait in the queue."""
    start: StartForecastView
    changes: tuple[HelpfulChangeView, ...] = ()
    """Cheapest first."""


def waiting_lines(view: WaitingRunView, page: TextPage = TextPage()) -> list[str]:
    """Return the view as lines of text."""
    lines = [
        f"place in queue {view.queue}: {view.position} of {view.of}",
        f"earliest start: {view.start.words}",
    ]
    if view.changes:
        lines.append("what would help, the cheapest first:")
    for change in view.changes:
        lines.append(f"  {change.words}")
        if change.command:
            lines.append(f"    {page.paint(change.command, 'cyan')}")
    return lines
