"""Filters that exclude nodes: affinity, taints, volumes."""
