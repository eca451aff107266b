"""Verbs that show runs, nodes and services."""
