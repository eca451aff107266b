"""Prometheus metrics as values: rendering, parsing, and merging of families over replicas."""
