"""The binary frames between a router and the process that compares responses for it."""

from __future__ import annotations

import struct

PAIR = struct.Struct("<QdIIII")
"""Number, tolerance, and the sizes of head and body of the client's response and of the response to the copy, which follow."""
FOUND = struct.Struct("<QBd")
"""Number, the result as flag bits, and the largest difference. No bit: the pair cannot be compared."""
COMPARED, DIFFERS, RELAID, CLASSIFIED, RECLASSIFIED, NON_FINITE, RESTORED = (1 << bit for bit in range(7))
