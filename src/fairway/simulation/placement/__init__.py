"""Placement experiments with recorded nodes and pods: filling a cluster, and arrivals with departures."""
