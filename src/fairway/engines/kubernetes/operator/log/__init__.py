"""Logs of pods: followed, and archived in the record."""
