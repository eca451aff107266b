"""One stream of a connection: what may come, what may go, and what waits to go."""

from __future__ import annotations

from collections import deque


class Stream:
    """One stream."""

    __slots__ = (
        "has_head", "heard_all", "held", "left", "number", "owed", "queued", "queued_size", "said_all", "taken", "trailers",
        "window",
    )  # fmt: skip

    def __init__(self, number: int) -> None:
        self.number = number
        self.window = 0
        """Bytes that may be sent."""
        self.left = 0
        """Bytes that the other side may send."""
        self.taken = 0
        """Bytes that came and were passed on, and for which no room was given back yet."""
        self.owed = 0
        """Bytes that came while no room was given back."""
        self.held = False
        """No room is given back for now."""
        self.has_head = False
        """The headers of the other side's message have come."""
        self.heard_all = False
        self.said_all = False
        self.trailers: bytes | None = None
        """A block that goes after what waits."""
        self.queued: deque[bytes] = deque()
        """What waits to be sent."""
        self.queued_size = 0

    def add(self, piece: bytes) -> None:
        """Let some bytes wait; an empty piece stands for an end that has no bytes."""
        if piece or not self.queued:
            self.queued.append(piece)
            self.queued_size += len(piece)

    def pop(self, most: int) -> bytes:
        """The next bytes that wait. An empty piece needs no room: `most` may be negative after a change of SETTINGS."""
        most = max(most, 0)
        piece = self.queued.popleft()
        if len(piece) > most:
            self.queued.appendleft(piece[most:])
            piece = piece[:most]
        self.queued_size -= len(piece)
        return piece

    def drop(self) -> None:
        """Nothing of it is sent any more."""
        self.queued.clear()
        self.queued_size = 0

    def on_sent(self) -> None:
        """Some of what waited was sent."""
