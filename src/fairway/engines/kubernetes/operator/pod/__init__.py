"""Pods of runs: gangs, names, policy, reports."""
