"""The adapter for any program: the task contract and macros, nothing specific to a framework."""

from __future__ import annotations

from fairway.launch.seat import Adapter

ADAPTER = Adapter()
