"""Content that clients and pods upload, until it becomes a version."""
