"""Free resources of nodes and devices, and the choice of the best place for each task."""

from __future__ import annotations

from fairway.plan.scheduling.cluster.cluster import ClusterModel

__all__ = ["ClusterModel"]
