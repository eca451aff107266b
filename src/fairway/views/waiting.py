"""What a waiting run may expect: its place, when it starts, and what would let it start now."""

from __future__ import annotations

import msgspec

from fairway.views.table import Page


class StartView(msgspec.Struct, frozen=True):
    """When it starts, by playing the scheduler forward. Times are seconds from now."""

    words: str
    low: float | None = None
    median: float | None = None
    high: float | None = None
    """All three are null when it cannot be said."""
    confidence: float = 0.0
    """How often such a range holds, 0 to 1."""
    not_before: float = 0.0
    """Where there is no range: it does not start within so many seconds, as things stand."""
    plays: int = 0
    """How many futures were played to their end."""
    guess: bool = False
    """Whether it is a guess: nothing says how long the runs before it take, neither a timeout nor runs that have ended."""


class ChangeView(msgspec.Struct, frozen=True):
    """Something that would let it start."""

    kind: str
    """A word for programs: `timeout`, `gpu_type`, `placement`, `queue`, `gpus`, `cpu`, `memory`, `replicas`, `priority`, `moves`,
    `ends`."""
    words: str
    """`with 3 GPUs: now`."""
    command: str = ""
    """To paste; empty where there is none."""
    role: str = ""
    value: str = ""
    """What to ask for instead, as a document has it."""
    after: tuple[str, ...] = ()
    """Runs that make room or end first."""
    low: float | None = None
    median: float | None = None
    high: float | None = None
    confidence: float | None = None
    """How long that takes in seconds, where others end by themselves, and the chance that the range holds."""


class WaitingView(msgspec.Struct, frozen=True):
    """What a run that waits may expect."""

    queue: str
    position: int
    """Place in its queue, 1 = next."""
    of: int
    """How many wait there."""
    start: StartView
    changes: tuple[ChangeView, ...] = ()
    """The cheapest first."""


def waiting_lines(view: WaitingView, page: Page = Page()) -> list[str]:
    """The same for people."""
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
