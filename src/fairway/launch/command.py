"""Any program: the task contract and macros, and nothing of a framework."""

from __future__ import annotations

from fairway.launch.seat import Adapter

ADAPTER = Adapter()
