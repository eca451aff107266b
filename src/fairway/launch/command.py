"""The adapter for any program: the task contract and macros, nothing specific to a framework."""

from __future__ import annotations

from fairway.launch.rank_position import LaunchAdapter

ADAPTER = LaunchAdapter()
