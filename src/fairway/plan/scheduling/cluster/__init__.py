"""What is free on nodes and devices, and where tasks go best."""

from __future__ import annotations

from fairway.plan.scheduling.cluster.cluster import Cluster

__all__ = ["Cluster"]
