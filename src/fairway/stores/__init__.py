"""Stores remember. Each implements the `Store` port of `app`."""
