"""Messages of ranks that lost the connection to another rank; such an error does not explain the failure."""

from __future__ import annotations

import re

PEER = re.compile(
    r"Connection (reset|closed) by peer|Connection (refused|timed out)|No route to host|Socket closed|Broken pipe"
    r"|NCCL.*(abort|remote)|connectFullMesh|heartbeat timeout|failed to connect to all addresses|lost communication with",
    re.IGNORECASE,
)
