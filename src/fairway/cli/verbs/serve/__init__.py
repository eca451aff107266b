"""Verbs for services."""
