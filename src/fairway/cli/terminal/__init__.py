"""The terminal: output, keys, live status, progress."""
