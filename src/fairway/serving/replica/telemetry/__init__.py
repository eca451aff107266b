"""Metrics, traces and samples of a replica."""
