"""What a rank says that lost another one: its own end explains nothing."""

from __future__ import annotations

import re

PEER = re.compile(
    r"Connection (reset|closed) by peer|Connection (refused|timed out)|No route to host|Socket closed|Broken pipe"
    r"|NCCL.*(abort|remote)|connectFullMesh|heartbeat timeout|failed to connect to all addresses|lost communication with",
    re.IGNORECASE,
)
