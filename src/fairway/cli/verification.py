"""`fairway model verify` and `fairway data verify`: compare stored content with its digests."""

from __future__ import annotations

import json
import time

from fairway.cli.session import CommandSession, is_terminal, say, write
from fairway.cli.terminal.progress_bar import PATIENCE, ProgressBar
from fairway.errors import UnavailableError, from_wire
from fairway.units.quantity import show_bytes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

ALL = "%2A"
"""Used in place of a name: every version of the namespace."""


def verify(session: CommandSession, path: str) -> int:
    """Show progress, then print the damaged files. Exit code 1 if there are any."""
    reply = session.call("GET", path, session.look())
    result = _VerificationReply().read(reply)
    write(result["shown"].encode("utf-8", "surrogateescape"))
    damaged = result["end"]["damaged"]
    if damaged:
        files = "1 file is" if len(damaged) == 1 else f"{len(damaged):,} files are"
        say(f"{files} damaged or missing; register or add the good files again: that repairs every version that shares them")
    return 1 if damaged else 0


class _VerificationReply:
    def __init__(self) -> None:
        self._terminal = is_terminal(2)
        self._bar = ProgressBar(shown=self._terminal, amount=show_bytes)
        self._said = False
        self._patience = time.monotonic() + PATIENCE

    def read(self, reply: Any) -> dict[str, Any]:
        """Return the last line of the reply; the lines before it report progress."""
        rest = b""
        try:
            while (piece := reply.chunk()) is not None:
                *lines, rest = (rest + piece).split(b"\n")
                for line in lines:
                    event = json.loads(line)
                    if "error" in event:
                        raise from_wire(event["error"])
                    if "end" in event:
                        return dict(event)
                    self._tell(event["course"])
        finally:
            self._bar.close()
            reply.close()
        message = "the connection broke off before the content was verified"
        raise UnavailableError(message, fix="try again")

    def _tell(self, course: dict[str, int]) -> None:
        self._bar("reading", course["done"], course["total"])
        if not self._terminal and not self._said and time.monotonic() >= self._patience:
            self._said = True
            say(f"reading {show_bytes(course['total'])}; {show_bytes(course['done'])} done ...")
