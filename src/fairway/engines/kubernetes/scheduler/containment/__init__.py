"""Fault containment: an object for which the scheduler fails is excluded, reported and retried; the rest goes on."""
