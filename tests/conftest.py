"""Fixtures of the test cluster, and settings that every tier needs."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))  # makes the package `cluster` importable

from cluster.fixtures import control_plane, kwok_nodes, namespace, own_control_plane, real_nodes
from hypothesis import HealthCheck, settings

__all__ = ["control_plane", "kwok_nodes", "namespace", "own_control_plane", "real_nodes"]

# How fast inputs are generated says something of the machine's load, not of the code.
settings.register_profile("loaded", suppress_health_check=[HealthCheck.too_slow], deadline=None)
settings.load_profile("loaded")

# A shell without job control starts background commands with SIGINT ignored, and children inherit that. Tests send Ctrl-C.
signal.signal(signal.SIGINT, signal.default_int_handler)
