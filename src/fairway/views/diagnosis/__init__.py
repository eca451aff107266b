"""Why something waits or failed, and what would help."""
