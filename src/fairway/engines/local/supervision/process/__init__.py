"""Processes of a task: start, identity, descendants, cgroup."""
