"""Verbs that act inside a running task."""
