"""Observed state: jobs, tasks, nodes and devices at one instant, as frozen dataclasses.

Pure. Only `fold` creates new values from an engine's observations.
"""
