"""The state of one stream: its windows and its queue of outgoing data."""

from __future__ import annotations

from collections import deque


class Http2Stream:
    """One stream of a connection."""

    __slots__ = (
        "has_head", "heard_all", "held", "left", "number", "owed", "queued", "queued_size", "said_all", "taken", "trailers",
        "window",
    )  # fmt: skip

    def __init__(self, number: int) -> None:
        self.number = number
        self.window = 0
        """Bytes that may still be sent."""
        self.left = 0
        """Bytes that the peer may still send."""
        self.taken = 0
        """Bytes received and consumed for which the window was not renewed yet."""
        self.owed = 0
        """Bytes received while the stream was held, to be returned to the connection's window later."""
        self.held = False
        """Whether the window is currently not renewed."""
        self.has_head = False
        """Whether the headers of the peer's message were received."""
        self.heard_all = False
        self.said_all = False
        self.trailers: bytes | None = None
        """A header block to send after the queued data."""
        self.queued: deque[bytes] = deque()
        """Data that waits to be sent."""
        self.queued_size = 0

    def add(self, piece: bytes) -> None:
        """Queue some data; an empty piece stands for an end without data."""
        if piece or not self.queued:
            self.queued.append(piece)
            self.queued_size += len(piece)

    def pop(self, most: int) -> bytes:
        """Take up to `most` bytes from the queue.

        An empty piece needs no window: `most` may be negative after a change of SETTINGS.
        """
        most = max(most, 0)
        piece = self.queued.popleft()
        if len(piece) > most:
            self.queued.appendleft(piece[most:])
            piece = piece[:most]
        self.queued_size -= len(piece)
        return piece

    def drop(self) -> None:
        """Discard all queued data."""
        self.queued.clear()
        self.queued_size = 0

    def on_sent(self) -> None:
        """Called after some queued data was sent."""
