"""Findings of `fairway doctor`."""
