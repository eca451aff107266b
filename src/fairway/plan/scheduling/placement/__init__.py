"""Placement policies: each scores every kind of task on a node in a given state.

Pure and deterministic: a score depends only on the node's state, the task's needs and the workload mix.
"""
