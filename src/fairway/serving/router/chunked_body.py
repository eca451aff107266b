"""Chunked bodies, parsed strictly: sizes are hexadecimal, lines end with CR and LF, extensions and trailers are dropped."""

from __future__ import annotations

import re

from fairway.serving.router.message_head import BadHeadError

_SIZE = re.compile(rb"([0-9A-Fa-f]{1,15})(;[\t\x20-\x7e\x80-\xff]*)?")
_TRAILER = re.compile(rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+:[\t\x20-\x7e\x80-\xff]*")
_LINE_LIMIT = 1024
_TRAILER_LIMIT = 8 * 1024

LAST = b"0\r\n\r\n"
"""The end of a chunked body."""


def encode(piece: bytes) -> bytes:
    """Return one chunk; the piece must not be empty."""
    return b"%x\r\n%b\r\n" % (len(piece), piece)


class ChunkedBodyReader:
    """Parses a chunked body piece by piece and returns its content."""

    __slots__ = ("_after", "_in_trailer", "_left", "_line", "_trailer", "done", "rest", "status")

    def __init__(self, status: int) -> None:
        self.status = status
        """The status for a malformed body: 400 for a client, 502 for a backend."""
        self.done = False
        self.rest = b""
        """Input after the end of the body."""
        self._left = 0
        self._line = b""
        self._after = False
        self._in_trailer = False
        self._trailer = 0

    def feed(self, data: bytes) -> bytes:
        """Return the content of these bytes; raise `BadHeadError` if they are malformed."""
        pieces: list[bytes] = []
        position = 0
        while position < len(data) and not self.done:
            if self._left:
                piece = data[position : position + self._left]
                pieces.append(piece)
                position += len(piece)
                self._left -= len(piece)
                self._after = not self._left
                continue
            position = self._take_line(data, position)
        if self.done:
            self.rest = data[position:]
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def _take_line(self, data: bytes, place: int) -> int:
        end = data.find(b"\n", place)
        stop = len(data) if end < 0 else end + 1
        self._line += data[place:stop]
        if len(self._line) > _LINE_LIMIT and not self._in_trailer:
            raise BadHeadError(self.status, "the line of a chunk's size is too long")
        self._trailer += (stop - place) if self._in_trailer else 0
        if self._trailer > _TRAILER_LIMIT:
            raise BadHeadError(431 if self.status == 400 else self.status, f"the trailer is longer than {_TRAILER_LIMIT} bytes")
        if end < 0:
            return stop
        line, self._line = self._line, b""
        if not line.endswith(b"\r\n"):
            raise BadHeadError(self.status, "a line between the chunks does not end with CR and LF")
        self._read_line(line[:-2])
        return stop

    def _read_line(self, line: bytes) -> None:
        if self._after:
            if line:
                raise BadHeadError(self.status, "a chunk is longer than its size says")
            self._after = False
        elif self._in_trailer:
            if not line:
                self.done = True
            elif not _TRAILER.fullmatch(line):
                raise BadHeadError(self.status, "the trailer has a line that is not a header")
        else:
            match = _SIZE.fullmatch(line)
            if match is None:
                raise BadHeadError(self.status, f"{line[:40]!r} is not the size of a chunk")
            self._left = int(match[1], 16)
            self._in_trailer = not self._left
