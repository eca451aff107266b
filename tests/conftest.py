"""The test cluster is there for every tier."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))  # makes the package `cluster` importable

from cluster.fixtures import control_plane, kwok_nodes, namespace, own_control_plane, real_nodes

__all__ = ["control_plane", "kwok_nodes", "namespace", "own_control_plane", "real_nodes"]
