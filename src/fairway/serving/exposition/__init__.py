"""Prometheus metrics as values: families are rendered, parsed, and merged over replicas."""
