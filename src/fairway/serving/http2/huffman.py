"""The Huffman code of HPACK (RFC 7541, appendix B). The code is canonical, so the code lengths alone define it."""

from __future__ import annotations

import functools

from fairway.serving.http2.http2_error import HeaderCompressionError

_LENGTHS = bytes.fromhex(
    "0d171c1c1c1c1c1c1c181e1c1c1e1c1c1c1c1c1c1c1c1e1c1c1c1c1c1c1c1c1c060a0a0c0d06080b0a0a080b080606060505050606060606"
    "060607080f060c0a0d06070707070707070707070707070707070707070707070807080d130d0e060f050605060506060605070706060605"
    "06070605050607070707070f0b0e0d1c14161414161616171617171717171817181816171817171717151617161717181615141616171715"
    "1716161815161717151516151716171714161616171616171a1a1413161716191a1a1a1b1b1a181913151a1b1b1a1b1815151a1a1c1b1b1b"
    "14181415161515171616191918181a171a1b1a1a1b1b1b1b1b1c1b1b1b1b1b1a1e"
)
"""Code length in bits of each byte, and of the end-of-string symbol."""
_END = 256
_REMEMBERED = 512
"""Number of decoded strings to cache: clients send the same names, paths and user agents repeatedly."""
_LONGEST = 256
"""Maximum bytes of a cached string."""

_Step = tuple[int, bytes, bool]
"""The next state, the bytes decoded by the step, and whether a string may end there."""


def decode(data: bytes) -> bytes:
    """Decode a string; raise `HeaderCompressionError` when the padding is wrong or the end-of-string symbol occurs in it."""
    return _remembered(data) if len(data) <= _LONGEST else _decoded(data)


@functools.lru_cache(maxsize=_REMEMBERED)
def _remembered(data: bytes) -> bytes:
    return _decoded(data)


def _decoded(data: bytes) -> bytes:
    steps = _steps()
    state, may_end = 0, True
    decoded: list[bytes] = []
    for byte in data:
        for nibble in (byte >> 4, byte & 15):
            step = steps[state][nibble]
            if step is None:
                raise HeaderCompressionError("a header contains the end-of-string symbol")
            state, text, may_end = step
            if text:
                decoded.append(text)
    if not may_end:
        raise HeaderCompressionError("a header's string ends within a code")
    return b"".join(decoded)


@functools.cache
def _steps() -> list[list[_Step | None]]:
    """Return the transition table: for each state and four bits, the step. A state is a node of the code tree."""
    children, symbols = _tree()
    padding = _padding(children)
    return [[_walk(children, symbols, padding, node, nibble) for nibble in range(16)] for node in range(len(children))]


def _walk(children: list[list[int]], symbols: dict[int, int], padding: frozenset[int], node: int, nibble: int) -> _Step | None:
    text = b""
    for shift in (3, 2, 1, 0):
        node = children[node][nibble >> shift & 1]
        symbol = symbols.get(node)
        if symbol == _END or node < 0:
            return None
        if symbol is not None:
            text += bytes([symbol])
            node = 0
    return node, text, node in padding


def _tree() -> tuple[list[list[int]], dict[int, int]]:
    """Return both children of each inner node, and the symbol of each leaf. The root is 0."""
    children: list[list[int]] = [[-1, -1]]
    symbols: dict[int, int] = {}
    code = previous = 0
    for symbol in sorted(range(len(_LENGTHS)), key=lambda byte: (_LENGTHS[byte], byte)):
        length = _LENGTHS[symbol]
        code <<= length - previous
        previous = length
        node = 0
        for shift in range(length - 1, -1, -1):
            bit = code >> shift & 1
            if children[node][bit] < 0:
                children[node][bit] = len(children)
                children.append([-1, -1])
            node = children[node][bit]
        symbols[node] = symbol
        code += 1
    return children, symbols


def _padding(children: list[list[int]]) -> frozenset[int]:
    """Return the states in which a string may end: after fewer than eight bits, all ones, since the last symbol."""
    node, states = 0, [0]
    for _ in range(7):
        node = children[node][1]
        states.append(node)
    return frozenset(states)
