"""Verbs that write documents."""
