"""Traces in, reports out: the scheduler on a virtual clock."""
