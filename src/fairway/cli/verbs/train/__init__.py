"""Verbs that start and end runs."""
