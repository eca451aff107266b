"""Replay of a recorded queue under another policy or on other machines."""
