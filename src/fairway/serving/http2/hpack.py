"""Header compression (RFC 7541): encodes and decodes header blocks.

The decoder keeps the dynamic table that the peer fills, at most `TABLE_SIZE` bytes. A block that only refers to the tables
decodes to the same headers until the dynamic table changes, so its result is cached: gRPC clients send the same block for every
call. The encoder uses only the static table. Its blocks do not depend on earlier ones, so they can be cached as well.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from fairway.serving.http2 import huffman
from fairway.serving.http2.http2_error import HeaderCompressionError

Header = tuple[bytes, bytes]
Headers = tuple[Header, ...]

TABLE_SIZE = 4096
"""Bytes of the dynamic table, as RFC 7541 counts them; the initial value of SETTINGS_HEADER_TABLE_SIZE."""
_OVERHEAD = 32
"""Bytes that RFC 7541 adds for each entry."""
_REMEMBERED = 32
"""Maximum number of cached blocks of a connection."""
_SHORT = 128
"""Maximum bytes of a cached block."""

STATIC: tuple[Header, ...] = (
    (b":authority", b""), (b":method", b"GET"), (b":method", b"POST"), (b":path", b"/"), (b":path", b"/index.html"),
    (b":scheme", b"http"), (b":scheme", b"https"), (b":status", b"200"), (b":status", b"204"), (b":status", b"206"),
    (b":status", b"304"), (b":status", b"400"), (b":status", b"404"), (b":status", b"500"), (b"accept-charset", b""),
    (b"accept-encoding", b"gzip, deflate"), (b"accept-language", b""), (b"accept-ranges", b""), (b"accept", b""),
    (b"access-control-allow-origin", b""), (b"age", b""), (b"allow", b""), (b"authorization", b""), (b"cache-control", b""),
    (b"content-disposition", b""), (b"content-encoding", b""), (b"content-language", b""), (b"content-length", b""),
    (b"content-location", b""), (b"content-range", b""), (b"content-type", b""), (b"cookie", b""), (b"date", b""),
    (b"etag", b""), (b"expect", b""), (b"expires", b""), (b"from", b""), (b"host", b""), (b"if-match", b""),
    (b"if-modified-since", b""), (b"if-none-match", b""), (b"if-range", b""), (b"if-unmodified-since", b""),
    (b"last-modified", b""), (b"link", b""), (b"location", b""), (b"max-forwards", b""), (b"proxy-authenticate", b""),
    (b"proxy-authorization", b""), (b"range", b""), (b"referer", b""), (b"refresh", b""), (b"retry-after", b""),
    (b"server", b""), (b"set-cookie", b""), (b"strict-transport-security", b""), (b"transfer-encoding", b""),
    (b"user-agent", b""), (b"vary", b""), (b"via", b""), (b"www-authenticate", b""),
)  # fmt: skip
_FIRST_DYNAMIC = len(STATIC) + 1
_BY_HEADER = {header: place for place, header in reversed(list(enumerate(STATIC, 1)))}
_BY_NAME = {name: place for place, (name, _) in reversed(list(enumerate(STATIC, 1)))}


class TooManyHeadersError(Exception):
    """The headers of a block exceed the limits. The dynamic table was updated all the same."""


class _DecodedHeaders:
    """The headers of a block, up to the limits."""

    __slots__ = ("_count", "_left", "headers", "too_many")

    def __init__(self, most_bytes: int, most_headers: int) -> None:
        self.headers: list[Header] = []
        self.too_many = False
        self._left = most_bytes
        self._count = most_headers

    def add(self, header: Header) -> None:
        """Add a header, or record that the limits are exceeded."""
        self._left -= len(header[0]) + len(header[1])
        self._count -= 1
        if self._left < 0 or self._count < 0:
            self.too_many = True
        else:
            self.headers.append(header)


class HpackDecoder:
    """Decodes the headers of one direction of a connection."""

    __slots__ = ("_bytes", "_count", "_known", "_limit", "_size", "_table")

    def __init__(self, most_bytes: int, most_headers: int) -> None:
        """Limit one block to `most_bytes` of names and values, and to `most_headers` headers."""
        self._bytes = most_bytes
        self._count = most_headers
        self._table: deque[Header] = deque()
        self._size = 0
        self._limit = TABLE_SIZE
        self._known: dict[bytes, Headers] = {}

    def decode(self, block: bytes) -> Headers:
        """Decode a header block.

        Raises `TooManyHeadersError` beyond the limits, and `HeaderCompressionError` when the block is malformed.
        """
        cached = self._known.get(block)
        if cached is not None:
            return cached
        decoded = _DecodedHeaders(self._bytes, self._count)
        try:
            changed = self._read(block, decoded)
        except IndexError:
            raise HeaderCompressionError("a header block ends within a header") from None
        if changed:
            self._known.clear()
        if decoded.too_many:
            raise TooManyHeadersError
        headers = tuple(decoded.headers)
        if not changed and len(block) <= _SHORT:
            if len(self._known) >= _REMEMBERED:
                self._known.clear()
            self._known[block] = headers
        return headers

    def _read(self, block: bytes, found: _DecodedHeaders) -> bool:
        """Decode a whole block; return whether it changed the dynamic table.

        A block that exceeds the limits is still read to its end, because it may change the table.
        """
        position, changed = 0, False
        while position < len(block):
            first = block[position]
            if first & 0x80:
                index, position = _integer(block, position, 7)
                found.add(self._entry(index))
            elif first & 0x40:
                header, position = self._literal(block, position, 6)
                self._add(header)
                found.add(header)
                changed = True
            elif first & 0x20:
                if found.headers or found.too_many:
                    raise HeaderCompressionError("the table size is updated after a header")
                position, changed = self._resize(block, position), True
            else:
                header, position = self._literal(block, position, 4)
                found.add(header)
        return changed

    def _entry(self, index: int) -> Header:
        if 0 < index < _FIRST_DYNAMIC:
            return STATIC[index - 1]
        if not 0 <= index - _FIRST_DYNAMIC < len(self._table):
            message = f"a header refers to entry {index} of the tables, which does not exist"
            raise HeaderCompressionError(message)
        return self._table[index - _FIRST_DYNAMIC]

    def _literal(self, block: bytes, place: int, bits: int) -> tuple[Header, int]:
        index, place = _integer(block, place, bits)
        if index:
            name = self._entry(index)[0]
        else:
            name, place = _text(block, place)
        value, place = _text(block, place)
        return (name, value), place

    def _resize(self, block: bytes, place: int) -> int:
        limit, place = _integer(block, place, 5)
        if limit > TABLE_SIZE:
            message = f"a dynamic table of {limit} bytes, where {TABLE_SIZE} are allowed"
            raise HeaderCompressionError(message)
        self._limit = limit
        self._evict(0)
        return place

    def _add(self, header: Header) -> None:
        size = len(header[0]) + len(header[1]) + _OVERHEAD
        self._evict(size)
        if size <= self._limit:
            self._table.appendleft(header)
            self._size += size

    def _evict(self, room: int) -> None:
        table = self._table
        while table and self._size + room > self._limit:
            name, value = table.pop()
            self._size -= len(name) + len(value) + _OVERHEAD


def encode(headers: Iterable[Header]) -> bytes:
    """Encode headers, whose names must be in lower case. No dynamic table is used."""
    return b"".join([_encoded(header) for header in headers])


def _encoded(header: Header) -> bytes:
    entry = _BY_HEADER.get(header)
    if entry is not None:
        return bytes([0x80 | entry])
    name, value = header
    index = _BY_NAME.get(name)
    if index is None:
        return b"\x00" + _packed(name) + _packed(value)
    return (bytes([index]) if index < 15 else bytes([15, index - 15])) + _packed(value)


def _packed(text: bytes) -> bytes:
    """Encode a string with its length, without Huffman coding."""
    length = len(text)
    if length < 127:
        return bytes([length]) + text
    length -= 127
    head = bytearray([127])
    while length >= 128:
        head.append(length & 127 | 128)
        length >>= 7
    head.append(length)
    return bytes(head) + text


def _integer(block: bytes, place: int, bits: int) -> tuple[int, int]:
    """Decode an integer with this many prefix bits; return it and the position after it."""
    prefix_max = (1 << bits) - 1
    value = block[place] & prefix_max
    place += 1
    if value < prefix_max:
        return value, place
    for shift in (0, 7, 14, 21):
        byte = block[place]
        place += 1
        value += (byte & 127) << shift
        if byte < 128:
            return value, place
    raise HeaderCompressionError("an integer in a header block is too large")


def _text(block: bytes, place: int) -> tuple[bytes, int]:
    coded = block[place] & 0x80
    length, place = _integer(block, place, 7)
    end = place + length
    if end > len(block):
        raise HeaderCompressionError("a header block ends within a string")
    text = block[place:end]
    return (huffman.decode(text) if coded else text), end
