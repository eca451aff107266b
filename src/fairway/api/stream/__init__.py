"""Streaming responses: logs and events that a client follows."""
