"""Fixtures of the test cluster, and settings for all tests."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))  # makes the package `cluster` importable

import pytest
from cluster.fixtures import control_plane, kwok_nodes, namespace, own_control_plane, real_nodes
from hypothesis import HealthCheck, settings

__all__ = ["control_plane", "kwok_nodes", "namespace", "own_control_plane", "real_nodes"]

# How fast inputs are generated depends on the machine's load, not on the code.
settings.register_profile("loaded", suppress_health_check=[HealthCheck.too_slow], deadline=None)
settings.load_profile("loaded")

# Removed from the environment, so that a run of pytest that a test starts is not counted.
_COUNTS = os.environ.pop("FAIRWAY_TEST_COUNTS", "")

# A shell without job control starts background commands with SIGINT ignored, and children inherit that. Tests send Ctrl-C.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(trylast=True)
def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Append the counts of this run to the file that `scripts/test` names; it prints the sum over all tiers."""
    if _COUNTS:
        passed, failed, errors, skipped = (
            len(terminalreporter.stats.get(outcome, ())) for outcome in ("passed", "failed", "error", "skipped")
        )
        with Path(_COUNTS).open("a", encoding="utf-8") as file:
            file.write(f"{passed} {failed + errors} {skipped}\n")
