"""What goes between a router and the process that compares answers for it."""

from __future__ import annotations

import struct

PAIR = struct.Struct("<QdIIII")
"""Number, tolerance, and the bytes of head and body of the client's answer and of the answer to the copy, which follow."""
FOUND = struct.Struct("<QBd")
"""Number, what was found as bits, and the largest difference. No bit: the pair cannot be compared."""
COMPARED, DIFFERS, RELAID, CLASSIFIED, RECLASSIFIED, NON_FINITE, RESTORED = (1 << bit for bit in range(7))
