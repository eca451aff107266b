"""Persistent stores. Each implements the `Store` port of `app`."""
